"""Faults of the journal's store: the query goes on, or stops with one clear line and nothing lost."""

from __future__ import annotations

import errno
import http.client
import itertools
import os
import socket
import stat
import struct
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from sqs_fifo_spark.errors import JournalUnavailableError
from sqs_fifo_spark.journal.file_store import FileStore
from sqs_fifo_spark.journal.location import open_store
from sqs_fifo_spark.journal.object_store import OPEN_EVERY_S, ObjectStore
from sqs_fifo_spark.journal.store import PAUSES_S, Store
from sqs_fifo_spark.source.journal_objects import Journal
from sqs_fifo_spark.source.segment import Chain, Head, Origin, Segment
from tests.helpers import small_disk
from tests.manual_clock import ManualClock
from tests.simulation.spark import Query
from tests.simulation.world import LAPSE_S
from tests.unit.aws.answering import serving
from tests.unit.aws.standins import Handler, access_key
from tests.unit.by_hand import World
from tests.unit.journal.asking import calls, line
from tests.unit.source.test_hostile_journal import MESSAGES, ROWS

pytestmark = pytest.mark.law("source-1", "source-3")

ARN = "arn:aws:sqs:us-east-1:000000000000:q.fifo"
_numbers = itertools.count(1)


def segment(journal: Journal, writer: str = "w") -> Segment:
    origin = Origin(journal.id, 1, 1, 0, writer, 0, "")
    receipts, sizes = tuple(each.receipt for each in MESSAGES), tuple(each.size for each in MESSAGES)
    return Segment(Head(origin, receipts, chain=Chain(is_last=True), sizes=sizes), ROWS)


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The folders that are made durable, as it is asked for."""
    found: list[Path] = []
    monkeypatch.setattr("sqs_fifo_spark.journal.file_store._sync_folder", found.append)
    return found


def is_of_folder(descriptor: int) -> bool:
    return stat.S_ISDIR(os.fstat(descriptor).st_mode)


@contextmanager
def failing(
    call: str, code: int, times: int = 1, *, after: bool = False, is_hit: Callable[..., bool] = lambda *given: True
) -> Iterator[None]:
    """Fail so many calls of this function of `os`, of those that `is_hit`, before or after their effect: all of them
    must come.
    """
    left, real = times, getattr(os, call)

    def fail(*arguments: Any, **named: Any) -> Any:
        nonlocal left
        if not left or not is_hit(*arguments):
            return real(*arguments, **named)
        left -= 1
        if after:
            real(*arguments, **named)
        raise OSError(code, os.strerror(code))

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, call, fail)
        yield
    assert left == 0


# A directory


def test_a_really_full_disk_is_told_and_goes_on_once_there_is_room(tmp_path: Path) -> None:
    """No object, no draft; everything that was there is served, deleting works, and so does the next put."""
    with small_disk(tmp_path / "disk") as disk:
        store = FileStore(disk / "journal")
        assert store.put_if_absent("epochs/1/first", b"x" * 100_000)
        said = "No space left on device. The location must be writable"
        line(lambda: store.put_if_absent("epochs/1/second", b"y" * 500_000), store.location, said)
        assert store.list("epochs") == ["epochs/1/first"]
        assert len(list((disk / "journal" / "epochs" / "1").iterdir())) == 1, "a draft takes the room"
        assert store.get("epochs/1/first") == b"x" * 100_000
        store.delete(["epochs/1/first"])
        assert store.put_if_absent("epochs/1/second", b"y" * 200_000)


def test_an_executor_makes_no_folder_where_the_journal_is_not(tmp_path: Path) -> None:
    """Its file system is unmounted: nothing is sealed in the bare mount point, where nobody would find it."""
    with small_disk(tmp_path / "disk") as disk:
        made = Journal.create(FileStore(disk), ARN)
        joined = Journal.join(FileStore(disk), made.id)
        joined.seal(segment(made), 0)
    assert not list((tmp_path / "disk").iterdir())
    said = "; the file system that held it may not be mounted. The location must"
    line(lambda: joined.seal(segment(made), 0), str(tmp_path / "disk"), said)
    assert not list((tmp_path / "disk").iterdir())
    name = made.segment_name(1, 0, 0)
    for look in (lambda: joined.read(name), lambda: joined.head(name), joined.ledger, joined.objects):
        line(look, str(tmp_path / "disk"), "may not be mounted")


def test_an_executor_never_makes_the_root(tmp_path: Path) -> None:
    """The directory is gone, or was never shared."""
    made = Journal.create(FileStore(tmp_path / "journal"), ARN)
    joined = Journal.join(FileStore(tmp_path / "journal"), made.id)
    (tmp_path / "journal").rename(tmp_path / "elsewhere")
    line(lambda: joined.seal(segment(made), 0), str(tmp_path / "journal"))
    assert not (tmp_path / "journal").exists()


def test_the_names_of_folders_that_others_made_are_made_durable_too(tmp_path: Path, synced: list[Path]) -> None:
    """Whoever made a folder may have died before its name was on disk; what is put into it must survive."""
    (tmp_path / "journal/epochs/1").mkdir(parents=True)
    assert FileStore(tmp_path / "journal").put_if_absent("epochs/1/x", b"1")
    assert synced == [tmp_path / "journal", tmp_path / "journal/epochs", tmp_path / "journal/epochs/1"]
    synced.clear()
    assert FileStore(tmp_path / "other").put_if_absent("epochs/1/x", b"1")
    assert synced[0] == tmp_path, "the root was made, and its name too must last"


def test_what_was_got_is_durable_though_its_writer_died_before_it_was(tmp_path: Path, synced: list[Path]) -> None:
    """A task serves what another attempt has sealed; were the name lost with the power, it would be received anew."""
    store = FileStore(tmp_path / "journal")
    assert store.get("epochs/1/x") is None
    assert synced == [], "to find nothing costs nothing"
    (tmp_path / "journal/epochs/1").mkdir(parents=True)
    (tmp_path / "journal/epochs/1/x").write_bytes(b"linked, and no more")
    assert store.get("epochs/1/x") == b"linked, and no more"
    assert synced == [tmp_path / "journal", tmp_path / "journal/epochs", tmp_path / "journal/epochs/1"]
    synced.clear()
    assert store.get("epochs/1/x") == b"linked, and no more"
    assert synced == [tmp_path / "journal/epochs/1"], "so soon, another file's time may be the same"


def test_what_is_durable_is_not_made_so_again(tmp_path: Path, synced: list[Path]) -> None:
    """A replay reads thousands of objects of one folder; another object there makes it begin anew."""
    folder = tmp_path / "sent/1"
    folder.mkdir(parents=True)
    (folder / "x").write_bytes(b"1")
    long_ago = folder.stat().st_mtime - 60
    os.utime(folder, (long_ago, long_ago))
    store = FileStore(tmp_path)
    for _ in range(3):
        assert store.get("sent/1/x") == b"1"
    assert synced.count(folder) == 1
    (folder / "y").write_bytes(b"2")
    assert store.get("sent/1/y") == b"2"
    assert synced.count(folder) == 2


def test_a_folder_that_was_removed_and_made_anew_is_not_taken_for_durable(tmp_path: Path, synced: list[Path]) -> None:
    """Its name in the folder above it is another one, of somebody who may have died."""
    store = FileStore(tmp_path)
    store.put_if_absent("sent/1/x", b"1")
    store.delete(["sent/1/x"])
    (tmp_path / "sent/1").mkdir()
    (tmp_path / "sent/1/y").write_bytes(b"2")
    synced.clear()
    assert store.get("sent/1/y") == b"2"
    assert tmp_path / "sent" in synced


def test_a_delete_that_empties_no_folder_looks_into_no_other(tmp_path: Path) -> None:
    """A sink's task merges its objects while others write to older folders, which may have nothing but drafts yet."""
    store = FileStore(tmp_path)
    for name in ("sent/2/x", "sent/2/y"):
        store.put_if_absent(name, b"1")
    (tmp_path / "sent/1").mkdir()
    (tmp_path / "sent/1/.draft").touch()
    store.delete(["sent/2/x"])
    assert (tmp_path / "sent/1/.draft").exists()
    store.delete(["sent/2/y"])
    assert not (tmp_path / "sent/1").exists()


def test_what_cannot_be_made_durable_is_not_got(tmp_path: Path) -> None:
    """Nothing of it may be served."""
    store = FileStore(tmp_path, ManualClock())
    store.put_if_absent("a/x", b"1")
    with failing("fsync", errno.EIO):
        line(lambda: store.get("a/x"), store.location, os.strerror(errno.EIO))
    assert store.get_range("a/x", 0, 1) == b"1"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to be root, to become somebody else")
def test_a_lost_permission_is_told(tmp_path: Path) -> None:
    """As another user, who may not even look: an object that cannot be read is not taken for one that is not there."""
    store = FileStore(tmp_path / "journal")
    store.put_if_absent("a/x", b"1")
    # Nobody can reach into the directory that pytest made, so in a copy of its own below a public one.
    tmp_path.chmod(0o755)
    for parent in tmp_path.parents[:2]:
        parent.chmod(0o755)
    os.seteuid(65534)
    try:
        for call in calls(store).values():
            line(call, store.location, "Permission denied")
    finally:
        os.seteuid(0)
    assert store.get("a/x") == b"1"


@pytest.mark.parametrize("call", ["open", "fsync", "link"])
@pytest.mark.parametrize("code", [errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EBUSY, errno.EAGAIN])
def test_what_passes_by_itself_is_tried_again(tmp_path: Path, call: str, code: int) -> None:
    """A put that failed twice is written a third time, whole, from its beginning."""
    store = FileStore(tmp_path, ManualClock())
    with failing(call, code, 2, is_hit=lambda *given: call != "fsync" or not is_of_folder(given[0])):
        assert store.put_if_absent("a/x", b"body")
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["x"]
    assert store.get("a/x") == b"body"


@pytest.mark.parametrize("call", ["open", "fsync", "link"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EMLINK, errno.EIO])
def test_what_does_not_pass_is_told_and_leaves_nothing(tmp_path: Path, call: str, code: int) -> None:
    """No object, no draft. At once, as a task that waits on a full disk holds its core for nothing; what might pass,
    within a second.
    """
    clock = ManualClock()
    store = FileStore(tmp_path, clock)
    store.put_if_absent("a/first", b"x")
    before, may_pass = clock.monotonic(), code == errno.EIO
    with failing(call, code, 1 + len(PAUSES_S) if may_pass else 1):
        line(lambda: store.put_if_absent("a/x", b"body"), store.location, os.strerror(code))
    assert 0 < clock.monotonic() - before < 1 if may_pass else clock.monotonic() == before
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["first"]
    assert store.list("a") == ["a/first"]


def acted_upon(root: Path, code: int) -> list[str]:
    """Let the fsync of a folder fail once, after a put's link; return what is taken for durable afterwards."""
    clock = ManualClock()
    store = FileStore(root, clock)
    store.put_if_absent("a/w", b"1")
    calls: dict[str, Callable[[FileStore], object]] = {
        "put": lambda store: store.put_if_absent("a/x", b"1"),
        "put of another": lambda store: store.put_if_absent("a/y", b"1"),
        "get": lambda store: store.get("a/x"),
    }
    with failing("fsync", code, is_hit=is_of_folder):
        found = ["first put"] if does(calls["put"], store) else []
    for which, each in (("", store), (", in another process", FileStore(root, clock))):
        found += [f"{name}{which}" for name, call in calls.items() if does(call, each)]
    assert (root / "a/x").exists()
    assert all(not name.startswith("a/.") for name in store.list("a"))
    return found


def does(call: Callable[[FileStore], object], store: FileStore) -> bool:
    """Return whether there is an answer; what there is instead says what to do."""
    try:
        call(store)
    except JournalUnavailableError as error:
        return f"remove '{store.location}/a/.doubtful'" not in str(error)
    return True


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EAGAIN])
def test_a_name_whose_folder_failed_to_be_written_is_acted_upon_by_nobody(tmp_path: Path, code: int) -> None:
    """Linux tells of that once: the next fsync succeeds, and a delete from the queue would follow. [law 1]"""
    assert acted_upon(tmp_path, code) == []
    (tmp_path / "a/.doubtful").unlink()  # as an operator does, who has mounted it anew
    assert FileStore(tmp_path).get("a/x") == b"1"


def test_a_doubt_about_the_root_s_own_name_stands_in_the_root(tmp_path: Path) -> None:
    """Nothing is left in a folder that is somebody else's."""
    store = FileStore(tmp_path / "journal")
    with failing("fsync", errno.EIO):
        line(lambda: store.put_if_absent("x", b"1"), store.location)
    assert [path.name for path in tmp_path.iterdir()] == ["journal"]
    line(lambda: FileStore(tmp_path / "journal").put_if_absent("x", b"1"), store.location)


FOLDERS = ("drivers", "ledger", "skipped", "users")


def drafts_left(root: Path) -> set[str]:
    """Return which drafts of writers that died, an hour ago and just now, are there after a driver's start."""
    journal = Journal.create(FileStore(root), ARN)
    an_hour_ago = root.stat().st_mtime - 3_600
    for folder in FOLDERS:
        (root / folder).mkdir(exist_ok=True)
        for name in ("old", "new"):
            is_users = folder == "users"
            draft = root / folder / f".{'foreign' if is_users else name}.{uuid.uuid4().hex}"
            draft.touch()
            if name == "old":
                os.utime(draft, (an_hour_ago, an_hour_ago))
    for name in (".a user's own", f".foreign.{uuid.uuid4().hex}", f".journal.json.{uuid.uuid4().hex}"):
        (root / name).touch()
        os.utime(root / name, (an_hour_ago, an_hour_ago))
    Journal.check_store(FileStore(root))
    assert Journal.find(FileStore(root), ARN) is not None
    assert journal.store.list("drivers") == []
    return {path.name.partition(".")[2].partition(".")[0] for path in root.rglob(".*")}


def test_what_killed_writers_left_in_folders_that_are_never_empty_goes(tmp_path: Path) -> None:
    """Not a draft that may still be written, nor what is no draft of the journal's."""
    assert drafts_left(tmp_path) == {"new", "a user's own", "foreign"}


def test_a_draft_that_goes_while_it_is_looked_at_keeps_no_other(tmp_path: Path) -> None:
    """Its writer has just linked it, as a link to nowhere stands for here."""
    (tmp_path / "drivers").mkdir()
    (tmp_path / "drivers" / f".fresh.{uuid.uuid4().hex}").symlink_to(tmp_path / "gone")
    assert "old" not in drafts_left(tmp_path)


@pytest.mark.parametrize(("step", "gone"), [("open", "folder"), ("link", "draft"), ("link", "all, by a delete")])
def test_a_put_under_which_its_draft_or_folder_goes_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, gone: str
) -> None:
    """An empty folder of an epoch may be removed, and a writer that stood still is taken for dead: one whole object is
    left.
    """
    store, real, folder = FileStore(tmp_path, ManualClock()), getattr(os, step), tmp_path / "epochs/1"
    store.put_if_absent("epochs/2/x", b"1")

    def remove_first(path: Any, *arguments: Any) -> Any:
        if "/.x." in str(path):
            monkeypatch.setattr(os, step, real)
            if gone == "draft":
                Path(path).unlink()
            elif gone == "folder":
                folder.rmdir()
            else:
                store.delete(["epochs/2/x"])
                assert not folder.exists()
        return real(path, *arguments)

    monkeypatch.setattr(os, step, remove_first)
    assert store.put_if_absent("epochs/1/x", b"body")
    assert store.get("epochs/1/x") == b"body"
    assert [path.name for path in folder.iterdir()] == ["x"]


def test_a_seal_whose_answer_was_lost_is_recognised_as_own(tmp_path: Path) -> None:
    """The link was made and its answer lost, as on NFS: the second try finds the name taken, by itself."""
    journal = Journal.create(FileStore(tmp_path, ManualClock()), ARN)
    with failing("link", errno.EIO, after=True):
        sealed = journal.seal(segment(journal), 0)
    assert sealed.head.origin.writer == "w"
    assert sealed.rows.equals(ROWS)


def test_a_journal_removed_while_the_query_runs_stops_it(tmp_path: Path) -> None:
    """The driver misses its own claim, and says what becomes of the messages."""
    store = FileStore(tmp_path / "journal")
    journal = Journal.create(store, ARN)
    number = journal.claim({})
    subprocess.run(["rm", "-r", tmp_path / "journal"], check=True)
    assert line(lambda: journal.require_claim(number)) == (
        f"the journal at '{tmp_path / 'journal'}' was removed while the query ran, so this query stops. With "
        "deleteAfter=commit, messages that are not committed are still in the queue. With deleteAfter=journal, the "
        "journal had the only copy of them."
    )


# The whole protocol


@pytest.mark.slow
@pytest.mark.parametrize("elapsed_s", [0, LAPSE_S])
@pytest.mark.parametrize("kind", ["get", "list", "put", "drop"])
def test_a_store_that_fails_at_any_single_call_loses_and_doubles_nothing(
    make_world: Callable[..., World], kind: str, elapsed_s: float
) -> None:
    """The query stops with the store's line and nothing uncommitted deleted; started again it drains, each once."""
    stopped = 0
    for at in itertools.count(1):
        world = make_world(numPartitions="2", maxMessagesPerTrigger="6")
        world.send("a1", "a2", "b1", "a3", "c1", "b2", "d1", "d2")
        left = at

        def fail(event: str, world: World = world) -> None:
            nonlocal left
            if event.startswith(f"before {kind} "):
                left -= 1
                if left == 0:
                    raise JournalUnavailableError("cannot do it")

        world.on_step = fail
        try:
            Query(world).drain()
        except JournalUnavailableError:
            stopped += 1
            committed = {row.body for batch in world.committed for rows in world.sink[batch].values() for row in rows}
            assert set(world.deleted()) <= committed
        world.on_step = lambda event: None
        if left > 0:
            break
        world.die(down_s=elapsed_s)
        Query(world).resume().drain()
        world.audit()
    assert stopped > 3


# S3


class _FaultyS3:
    """Stands before moto's S3 and does to each request what `faults` says next; afterwards it passes all on."""

    def __init__(self) -> None:
        self.faults: list[str] = []
        self.seen: list[str] = []
        self.refused: dict[str, tuple[int, str]] = {}
        """Access keys that are not taken any more, with status and code."""


def _faulty_handler(s3: _FaultyS3, target: str) -> type[BaseHTTPRequestHandler]:
    class _Own(Handler):
        def handle_one(self) -> None:
            body = self.content()
            if (key := access_key(self.headers.get("authorization", ""))) in s3.refused:
                s3.seen.append(f"{self.command} refused")
                status, code = s3.refused[key]
                text = f"<Error><Code>{code}</Code><Message>No.</Message><Token-0>SECRETTOKEN</Token-0></Error>"
                self.tell(status, text.encode())
                return
            fault = s3.faults.pop(0) if s3.faults else ""
            s3.seen.append(f"{self.command} {fault}".strip())
            self.close_connection = fault in ("reset", "lost")
            if fault == "reset":
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.connection.close()
            elif fault.isdigit():
                self.tell(int(fault), b"<Error><Code>Fault</Code></Error>")
            else:
                with closing(http.client.HTTPConnection(target.removeprefix("http://"))) as connection:
                    connection.request(self.command, self.path, body, dict(self.headers))
                    answer = connection.getresponse()
                    data = answer.read()
                    headers: dict[str, Any] = {name.lower(): value for name, value in answer.getheaders()}
                if fault == "lost":
                    self.connection.close()
                    return
                for name in ("transfer-encoding", "connection", "date", "server"):
                    headers.pop(name, None)
                self.tell(answer.status, data, **headers)

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_one

    return _Own


@pytest.fixture
def s3(moto_s3: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[_FaultyS3]:
    faulty = _FaultyS3()
    monkeypatch.setattr("sqs_fifo_spark.journal.store.RETRY_BUDGET", timedelta(seconds=3))
    monkeypatch.setattr("sqs_fifo_spark.journal.object_store.RETRY_TIMEOUT", timedelta(seconds=3))
    with serving(_faulty_handler(faulty, moto_s3)) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", url)
        yield faulty


@pytest.fixture
def store(s3: _FaultyS3) -> Store:
    return open_store(f"s3://stores/faulty-{next(_numbers)}")


@pytest.mark.slow
@pytest.mark.parametrize("faults", [["500", "500"], ["503", "503"], ["reset"]])
def test_an_s3_that_fails_is_asked_again_within_the_call(s3: _FaultyS3, store: Store, faults: list[str]) -> None:
    """Whatever it is; a put too, which obstore does not repeat where a connection breaks: it is only made if absent."""
    expected = {"put": True, "get": b"1", "get_range": b"1", "list": ["a/x"], "delete": None}
    for name, call in calls(store).items():
        s3.faults = [*faults]
        assert call() == expected[name]
        assert not s3.faults
    assert store.get("a/x") is None


def test_an_s3_put_that_meets_a_conflict_is_tried_again(s3: _FaultyS3, store: Store) -> None:
    """Two conditional puts raced, and the other one failed: "taken" is believed only when something is there."""
    s3.faults = ["409", "404", "409"]
    assert store.put_if_absent("a/x", b"1")
    assert not s3.faults
    assert store.get("a/x") == b"1"
    s3.faults = ["409"]
    assert not store.put_if_absent("a/x", b"2")
    assert store.get("a/x") == b"1"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("faults", "said"),
    [(["409", "404"], "says that it exists, but does not find it"), (["503"], "cannot write 'a/x' in the journal at")],
)
def test_an_s3_that_keeps_failing_is_one_line(s3: _FaultyS3, store: Store, faults: list[str], said: str) -> None:
    """The end of the time to try. That something was there, and is not, is no answer."""
    s3.faults = faults * 1_000
    line(lambda: store.put_if_absent("a/x", b"1"), store.location, said)
    s3.faults = []
    assert store.get("a/x") is None


def test_an_s3_put_whose_answer_is_lost_has_one_content(s3: _FaultyS3, store: Store) -> None:
    """Recognised as one's own, or an error, after which the next attempt serves what stands there."""
    journal = Journal.create(store, ARN)
    s3.faults = ["lost"]
    try:
        sealed = journal.seal(segment(journal), 0)
        assert sealed.head.origin.writer == "w"
    except JournalUnavailableError:
        assert "PUT lost" in s3.seen
    again = journal.seal(segment(journal, writer="later"), 0)
    assert again.head.origin.writer == "w"
    assert again.rows.equals(ROWS)


def test_a_fork_of_a_process_that_has_used_an_object_store_is_told_that_it_cannot(s3: _FaultyS3) -> None:
    """Obstore's threads are not forked, and each of its calls would wait for them for ever. Others may fork first."""
    script = """
import os, signal, sys
from sqs_fifo_spark.errors import JournalUnavailableError
from sqs_fifo_spark.journal.location import open_store

def use_in_child(store):
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        try:
            store().get("a/x")
        except JournalUnavailableError as error:
            print(error, flush=True)
            os._exit(2)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

def again():
    return open_store(sys.argv[1])

before = open_store(sys.argv[1])
assert use_in_child(again) == 0
before.get("a/x")
assert use_in_child(again) == 2
assert use_in_child(lambda: before) == 2
before.get("a/x")
"""
    command = [sys.executable, "-c", script, f"s3://stores/faulty-{next(_numbers)}"]
    said = subprocess.run(command, check=True, timeout=90, capture_output=True, text=True).stdout.splitlines()
    assert len(said) == 2
    assert all("it was forked from one that has used a journal on an object store" in each for each in said)


def use(store: Store) -> None:
    """Make every call once."""
    assert store.put_if_absent("a/y", b"1")
    assert not store.put_if_absent("a/y", b"2")
    assert store.get("a/y") == b"1"
    assert store.get_range("a/y", 0, 1) == b"1"
    assert "a/y" in store.list("a")
    store.delete(["a/y"])


@pytest.mark.slow
@pytest.mark.parametrize(("status", "code"), [(400, "ExpiredToken"), (403, "InvalidAccessKeyId")])
@pytest.mark.parametrize("first", ["put", "get", "get_range", "list", "delete", "head"])
def test_keys_that_are_refused_are_read_anew_within_the_call(
    s3: _FaultyS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str, status: int, code: str
) -> None:
    """Renewed in their file before they count as old: whichever call meets it goes on with those that are there."""

    def write(key: str) -> None:
        lines = (f"aws_{name}={value}" for name, value in (("access_key_id", key), ("secret_access_key", "any")))
        (tmp_path / "credentials").write_text("\n".join(("[default]", *lines, "aws_session_token=SECRETTOKEN")))

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    write("old")
    clock = ManualClock()
    store = ObjectStore(f"s3://stores/faulty-{next(_numbers)}", clock=clock)
    use(store)
    asked = calls(store)
    asked["head"] = lambda: store._call("read", "a/x", lambda client: store._is_there(client, "a/x"))
    call = asked[first]
    s3.refused = {"old": (status, code)}
    assert "SECRET" not in line(call, store.location)
    write("new")
    s3.seen.clear()
    clock.advance(OPEN_EVERY_S)
    call()
    assert sum("refused" in each for each in s3.seen) <= 1
    use(store)
