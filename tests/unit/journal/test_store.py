"""The contract of `Store`, on a directory and on moto's S3: whole objects, put-if-absent, lists that see puts."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sqs_fifo_spark.journal.file_store import FileStore
from sqs_fifo_spark.journal.location import open_store
from sqs_fifo_spark.journal.object_store import ObjectStore
from sqs_fifo_spark.journal.store import Store
from sqs_fifo_spark.source.journal_objects import Journal
from tests.unit.journal.asking import calls, line

pytestmark = pytest.mark.law("source-3")

_numbers = itertools.count(1)


@pytest.fixture
def s3(moto_s3: str, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Store]:
    """Open a location on moto's S3."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", moto_s3)
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
    """The second has no effect, and the name is free again."""
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


# Locations


def test_location_chooses_the_store(tmp_path: Path, s3: Callable[[str], Store]) -> None:
    """A path and a file:// URL are directories, percent signs undone; s3:// is an object store."""
    assert isinstance(open_store(str(tmp_path)), FileStore)
    assert open_store(f"file://{tmp_path}/a%20b").location == f"{tmp_path}/a b"
    assert isinstance(s3("s3://stores/x"), ObjectStore)


# A directory


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o027, 0o077])
@pytest.mark.parametrize("is_new", [True, False])
def test_directories_and_files_are_the_owners_alone(tmp_path: Path, umask: int, is_new: bool) -> None:
    """Whatever the umask allows. A directory that is there keeps its mode, which is its maker's choice."""
    root = tmp_path / "made" / "journal"
    if not is_new:
        root.mkdir(parents=True)
        root.chmod(0o755)
    previous = os.umask(umask)
    try:
        FileStore(root).put_if_absent("epochs/1/x", b"body")
    finally:
        os.umask(previous)
    modes = {str(path.relative_to(root.parent)): path.stat().st_mode & 0o7777 for path in root.parent.rglob("*")}
    assert modes == {
        "journal": 0o700 if is_new else 0o755,
        "journal/epochs": 0o700,
        "journal/epochs/1": 0o700,
        "journal/epochs/1/x": 0o600,
    }


class Killed(BaseException):
    pass


@contextmanager
def killed_between_draft_and_link() -> Iterator[None]:
    """Let a put leave its draft behind."""

    def kill(*arguments: Any, **named: Any) -> None:
        raise Killed

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "link", kill)
        patched.setattr(Path, "unlink", kill)
        with pytest.raises(Killed):
            yield


def test_a_crash_between_draft_and_link_leaves_no_object(tmp_path: Path) -> None:
    """Bytes without a name are nothing: no list shows them, and the name is free."""
    store = FileStore(tmp_path)
    with killed_between_draft_and_link():
        store.put_if_absent("epochs/1/x", b"body")
    assert len(list((tmp_path / "epochs" / "1").iterdir())) == 1
    assert store.list("epochs") == []
    assert store.get("epochs/1/x") is None
    assert store.put_if_absent("epochs/1/x", b"again")
    store.delete(["epochs/1/x"])
    assert not (tmp_path / "epochs" / "1").exists(), "the draft of a dead writer goes with its epoch's folder"


def test_a_draft_in_a_folder_that_was_made_anew_goes_with_the_next_delete(tmp_path: Path) -> None:
    """A writer that stood still is killed in mid-write after all of its epoch was dropped: bodies must not stay."""
    store = FileStore(tmp_path)
    for name in ("epochs/1/x", "epochs/2/x", "epochs/3/x"):
        store.put_if_absent(name, b"body")
    store.delete(["epochs/1/x"])
    for name in ("epochs/1/x", "epochs/4/x", "other/x"):
        with killed_between_draft_and_link():
            store.put_if_absent(name, b"body")
    store.delete(["epochs/3/x"])
    assert sorted(path.name for path in (tmp_path / "epochs").iterdir()) == ["2", "4"]
    assert store.get("epochs/2/x") == b"body"
    assert list((tmp_path / "other").iterdir()), "what is beside a journal's folders is not looked at"


def test_a_location_that_is_a_file_is_one_line(tmp_path: Path) -> None:
    """Every call says so, and what the place must be like."""
    (tmp_path / "file").write_text("x")
    for call in calls(FileStore(tmp_path / "file")).values():
        line(call, "must be writable by driver and executors")


# S3


def test_a_missing_bucket_is_one_line(s3: Callable[[str], Store]) -> None:
    """For every call, with the location and what to check."""
    asked = calls(s3("s3://no-such-bucket/journal"))
    for name in ("put", "list"):
        line(asked[name], "Check that the bucket exists", "s3://no-such-bucket/journal")
