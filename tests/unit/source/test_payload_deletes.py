"""Payloads that are to be deleted, until S3 says that they are."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

import pytest

from sqs_fifo_spark.errors import PayloadError
from sqs_fifo_spark.payloads.pointer import Pointer
from sqs_fifo_spark.source.payload_deletes import PayloadDeletes
from tests.unit.by_hand import Late

URLS: tuple[str, ...] = ("s3://bucket/a", "s3://bucket/b", "s3://other/c")


class Bucket:
    """Deletes all but the keys that fail."""

    def __init__(self, **failing: PayloadError) -> None:
        self.failing = failing
        self.asked: list[list[str]] = []

    def __call__(self, pointers: Sequence[Pointer]) -> Mapping[Pointer, PayloadError]:
        self.asked.append([pointer.key for pointer in pointers])
        return {pointer: self.failing[pointer.key] for pointer in pointers if pointer.key in self.failing}


def test_a_payload_is_named_until_it_is_deleted() -> None:
    """One that fails is tried again."""
    bucket = Bucket(b=PayloadError("S3 fails with 503"))
    deletes = PayloadDeletes(bucket)
    deletes.add(URLS)
    assert deletes.left == URLS
    deletes.begin()
    assert deletes.left == (URLS[1],)
    bucket.failing.clear()
    deletes.begin()
    assert not deletes.left
    deletes.begin()
    assert bucket.asked == [["a", "b", "c"], ["b"]]


def test_a_refused_one_is_named_no_more_and_the_log_says_so(caplog: pytest.LogCaptureFixture) -> None:
    """Else the ledger would grow as long as the permission is missing."""
    deletes = PayloadDeletes(Bucket(a=PayloadError("S3 refuses s3:DeleteObject with AccessDenied", is_final=True)))
    deletes.add(URLS)
    with caplog.at_level(logging.WARNING):
        deletes.begin()
    assert not deletes.left
    assert "1 payload(s) on S3 cannot be deleted, and stay, such as 's3://bucket/a' (S3 refuses" in caplog.text


def test_while_one_delete_is_under_way_none_begins() -> None:
    """Those that come meanwhile go with the next."""
    bucket = Bucket()
    deletes = PayloadDeletes(bucket, Late())
    deletes.add(URLS[:1])
    deletes.begin()
    deletes.add(URLS[1:])
    deletes.begin()
    assert bucket.asked == []
    assert deletes.left == URLS
    assert deletes._last is not None
    deletes._last.result()
    assert deletes.left == URLS[1:]


def test_what_breaks_a_delete_is_raised_by_the_next() -> None:
    """Nothing is swallowed."""

    def broken(pointers: Sequence[Pointer]) -> Mapping[Pointer, PayloadError]:
        raise RuntimeError("a fault of ours")

    deletes = PayloadDeletes(broken)
    deletes.add(URLS)
    deletes.begin()
    assert deletes.left == URLS
    for _ in range(2):
        with pytest.raises(RuntimeError, match="a fault of ours"):
            deletes.begin()
        deletes.begin()


def test_names_are_bounded(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """The oldest go first, with a word. A query that deletes no payload keeps the others."""
    monkeypatch.setattr("sqs_fifo_spark.source.payload_deletes.MOST_LEFT", 2)
    deletes = PayloadDeletes(None)
    deletes.add(URLS)
    deletes.begin()
    assert deletes.left == URLS[1:]
    assert "1 payload(s) on S3 are not deleted any more, such as 's3://bucket/a'" in caplog.text
