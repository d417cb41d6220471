"""The objects behind pointers, on moto's S3; and S3 when it fails, by a stub that answers for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import boto3
import pytest

from sqs_fifo_spark.errors import AccessDeniedError, PayloadError
from sqs_fifo_spark.journal.object_store import S3Access
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


@pytest.mark.parametrize(("bucket", "reason"), [("nowhere", "no such bucket"), ("No!", "no bucket of such a name")])
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

    def __init__(self, code: str, status: int) -> None:
        self._answer = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}

    def __getattr__(self, operation: str) -> Any:
        def call(**_: Any) -> Any:
            from botocore.exceptions import ClientError

            raise ClientError(self._answer, operation)

        return call


@pytest.mark.parametrize(
    ("code", "status", "is_final"),
    [
        *(("AccessDenied", 403, True), ("InvalidObjectState", 403, True), ("KMS.DisabledException", 400, True)),
        *(("SlowDown", 503, False), ("InternalError", 500, False), ("RequestTimeout", 408, False)),
    ],
)
def test_only_what_the_object_is_to_blame_for_is_final(
    buckets: Buckets, code: str, status: int, is_final: bool
) -> None:
    """An outage never counts as a missing payload."""
    buckets._s3._made = Refusing(code, status)
    pointer = Pointer("bodies", "no/such")
    with pytest.raises(PayloadError, match=code) as told:
        buckets.read(pointer, 10)
    assert told.value.is_final is is_final
    assert buckets.delete([pointer])[pointer].is_final is is_final


@pytest.mark.parametrize("code", ["ExpiredToken", "InvalidAccessKeyId", "SignatureDoesNotMatch"])
def test_wrong_credentials_are_no_reason_of_the_object(buckets: Buckets, code: str) -> None:
    """Else all bodies would be null, with `payloadErrors=null`."""
    buckets._s3._made = Refusing(code, 403)
    pointer = Pointer("bodies", "no/such")
    with pytest.raises(AccessDeniedError, match=f"{code}.*s3://bodies/no/such cannot be read"):
        buckets.read(pointer, 10)
    assert not buckets.delete([pointer])[pointer].is_final


def test_a_bucket_that_obstore_does_not_reach_is_read_by_boto3_from_then_on(
    buckets: Buckets, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it is with one of another region."""
    from sqs_fifo_spark.errors import JournalUnavailableError

    asked = []

    class Unreachable:
        def get_range(self, name: str, *_: int) -> bytes:
            asked.append(name)
            raise JournalUnavailableError("Received redirect without LOCATION")

    monkeypatch.setattr("sqs_fifo_spark.payloads.buckets.open_store", lambda *_: Unreachable())
    for key in ("one", "two"):
        buckets.write(Pointer("bodies", key), key.encode())
        assert buckets.read(Pointer("bodies", key), 10) == key.encode()
    assert asked == ["one"]
