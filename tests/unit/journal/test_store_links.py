"""Links to an object store: slow ones, cut ones, TLS with a private CA, a proxy, a wrong clock."""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import obstore
import pytest

from sqs_fifo_spark.journal import object_store
from sqs_fifo_spark.journal.object_store import ObjectStore
from sqs_fifo_spark.journal.store import put_until_seen
from tests.manual_clock import ManualClock
from tests.unit.aws.answering import make_authority
from tests.unit.aws.standins import S3, SHARE, s3_server
from tests.unit.journal.asking import line

DATA = bytes(range(256)) * 800
CHUNK = 4096
"""Bytes that a read takes at a time."""


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3]:
    """An S3, asked by a product for which obstore tries nothing again that it has begun to read."""
    monkeypatch.setattr(object_store, "RETRY_TIMEOUT", timedelta(seconds=0))
    monkeypatch.setattr(object_store, "READ_CHUNK", CHUNK)
    with s3_server() as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", server.url)
        yield server


# Slow links


def test_what_was_sealed_is_read_on_a_slower_link_whatever_its_size(s3: S3) -> None:
    """Law 6. A read goes on where it broke off, as long as something comes: here a fourth with each request."""
    store = ObjectStore("s3://b/j")
    s3.objects["/b/j/x"] = DATA
    s3.breaks = 3
    assert store.get("x") == DATA
    assert (s3.breaks, len(s3.seen), s3.seen.count("GET")) == (0, 4, 1), "what has come is not read again"
    s3.breaks = 3
    assert store.get_range("x", 1_000, len(DATA)) == DATA[1_000:]


def test_what_was_received_is_written_on_the_slowest_link_whatever_its_size(s3: S3) -> None:
    """Law 6. In one put, whose limit follows the size: it needs far longer than a small one may take."""
    with mock.patch.multiple(object_store, REQUEST_TIMEOUT_S=0.1, SLOWEST_LINK=len(DATA) / 60):
        s3.puts_take_s = 0.4
        assert ObjectStore("s3://b/j").put_if_absent("x", DATA)
    assert s3.seen == ["PUT"]
    assert s3.objects == {"/b/j/x": DATA}


def test_a_transfer_that_ends_for_its_time_says_so(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error has time, size and need of the transfer, and nothing of the bucket or its permissions."""
    monkeypatch.setattr(object_store, "REQUEST_TIMEOUT_S", 0.1)
    store = ObjectStore("s3://b/j")
    s3.objects["/b/j/x"] = DATA
    s3.is_silent = True

    def stop(read: Any, client: Any) -> None:
        read._data.write(DATA[: SHARE - len(read)])
        obstore.get(client, "x")

    with mock.patch.object(object_store._Read, "__call__", stop):
        part = line(lambda: store.get("x"))
    for said, what in (
        (part, rf"cannot read 'x' .*\(no answer within \d+ s, with {SHARE:,} bytes read\)\. Each .* 128 KiB/s"),
        (line(lambda: store.put_if_absent("y", b"12345")), r"write 'y' .*\(no answer within \d+ s for 5 bytes\)"),
        (line(lambda: store.get("x")), r"cannot read 'x' .*\(no answer within \d+ s\)"),
    ):
        assert re.search(what, said)
        assert "bucket" not in said
        assert "may read" not in said


def test_a_read_never_mixes_two_objects(s3: S3) -> None:
    """Dropped and put again by others while it is read: nothing of it is served."""
    s3.objects["/b/j/x"] = DATA
    s3.breaks, s3.on_break = 1, lambda: s3.objects.update({"/b/j/x": DATA[::-1]})
    line(lambda: ObjectStore("s3://b/j").get("x"))
    assert len(s3.seen) > 1


def test_an_empty_object_is_read_in_one_request(s3: S3) -> None:
    s3.objects["/b/j/empty"] = b""
    assert ObjectStore("s3://b/j").get("empty") == b""
    assert s3.seen == ["GET"]


def test_a_conflict_after_a_long_put_is_tried_again() -> None:
    """The time for that begins with the conflict, not with the put."""
    clock, answers = ManualClock(), [False, True]

    def create() -> bool:
        clock.advance(100)
        return answers.pop(0)

    assert put_until_seen(create, lambda: False, clock=clock, name="x", location="s3://b")


# TLS, proxies, clocks


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tls")


@pytest.fixture(scope="module")
def authority(home: Path) -> ssl.SSLContext:
    return make_authority(home)


@pytest.fixture
def tls(s3: S3, authority: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3]:
    for name in ("AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)
    with s3_server(authority) as server:
        server.objects["/b/j/x"] = b"1"
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", server.url)
        yield server


def _takes_root_certificates() -> bool:
    try:
        obstore.store.from_url("s3://b", client_options={"root_certificate": ""})
    except ValueError as error:
        return "Invalid key" not in str(error)
    return True


WAYS = ("AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "ca_bundle")


@pytest.mark.parametrize("way", [*WAYS, "SSL_CERT_FILE"])
def test_a_private_ca_is_trusted_for_the_journal_as_for_the_queue(
    tls: S3, home: Path, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever botocore finds it, and where obstore does. Planted, that it is not passed on is caught."""
    if way in WAYS and not _takes_root_certificates():
        pytest.skip("this obstore takes no certificate: its error names SSL_CERT_FILE")
    (tmp_path / "config").write_text(f"[default]\nca_bundle = {home / 'ca.pem'}\n")
    name, where = ("AWS_CONFIG_FILE", tmp_path / "config") if way == "ca_bundle" else (way, home / "ca.pem")
    monkeypatch.setenv(name, str(where))
    assert ObjectStore("s3://b/j").get("x") == b"1"
    if way in WAYS:
        with mock.patch.object(Path, "read_bytes", return_value=b""):
            assert "TLS" in line(lambda: ObjectStore("s3://b/j").get("x"))


def test_a_certificate_that_is_not_trusted_is_named(tls: S3) -> None:
    """Not the bucket; and where to put the CA."""
    told = "TLS: the certificate of the store, or of a proxy before it, is not accepted (UnknownIssuer)"
    assert "bucket" not in line(lambda: ObjectStore("s3://b/j").get("x"), told, "AWS_CA_BUNDLE", "SSL_CERT_FILE")


def test_a_missing_file_of_certificates_is_named(s3: S3, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Also where it is named."""
    monkeypatch.setenv("AWS_CA_BUNDLE", str(tmp_path / "none.pem"))
    told = f"the file of CA certificates '{tmp_path / 'none.pem'}' cannot be read (No such file"
    line(lambda: ObjectStore("s3://b/j"), told)


@pytest.mark.parametrize("text", ["no PEM", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"])
def test_a_certificate_that_obstore_cannot_read_keeps_nobody_from_a_store_that_needs_none(
    s3: S3, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str
) -> None:
    """One such in a system's whole bundle is enough, and botocore takes it."""
    (tmp_path / "bundle").write_text(text)
    monkeypatch.setenv("AWS_CA_BUNDLE", str(tmp_path / "bundle"))
    assert ObjectStore("s3://b/j").get("x") is None


def test_a_proxy_of_the_environment_is_used_and_a_dead_link_is_named(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for the queue: requests go to the proxy, those for the names in NO_PROXY do not."""
    for name in ("NO_PROXY", "no_proxy", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://s3.invalid")
    monkeypatch.setenv("HTTP_PROXY", s3.url)
    s3.objects["http://s3.invalid/b/j/x"] = b"1"
    assert ObjectStore("s3://b/j").get("x") == b"1"
    monkeypatch.setenv("NO_PROXY", "s3.invalid")
    assert "There is no connection. Check the network" in line(lambda: ObjectStore("s3://b/j").get("x"))


def test_a_wrong_clock_is_named_and_a_machine_that_paused_signs_anew(s3: S3) -> None:
    """S3 calls it a refusal, but no permission is missing."""
    store = ObjectStore("s3://b/j")
    s3.objects["/b/j/x"] = DATA
    skewed = (403, "RequestTimeTooSkewed")
    s3.answers = [skewed]
    assert store.get("x") == DATA
    s3.answers = [skewed] * 2
    said = line(lambda: store.get("x"))
    assert "The clock of this machine is wrong" in said
    assert "permission" not in said.partition("(")[0] + said.rpartition(")")[2]
