"""Helpers for tests of several kinds."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from sqs_fifo_spark.clock import SYSTEM_CLOCK
from sqs_fifo_spark.journal.file_store import FileStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PAUSE_S = 0.02

T = TypeVar("T")
E = TypeVar("E", bound=Exception)


def in_all_tests(*values: object) -> Any:
    """Return a case of a parametrized test that `make test` leaves out, for the others show the same of the law."""
    return pytest.param(*values, marks=pytest.mark.long)


def wait_until(condition: Callable[[], T], timeout_s: float, what: str, *, pause_s: float = _PAUSE_S) -> T:
    """Return `condition()`'s result as soon as it is true; fail with `what` after `timeout_s`.

    The only place in the tests that polls. An error in `condition` is raised at once.
    """
    deadline = SYSTEM_CLOCK.monotonic() + timeout_s
    while not (result := condition()):
        if SYSTEM_CLOCK.monotonic() >= deadline:
            raise AssertionError(f"not within {timeout_s:g} s: {what}; the last answer was {result!r}")
        SYSTEM_CLOCK.sleep(pause_s)
    return result


def journal_epochs(folder: Path) -> list[Path]:
    """Return the objects of epochs in the journal at `folder`, without what a put under way has not finished."""
    return [folder / name for name in FileStore(folder).list("epochs")]


def depth(get_queue_attributes: Callable[..., Any], queue_url: str) -> tuple[int, int]:
    """Return how many messages of the queue are visible, and how many are in flight.

    `get_queue_attributes` is a client's, or what calls a server's model in its place.
    """
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    answer = get_queue_attributes(QueueUrl=queue_url, AttributeNames=names)
    visible, in_flight = (int(answer["Attributes"][name]) for name in names)
    return visible, in_flight


def spark_builder(master: str, home: Path) -> SparkSession.Builder:
    """Return the builder of a session that shows nothing, listens on this machine only, and has its files in `home`."""
    from pyspark.sql import SparkSession

    return (
        SparkSession.builder.master(master)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.local.dir", str(home / "local"))
    )


def run_python(code: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `code` in a process of its own, with these variables beside this one's."""
    env = {**os.environ, **environment}
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=env, check=False)


@contextmanager
def raises_one_line(
    error: type[E] | tuple[type[E], ...], match: str | None = None
) -> Iterator[pytest.ExceptionInfo[E]]:
    """Require an error of this class, whose text is one line."""
    with pytest.raises(error, match=match) as told:
        yield told
    assert str(told.value)
    assert "\n" not in str(told.value)


def extended_session(**keys: Any) -> Any:
    """Return a session of AWS's extended client, whose import puts it in the place of boto3's own: that is undone."""
    import boto3

    kept = boto3.session.Session, boto3.Session, boto3.DEFAULT_SESSION
    extended = pytest.importorskip("sqs_extended_client", reason="of the extra `test`")
    boto3.session.Session, boto3.Session, boto3.DEFAULT_SESSION = kept
    return extended.SQSExtendedClientSession(**keys)


@contextmanager
def moto_server() -> Iterator[str]:
    """Serve moto's AWS on this machine, at the URL that is returned; it says nothing of requests."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    try:
        yield f"http://{host}:{port}"
    finally:
        server.stop()


@contextmanager
def moto_bucket(name: str) -> Iterator[str]:
    """Serve moto's S3 with a bucket of this name, at the URL that is returned."""
    import boto3

    with moto_server() as url:
        s3 = boto3.client("s3", endpoint_url=url)
        s3.create_bucket(Bucket=name)
        s3.close()
        yield url


@contextmanager
def small_disk(place: Path, size: str = "256k") -> Iterator[Path]:
    """A file system of its own at `place`, which must be mounted: a test without that permission is skipped."""
    place.mkdir(exist_ok=True)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", place], capture_output=True).returncode:
        pytest.skip("needs the permission to mount a small file system")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", place], check=True)
