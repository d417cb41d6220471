"""moto's S3 with a round trip added to each request, in a process of its own. A put-if-absent is one step."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from tests.bench.queue_process import started

BUCKET = "journals"


def main() -> int:
    """Serve until the process is ended; print the endpoint once requests are served."""
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from moto.s3.responses import S3Response
    from werkzeug.serving import WSGIRequestHandler, make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    delay_s = float(sys.argv[1]) / 1000
    moto = DomainDispatcherApplication(create_backend_app)
    lock, put_object = threading.Lock(), S3Response.put_object

    def put_alone(response: S3Response) -> Any:
        with lock:
            return put_object(response)

    def delayed(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        time.sleep(delay_s)
        answer: Iterable[bytes] = moto(environ, start)
        return answer

    class Handler(WSGIRequestHandler):
        protocol_version = "HTTP/1.1"

    with mock.patch.object(S3Response, "put_object", put_alone):
        server = make_server("127.0.0.1", 0, delayed, threaded=True, request_handler=Handler)
        print(f"http://127.0.0.1:{server.server_port}", flush=True)
        server.serve_forever()
    return 0


@contextmanager
def slow_s3(delay_ms: float) -> Iterator[tuple[str, int]]:
    """Run it with an empty bucket, and yield its endpoint and its process."""
    import boto3

    with started(["-m", "tests.bench.slow_s3", str(delay_ms)]) as (endpoint, pid):
        client = boto3.client("s3", endpoint_url=endpoint)
        client.create_bucket(Bucket=BUCKET)
        client.close()
        yield endpoint, pid


if __name__ == "__main__":
    sys.exit(main())
