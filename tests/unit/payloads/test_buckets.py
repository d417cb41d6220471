"""The objects behind pointers, on moto's S3; and S3 when it fails, by a stub that answers for it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import boto3
import pytest

from sqs_fifo_spark.errors import AccessDeniedError, JournalUnavailableError, PayloadError
from sqs_fifo_spark.journal.location import S3Access
from sqs_fifo_spark.journal.object_store import ObjectStore
from sqs_fifo_spark.payloads.buckets import Buckets
from sqs_fifo_spark.payloads.pointer import Pointer
from tests.helpers import moto_server

PLAIN = ["plain", "a b", "a%20b", "ü", "a#b?c", "a\\b", "a+b&c=d"]
ODD = ["/a", "a/", "a//b", "a/./b", "x/../y", "line\nbreak"]
"""Keys that obstore does not spell: it takes another object, or none."""


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with moto_server() as url:
        boto3.client("s3", endpoint_url=url, region_name="us-east-1").create_bucket(Bucket="bodies")
        yield url


@pytest.fixture
def buckets(endpoint: str) -> Buckets:
    return Buckets(S3Access("us-east-1", endpoint_url=endpoint))


@pytest.mark.parametrize("key", [*PLAIN, *ODD[:5]])
def test_a_payload_is_read_under_the_very_key_that_it_has(buckets: Buckets, key: str) -> None:
    """Never another object, such as `a` for `/a`; and no more of it than is asked for."""
    pointer = Pointer("bodies", key)
    buckets.write(Pointer("bodies", key.strip("/")), b"of another key")
    buckets.write(pointer, key.encode())
    assert buckets.read(pointer, 100) == key.encode()
    assert buckets.read(pointer, 1) == key.encode()[:1]
    assert not buckets.delete([pointer])
    with pytest.raises(PayloadError, match="it is missing") as told:
        buckets.read(pointer, 100)
    assert told.value.is_final


def test_an_empty_payload_is_one(buckets: Buckets) -> None:
    buckets.write(Pointer("bodies", "empty"), b"")
    assert buckets.read(Pointer("bodies", "empty"), 10) == b""


@pytest.mark.parametrize(("bucket", "reason"), [("nowhere", "no such bucket"), ("a#b", "no bucket of such a name")])
def test_a_bucket_that_is_not_there_is_a_final_reason(buckets: Buckets, bucket: str, reason: str) -> None:
    pointer = Pointer(bucket, "key")
    with pytest.raises(PayloadError, match=reason) as told:
        buckets.read(pointer, 10)
    assert told.value.is_final
    assert buckets.delete([pointer])[pointer].is_final


def test_many_are_deleted_whether_or_not_they_are_there(buckets: Buckets) -> None:
    pointers = [Pointer("bodies", f"many/{number}") for number in range(1_005)]
    for pointer in pointers[::200]:
        buckets.write(pointer, b"x")
    assert not buckets.delete(pointers)


class Refusing:
    """A client of S3 that answers each call with one error."""

    def __init__(self, code: str) -> None:
        self._answer = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": 400}}

    def __getattr__(self, operation: str) -> Any:
        def call(**_: Any) -> Any:
            from botocore.exceptions import ClientError

            raise ClientError(self._answer, operation)

        return call


@pytest.mark.parametrize(
    ("code", "is_final"),
    [
        *((code, True) for code in ("AccessDenied", "InvalidObjectState", "KMS.DisabledException")),
        *((code, False) for code in ("SlowDown", "InternalError", "RequestTimeout", "KMS.ThrottlingException")),
        *((code, False) for code in ("OperationAborted", "PermanentRedirect", "AccountProblem")),
    ],
)
def test_only_what_the_object_is_to_blame_for_is_final(buckets: Buckets, code: str, is_final: bool) -> None:
    """An outage, whatever its status, never counts as a missing payload. Nor does what is wrong with an account."""
    buckets._s3._made = buckets._deleting._made = Refusing(code)
    pointer = Pointer("bodies", "no/such")
    with pytest.raises(PayloadError, match=code) as told:
        buckets.read(pointer, 10)
    assert told.value.is_final is is_final
    assert buckets.delete([pointer])[pointer].is_final is is_final


@pytest.mark.parametrize("code", ["ExpiredToken", "InvalidAccessKeyId", "SignatureDoesNotMatch"])
def test_wrong_credentials_are_no_reason_of_the_object(buckets: Buckets, code: str) -> None:
    """Else all bodies would be null, with `payloadErrors=null`."""
    buckets._s3._made = buckets._deleting._made = Refusing(code)
    pointer = Pointer("bodies", "no/such")
    with pytest.raises(AccessDeniedError, match=f"{code}.*'s3://bodies/no/such' cannot be read. Correct .*journalCred"):
        buckets.read(pointer, 10)
    assert not buckets.delete([pointer])[pointer].is_final


def test_a_bucket_that_obstore_does_not_reach_is_read_by_boto3_for_a_while(
    buckets: Buckets, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it is with one of another region."""
    asked = []

    def get_range(store: ObjectStore, name: str, *_: int) -> bytes:
        asked.append(name)
        raise JournalUnavailableError("Received redirect without LOCATION")

    monkeypatch.setattr(ObjectStore, "get_range", get_range)
    for key in ("one", "two"):
        buckets.write(Pointer("bodies", key), key.encode())
        assert buckets.read(Pointer("bodies", key), 10) == key.encode()
    assert asked == ["one"]


@pytest.mark.parametrize(
    "name", ["[x", "a]b", "bodies#x", "bodies?a=b", "u:p@bodies", "bodies:80", "bodies\n", ".", "arn:aws:s3:::bodies"]
)
def test_a_name_that_no_bucket_has_reaches_nobody(buckets: Buckets, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """A sender chooses it: else a query could be led elsewhere, or fail with any `payloadErrors`."""
    monkeypatch.setattr(buckets, "_bucket", None)
    with pytest.raises(PayloadError, match="no bucket of such a name") as told:
        buckets.read(Pointer(name, "key"), 10)
    assert told.value.is_final


def test_the_clients_of_a_few_buckets_are_kept(buckets: Buckets) -> None:
    """A sender may name any number of buckets."""
    for number in range(40):
        buckets._bucket(f"bucket-{number}")
    assert buckets._bucket.cache_info().currsize == 16


@pytest.mark.parametrize("key", ["cut", "a//cut"], ids=["obstore, then boto3", "boto3"])
def test_an_answer_that_is_cut_off_is_no_payload(monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    """Else half a body would be sealed, and its message deleted."""
    monkeypatch.setattr("sqs_fifo_spark.journal.object_store.RETRY_TIMEOUT", timedelta(seconds=0.1))
    with cutting_server() as endpoint:
        buckets = Buckets(S3Access("us-east-1", endpoint_url=endpoint))
        monkeypatch.setattr(buckets._s3, "tries", 1)
        with pytest.raises(PayloadError, match=r"cut off|no answer") as told:
            buckets.read(Pointer("bodies", key), 1000)
        assert not told.value.is_final


@contextmanager
def cutting_server() -> Iterator[str]:
    """A server that promises 100 bytes, and closes after 50."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    with connection, suppress(OSError):
                        connection.recv(65_536)
                        head = b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\nETag: "e"\r\n'
                        stamp = b"Last-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\n\r\n"
                        connection.sendall(head + stamp + b"x" * 50)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}"
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


def test_a_key_that_no_list_of_keys_can_have_is_deleted_too(buckets: Buckets) -> None:
    """And does no harm to the others."""
    pointers = [Pointer("bodies", key) for key in ("plain", "with\ttab", "also")]
    for pointer in pointers:
        buckets.write(pointer, b"x")
    assert not buckets.delete(pointers)
    for pointer in pointers:
        with pytest.raises(PayloadError, match="it is missing"):
            buckets.read(pointer, 10)


def test_after_an_outage_no_further_delete_is_tried(buckets: Buckets, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that ends waits for it."""
    asked = []

    def delete(bucket: str, keys: list[str]) -> dict[str, PayloadError]:
        asked.append(bucket)
        raise PayloadError("S3 fails with SlowDown")

    monkeypatch.setattr(buckets._deleting, "delete", delete)
    left = buckets.delete([Pointer("one", "a"), Pointer("two", "b"), Pointer("three", "c")])
    assert asked == ["one"]
    assert len(left) == 3
    assert not any(error.is_final for error in left.values())
