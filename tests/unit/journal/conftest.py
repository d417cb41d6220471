"""moto's S3, for the tests of stores."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any
from unittest import mock

import boto3
import pytest

from tests.helpers import moto_server


@pytest.fixture(scope="package")
def moto_s3() -> Iterator[str]:
    """Its URL, with a bucket "stores". Its look and its put are made one step, as they are in S3."""
    from moto.s3.responses import S3Response

    lock, put_object = threading.Lock(), S3Response.put_object

    def put_alone(response: S3Response) -> Any:
        with lock:
            return put_object(response)

    with moto_server() as url, mock.patch.object(S3Response, "put_object", put_alone):
        client = boto3.client("s3", endpoint_url=url)
        client.create_bucket(Bucket="stores")
        client.close()
        yield url
