"""The forms of a pointer to S3, and what only looks like one."""

from __future__ import annotations

import json

import pytest

from sqs_fifo_spark.payloads.pointer import SIZE_ATTRIBUTES, Pointer, body_of, from_url, pointer_in

TODAY = "software.amazon.payloadoffloading.PayloadS3Pointer"
OLDER = "com.amazon.sqs.javamessaging.MessageS3Pointer"
PLACE = {"s3BucketName": "bucket", "s3Key": "a key/ü"}


@pytest.mark.parametrize("name", SIZE_ATTRIBUTES)
@pytest.mark.parametrize("kind", [TODAY, OLDER])
@pytest.mark.parametrize("separators", [None, (",", ":")], ids=["Python", "Java"])
def test_each_form_of_awss_clients_is_a_pointer(name: str, kind: str, separators: tuple[str, str] | None) -> None:
    """With both names and both classes, also mixed, and however the JSON is spaced."""
    found = pointer_in(json.dumps([kind, PLACE], separators=separators), {name: "300000", "other": None})
    assert found == Pointer("bucket", "a key/ü", 300_000)


@pytest.mark.parametrize(("stated", "size"), [("7", 7), ("-7", 0), ("1e3", 0), ("", 0), (None, 0), ("9" * 40, 0)])
def test_a_size_that_is_no_number_of_bytes_counts_as_none(stated: str | None, size: int) -> None:
    """The message is a pointer all the same."""
    assert pointer_in(json.dumps([TODAY, PLACE]), {SIZE_ATTRIBUTES[0]: stated}) == Pointer("bucket", "a key/ü", size)


@pytest.mark.parametrize(
    "body",
    [
        *("", "[", "[]", "{}", "null", '"text"', "[1, 2]", json.dumps(PLACE), json.dumps([TODAY])),
        *(json.dumps([TODAY, None]), json.dumps([TODAY, [PLACE]]), json.dumps([TODAY, PLACE, 1])),
        *(json.dumps(["some.other.Class", PLACE]), json.dumps([TODAY, {**PLACE, "more": 1}])),
        *(json.dumps([TODAY, {"s3BucketName": "bucket"}]), json.dumps([TODAY, {**PLACE, "s3Key": 7}])),
        *(json.dumps([TODAY, {**PLACE, "s3Key": ""}]), json.dumps([TODAY, {**PLACE, "s3BucketName": "a/b"}])),
        json.dumps([TODAY, {**PLACE, "s3Key": "\ud800"}]),
        json.dumps([TODAY, {**PLACE, "s3Key": "ü" * 513}]),
        json.dumps([TODAY, {**PLACE, "s3BucketName": "b" * 256}]),
    ],
)
def test_any_other_body_stays_as_it_is(body: str) -> None:
    """Even with the attribute."""
    assert pointer_in(body, {SIZE_ATTRIBUTES[0]: "7"}) is None


def test_the_longest_names_that_s3_takes_are_a_pointer() -> None:
    """Longer ones are a body: it would be shown, and perhaps all of it, where the payload cannot be read."""
    bucket, key = "b" * 255, "k" * 1024
    body = json.dumps([TODAY, {"s3BucketName": bucket, "s3Key": key}])
    assert pointer_in(body, {SIZE_ATTRIBUTES[0]: "7"}) == Pointer(bucket, key, 7)


def test_without_the_attribute_an_array_is_a_body() -> None:
    assert pointer_in(json.dumps([TODAY, PLACE]), {"size": "7"}) is None


@pytest.mark.parametrize("pointer", [Pointer("bucket", "key"), Pointer("bucket", "/a//b/ü?#"), Pointer("bucket", "")])
def test_a_url_leads_back_to_its_pointer(pointer: Pointer) -> None:
    assert from_url(pointer.url) == from_url(pointer.url.replace("s3:", "s3a:")) == pointer


@pytest.mark.parametrize("url", ["", "bucket/key", "gs://bucket/key", "https://bucket/key"])
def test_another_url_leads_nowhere(url: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        from_url(url or " ")


def test_our_own_pointer_is_one() -> None:
    assert pointer_in(body_of(Pointer("b", "k")), {SIZE_ATTRIBUTES[0]: "3"}) == Pointer("b", "k", 3)
