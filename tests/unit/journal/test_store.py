"""The contract of `Store`, on a directory and on moto's S3: whole objects, put-if-absent, lists that see puts."""

from __future__ import annotations

import errno
import itertools
import os
import stat
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest import mock

import boto3
import pytest

from sqs_fifo_spark.clock import ManualClock
from sqs_fifo_spark.errors import JournalUnavailableError
from sqs_fifo_spark.journal.file_store import FileStore
from sqs_fifo_spark.journal.location import open_store
from sqs_fifo_spark.journal.object_store import ObjectStore
from sqs_fifo_spark.journal.store import Store
from sqs_fifo_spark.source.journal import Journal

pytestmark = pytest.mark.law("source-3")

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def s3_endpoint() -> Iterator[str]:
    """moto's S3 server, with one bucket. Its look and its put are made one step, as they are in S3."""
    from moto.s3.responses import S3Response
    from moto.server import ThreadedMotoServer

    lock, put_object = threading.Lock(), S3Response.put_object

    def put_alone(response: S3Response) -> Any:
        with lock:
            return put_object(response)

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    client = boto3.client("s3", endpoint_url=url)
    client.create_bucket(Bucket="stores")
    client.close()
    with mock.patch.object(S3Response, "put_object", put_alone):
        yield url
    server.stop()


@pytest.fixture
def s3(s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Store]:
    """Open a location on moto's S3."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", s3_endpoint)
    return open_store


@pytest.fixture(params=["file", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """A fresh, empty store of each kind."""
    if request.param == "file":
        return open_store(str(tmp_path / "journal"))
    opened: Store = request.getfixturevalue("s3")(f"s3://stores/{next(_numbers)}")
    return opened


# The contract


def test_what_was_put_is_got(store: Store) -> None:
    """All bytes, also none and many."""
    for name, data in (("a/empty", b""), ("a/one", b"\x00"), ("b/large", bytes(range(256)) * 20_000)):
        assert store.put_if_absent(name, data)
        assert store.get(name) == data


def test_missing_object_is_none(store: Store) -> None:
    """In a place that was never written to as well."""
    assert store.get("nothing/here") is None
    assert store.get_range("nothing/here", 0, 10) is None
    assert store.list("nothing") == []


def test_second_put_is_refused_and_changes_nothing(store: Store) -> None:
    """The first writer wins, also with the same bytes."""
    assert store.put_if_absent("a/x", b"first")
    assert not store.put_if_absent("a/x", b"second")
    assert not store.put_if_absent("a/x", b"first")
    assert store.get("a/x") == b"first"


def test_racing_puts_have_exactly_one_winner(store: Store) -> None:
    """Eight threads at once: one True, and its bytes are the content."""
    for round_number in range(5):
        barrier = threading.Barrier(8)

        def put(writer: int, name: str = f"race/{round_number}", barrier: threading.Barrier = barrier) -> bool:
            barrier.wait()
            return store.put_if_absent(name, str(writer).encode() * 1000)

        with ThreadPoolExecutor(8) as threads:
            won = list(threads.map(put, range(8)))
        assert won.count(True) == 1
        assert store.get(f"race/{round_number}") == str(won.index(True)).encode() * 1000


def test_list_sees_every_put_below_its_folder_alone(store: Store) -> None:
    """Sorted, with whole names, at any depth; neighbours with the same beginning are not in it."""
    names = ["epochs/2/0000-000000", "epochs/1/0001-000000", "epochs/1/0000-000000"]
    for name in [*names, "epochs2/x", "ledger/1.json"]:
        store.put_if_absent(name, b"x")
        assert name in store.list(name.partition("/")[0])
    assert store.list("epochs") == sorted(names)
    assert store.list("epochs/1") == sorted(names[1:])


def test_deleting_twice_is_deleting_once(store: Store) -> None:
    """What is gone is gone, and a deleted name is free again."""
    store.put_if_absent("a/x", b"1")
    store.put_if_absent("a/y", b"2")
    store.delete(["a/x", "a/never"])
    store.delete(["a/x"])
    store.delete([])
    assert store.get("a/x") is None
    assert store.list("a") == ["a/y"]
    assert store.put_if_absent("a/x", b"3")


def test_ranges_end_with_the_object(store: Store) -> None:
    """Fewer bytes at the end, never an error for asking past it."""
    store.put_if_absent("a/x", b"0123456789")
    assert store.get_range("a/x", 0, 4) == b"0123"
    assert store.get_range("a/x", 3, 4) == b"3456"
    assert store.get_range("a/x", 8, 100) == b"89"
    assert store.get_range("a/x", 0, 1 << 16) == b"0123456789"
    assert store.get_range("a/x", 10, 1) == b""
    store.put_if_absent("a/empty", b"")
    assert store.get_range("a/empty", 0, 1 << 16) == b""


def test_start_up_check_passes_and_leaves_nothing(store: Store) -> None:
    """Both kinds truly put only what is absent."""
    Journal.check_store(store)
    assert store.list("check") == []


def test_objects_survive_another_opening(store: Store) -> None:
    """A second process sees what the first one wrote."""
    store.put_if_absent("a/x", b"1")
    assert open_store(store.location).get("a/x") == b"1"


# Locations


def test_location_chooses_the_store(tmp_path: Path, s3: Callable[[str], Store]) -> None:
    """A path and a file:// URL are directories, percent signs undone; s3:// is an object store."""
    assert isinstance(open_store(str(tmp_path)), FileStore)
    assert open_store(f"file://{tmp_path}/a%20b").location == f"{tmp_path}/a b"
    assert isinstance(s3("s3://stores/x"), ObjectStore)


# A directory


def test_directories_and_files_are_the_owners_alone(tmp_path: Path) -> None:
    """0700 and 0600, whatever the umask allows."""
    previous = os.umask(0)
    try:
        FileStore(tmp_path / "made" / "journal").put_if_absent("epochs/1/x", b"body")
    finally:
        os.umask(previous)
    modes = {
        str(path.relative_to(tmp_path)): stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "made").rglob("*")
    }
    assert modes == {"made/journal": 0o700, "made/journal/epochs": 0o700, "made/journal/epochs/1": 0o700} | {
        "made/journal/epochs/1/x": 0o600
    }


class Killed(BaseException):
    pass


def killed(*arguments: Any, **named: Any) -> None:
    raise Killed


def test_a_crash_between_draft_and_link_leaves_no_object(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes without a name are nothing: no list shows them, and the name is free."""
    store = FileStore(tmp_path)

    with monkeypatch.context() as patched:
        patched.setattr(os, "link", killed)
        patched.setattr(Path, "unlink", killed)  # the draft stays, as after a kill
        with pytest.raises(Killed):
            store.put_if_absent("epochs/1/x", b"body")
    assert len(list((tmp_path / "epochs" / "1").iterdir())) == 1
    assert store.list("epochs") == []
    assert store.get("epochs/1/x") is None
    assert store.put_if_absent("epochs/1/x", b"again")
    store.delete(["epochs/1/x"])
    assert not (tmp_path / "epochs" / "1").exists(), "the draft of a dead writer goes with its epoch's folder"


def test_a_draft_in_a_folder_that_was_made_anew_goes_with_the_next_delete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer that stood still is killed in mid-write after all of its epoch was dropped: bodies must not stay."""
    store = FileStore(tmp_path)
    for name in ("epochs/1/x", "epochs/2/x", "epochs/3/x"):
        store.put_if_absent(name, b"body")
    store.delete(["epochs/1/x"])
    for name in ("epochs/1/x", "epochs/4/x", "other/x"):
        with monkeypatch.context() as patched:
            patched.setattr(os, "link", killed)
            patched.setattr(Path, "unlink", killed)
            with pytest.raises(Killed):
                store.put_if_absent(name, b"body")
    store.delete(["epochs/3/x"])
    assert sorted(path.name for path in (tmp_path / "epochs").iterdir()) == ["2", "4"]
    assert store.get("epochs/2/x") == b"body"
    assert list((tmp_path / "other").iterdir()), "what is beside a journal's folders is not looked at"


def test_a_draft_that_goes_under_a_living_writer_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The put succeeds, and what it leaves is one whole object."""
    store = FileStore(tmp_path, ManualClock())
    store.put_if_absent("epochs/2/x", b"1")
    link = os.link

    def link_after_a_delete(*arguments: Any) -> None:
        monkeypatch.setattr(os, "link", link)
        store.delete(["epochs/2/x"])
        assert not (tmp_path / "epochs" / "1").exists()
        link(*arguments)

    monkeypatch.setattr(os, "link", link_after_a_delete)
    assert store.put_if_absent("epochs/1/x", b"body")
    assert store.get("epochs/1/x") == b"body"
    assert [path.name for path in (tmp_path / "epochs" / "1").iterdir()] == ["x"]


@pytest.mark.parametrize("call", ["fsync", "link", "open"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EDQUOT])
def test_a_full_disk_is_one_line_and_no_object(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, code: int
) -> None:
    """Whichever call fails: no object, no draft, and the reason in the system's words."""
    store = FileStore(tmp_path)
    store.put_if_absent("epochs/1/first", b"x")

    def fail(*arguments: Any) -> int:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patched:
        patched.setattr(os, call, fail)
        with pytest.raises(JournalUnavailableError, match=os.strerror(code)) as told:
            store.put_if_absent("epochs/1/x", b"body")
    assert "\n" not in str(told.value)
    assert store.list("epochs") == ["epochs/1/first"]
    assert [path.name for path in (tmp_path / "epochs" / "1").iterdir()] == ["first"]


def test_a_location_that_is_a_file_is_one_line(tmp_path: Path) -> None:
    """Every call says so, and what the place must be like."""
    (tmp_path / "file").write_text("x")
    store = FileStore(tmp_path / "file")
    for call in (
        lambda: store.put_if_absent("a/x", b"1"),
        lambda: store.get("a/x"),
        lambda: store.list("a"),
        lambda: store.delete(["a/x"]),
    ):
        with pytest.raises(JournalUnavailableError, match="must be writable by driver and executors") as told:
            call()
        assert "\n" not in str(told.value)


def test_permission_denied_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The path and the system's reason; simulated, because the system denies nothing to root."""

    def deny(*arguments: Any, **named: Any) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(Path, "mkdir", deny)
    with pytest.raises(JournalUnavailableError, match="Permission denied") as told:
        FileStore(tmp_path / "journal").put_if_absent("a/x", b"1")
    assert "\n" not in str(told.value)


# S3


def test_a_missing_bucket_is_one_line(s3: Callable[[str], Store]) -> None:
    """For every call, with the location and what to check."""
    store = s3("s3://no-such-bucket/journal")
    for call in (lambda: store.put_if_absent("a/x", b"1"), lambda: store.list("a")):
        with pytest.raises(JournalUnavailableError, match="Check that the bucket exists") as told:
            call()
        assert "\n" not in str(told.value)
        assert "s3://no-such-bucket/journal" in str(told.value)


def test_prefixes_of_one_bucket_are_apart(s3: Callable[[str], Store]) -> None:
    """Two journals in one bucket see nothing of each other."""
    first, second = s3("s3://stores/apart/1"), s3("s3://stores/apart/2")
    assert first.put_if_absent("a/x", b"1")
    assert second.put_if_absent("a/x", b"2")
    assert (first.get("a/x"), second.get("a/x")) == (b"1", b"2")
    assert first.list("a") == ["a/x"]
