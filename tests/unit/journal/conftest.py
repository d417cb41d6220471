"""moto's S3, for the tests of stores."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import Any
from unittest import mock

import boto3
import pytest


@pytest.fixture(scope="package")
def moto_s3() -> Iterator[tuple[str, int]]:
    """Its host and port, with a bucket "stores". Its look and its put are made one step, as they are in S3."""
    from moto.s3.responses import S3Response
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    lock, put_object = threading.Lock(), S3Response.put_object

    def put_alone(response: S3Response) -> Any:
        with lock:
            return put_object(response)

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    client = boto3.client("s3", endpoint_url=f"http://{host}:{port}")
    client.create_bucket(Bucket="stores")
    client.close()
    with mock.patch.object(S3Response, "put_object", put_alone):
        yield host, port
    server.stop()
