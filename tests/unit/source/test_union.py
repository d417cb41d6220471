"""Several queues: their drivers are asked at once, and none waits for another's long poll."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
import pytest

from sqs_fifo_spark.clock import SYSTEM_CLOCK
from sqs_fifo_spark.errors import (
    AccessDeniedError,
    FencedError,
    OptionError,
    QueueNotFoundError,
    SqsFifoError,
    TransientQueueError,
)
from sqs_fifo_spark.local import LocalQueueServer
from sqs_fifo_spark.options import parse_source_options, queue_key
from sqs_fifo_spark.source.driver import union
from sqs_fifo_spark.source.driver.assembly import union_of_several
from sqs_fifo_spark.source.driver.epochs import Limits
from sqs_fifo_spark.source.driver.sharing import share_limits, share_partitions
from sqs_fifo_spark.source.driver.union import QueueUnion
from sqs_fifo_spark.source.offset import Offset
from sqs_fifo_spark.source.offsets import Offsets
from tests.simulation.world import LAPSE_S
from tests.unit.by_hand import WRAPPED, Query, World
from tests.unit.sending import Panic

SOON_S = 10.0
"""Longer than anything here takes, unless it hangs."""


def url_of(name: str) -> str:
    return f"http://127.0.0.1:9324/000000000000/{name}.fifo"


def at(epoch: int) -> Offset:
    return Offset("j", epoch, 1, plan=1)


class FakeDriver:
    """A driver whose queue the test plays: it closes at once, then polls until the test lets messages come."""

    def __init__(self, before_poll: Callable[[], None], most_partitions: Callable[[int], int]) -> None:
        self.before_poll = before_poll
        self.most_partitions = most_partitions
        self.comes = threading.Event()
        self.closes = threading.Event()
        self.closes.set()
        self.has_begun_to_poll = threading.Event()
        self.has_work = False
        self.poll_s = SOON_S
        self.error: BaseException | None = None
        self.gone: Exception | None = None
        self.waiting = 0
        self.position: Offset | None = None
        self.announced: Offset | None = None
        self.lost: Offset | None = None
        """The epoch that Spark's log has lost."""
        self.query = None
        self.calls: list[Any] = []
        self.settled = 0
        self.polls = 0
        self.has_claim = True
        self.is_fenced = False
        self.is_used = threading.Lock()

    @property
    def has_announced_again(self) -> bool:
        return self.announced is not None and self.announced == self.lost

    def require_claim(self) -> None:
        if self.is_fenced:
            raise FencedError("another run")

    def _alone(self, call: str) -> None:
        assert self.is_used.acquire(blocking=False), f"{call} while another call is under way"

    def initial_offset(self) -> Offset:
        return Offset("j", 0, 0)

    def prepare_available_now(self) -> None:
        self.calls.append("prepare")

    def latest_offset(self, start: Offset, max_messages: int | None = None) -> Offset:
        self._alone("latest_offset")
        try:
            self.position = start
            if self.announced is not None and self.announced != start:
                return self.announced
            assert self.closes.wait(SOON_S)
            if self.error is not None:
                raise self.error
            if not self.has_work:
                self.before_poll()
                self.has_begun_to_poll.set()
                self.polls += 1
                if not self.comes.wait(self.poll_s):
                    return start
                if self.error is not None:
                    raise self.error
            self.has_work = False
            self.comes.clear()
            self.announced = at(start.epoch + 1)
            return self.announced
        finally:
            self.is_used.release()

    def announce_again(self, start: Offset, max_messages: int) -> Offset | None:
        self._alone("announce_again")
        self.calls.append(("announce_again", start.epoch))
        self.announced = self.lost
        self.is_used.release()
        return self.lost

    def log(self, known: Offset | None) -> Any:
        return self

    def knows(self, start: Offset) -> bool:
        return True

    def require_none_lost(self, start: Offset) -> None:
        self.calls.append(("require_none_lost", start.epoch))

    def note_first(self, first: Offset) -> None:
        pass

    def recount(self) -> None:
        pass

    def expected(self, end: Offset) -> int:
        return 100

    def has_settled(self, end: Offset) -> bool:
        return end.epoch <= self.settled

    def plan(self, start: Offset, end: Offset, limits: Limits | None = None) -> list[Any]:
        self._alone("plan")
        self.calls.append(("plan", start.epoch, end.epoch, limits))
        self.announced = None
        self.is_used.release()
        return [f"plan of {end.epoch}"] if start != end else []

    def commit(self, end: Offset, *, logs_next: bool = True) -> None:
        self._alone("commit")
        self.calls.append(("commit", end.epoch, logs_next))
        self.settled = end.epoch
        self.is_used.release()

    def report(self, *, recounts: bool = True) -> dict[str, Any]:
        figures = dict.fromkeys(("inFlightMessages", "delayedMessages", "receives", "retries", "unconfirmedDeletes"), 1)
        return {
            "queue": "q",
            "epoch": 3,
            "waitingMessages": self.waiting,
            **figures,
            "lostLeases": 0,
            "oldestMessageAgeSeconds": None,
        }

    def stop(self) -> None:
        self.calls.append("stop")
        self.comes.set()


class Rig:
    def __init__(self, *names: str, tells_start: bool = True, **options: str) -> None:
        self.names = list(names)
        self.made: dict[str, list[FakeDriver]] = {}
        self.prepare: Callable[[str, FakeDriver], None] = lambda url, driver: None
        given = {"journalLocation": "/journal", "waitTimeSeconds": "1", **options}
        if "queueNamePrefix" not in given:
            given.setdefault("queueUrls", ",".join(map(url_of, names)))
        self.union = QueueUnion(
            parse_source_options(given),
            lambda: [url_of(name) for name in self.names],
            self._make,  # type: ignore[arg-type]
            SYSTEM_CLOCK,
            tells_start=tells_start,
        )

    def _make(self, url: str, before_poll: Callable[[], None], most_partitions: Callable[[int], int]) -> FakeDriver:
        driver = FakeDriver(before_poll, most_partitions)
        self.prepare(url, driver)
        self.made.setdefault(url, []).append(driver)
        return driver

    def __getitem__(self, name: str) -> FakeDriver:
        return self.made[url_of(name)][-1]

    def start(self) -> Offsets:
        return self.union.initial_offset()


def places(offsets: Offsets) -> dict[str, int]:
    return {url.rpartition("/")[2].removesuffix(".fifo"): offset.epoch for _, url, offset in offsets}


def soon(call: Callable[[], Any]) -> Any:
    """Return the result of a call that may hang, or its error; None if it does hang."""
    answers: list[Any] = []

    def run() -> None:
        try:
            answers.append(call())
        except BaseException as error:
            answers.append(error)

    asking = threading.Thread(target=run, daemon=True)
    asking.start()
    asking.join(SOON_S)
    return answers[0] if answers else None


@pytest.fixture
def rig() -> Rig:
    made = Rig("a", "b")
    made.start()
    return made


def test_an_offset_is_the_same_after_json_and_in_any_order() -> None:
    offsets = Offsets({url_of("b"): at(2), url_of("a"): at(1)})
    assert Offsets.from_json(offsets.to_json()) == offsets
    assert list(offsets.to_json()["queues"]) == [url_of("a"), url_of("b")]
    other = Offsets({url_of("a"): at(7), url_of("b"): at(2)})
    assert str(offsets.moved({url_of("a"): at(7)}).to_json()) == str(other.to_json())


def test_a_queue_is_known_by_its_key_however_its_url_is_spelt() -> None:
    old = Offsets({"https://sqs.eu-west-1.amazonaws.com/123456789012/a.fifo": at(1)})
    new = old.moved({"https://eu-west-1.queue.amazonaws.com/123456789012/a.fifo": at(2)})
    assert [offset.epoch for _, _, offset in new] == [2]


def test_a_checkpoint_of_one_queue_is_refused_with_one_line() -> None:
    with pytest.raises(Exception, match="none of a source over several queues"):
        Offsets.from_json(at(3).to_json())


def test_a_poll_that_brings_something_at_once_comes_with_the_same_micro_batch(rig: Rig) -> None:
    """With a trigger of an hour its messages would be held for as long."""
    start = rig.start()
    rig["a"].has_work = True
    rig["b"].comes.set()
    assert places(rig.union.latest_offset(start)) == {"a": 1, "b": 1}


def test_a_poll_that_brings_something_during_a_micro_batch_comes_with_the_next_one(rig: Rig) -> None:
    start = rig.start()
    rig["a"].has_work = True
    first = rig.union.latest_offset(start)
    assert [plan.url for plan in rig.union.plan(start, first)] == [url_of("a")]
    rig["b"].comes.set()
    second = rig.union.latest_offset(first)
    assert places(second)["b"] == 1
    assert rig["b"].polls == 1
    rig.union.commit(first)
    assert ("plan", 0, 1) in [call[:3] for call in rig["a"].calls if call[0] == "plan"]
    before, after = places(first), places(second)
    moved = {url_of(name) for name in after if after[name] != before[name]}
    assert {plan.url for plan in rig.union.plan(first, second)} == moved


def test_a_queue_that_takes_long_to_close_keeps_no_other_waiting(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(union, "GRACE_S", 0.1)
    start = rig.start()
    rig["a"].has_work = rig["b"].has_work = True
    first = rig.union.latest_offset(start)
    rig["a"].has_work = rig["b"].has_work = True
    rig["b"].closes.clear()
    second = rig.union.latest_offset(first)
    assert places(second) == {"a": 2, "b": 1}
    rig.union.plan(first, second)
    rig.union.commit(second)  # and nobody disturbs it: `FakeDriver` says so
    assert not [call for call in rig["b"].calls if call[0] == "commit"]
    rig["b"].closes.set()
    assert places(rig.union.latest_offset(second))["b"] == 2


def test_the_first_answer_waits_for_each_queue_to_open(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before 4.2, Spark's wrapper takes no other; and Spark's log may have lost an epoch of any queue."""
    monkeypatch.setattr(union, "GRACE_S", 0.0)
    start = rig.start()
    rig["a"].has_work = rig["b"].has_work = True
    rig["b"].closes.clear()
    threading.Timer(0.3, rig["b"].closes.set).start()
    assert places(rig.union.latest_offset(start)) == {"a": 1, "b": 1}


def test_a_micro_batch_that_the_log_has_lost_gets_nothing_new(rig: Rig) -> None:
    """The sink may have it, and would skip what is new. That comes with the next one."""
    start = rig.start()
    rig["a"].has_work = rig["b"].has_work = True
    rig["b"].lost = at(1)
    first = rig.union.latest_offset(start)
    assert places(first) == {"a": 0, "b": 1}
    rig.union.plan(start, first)
    rig.union.commit(start)
    assert not [call for call in rig["a"].calls if call[0] == "commit"]
    assert places(rig.union.latest_offset(first))["a"] == 1


def test_with_nothing_to_do_it_waits_for_one_long_poll_and_leaves_the_polls_under_way(rig: Rig) -> None:
    start = rig.start()
    rig["a"].poll_s = rig["b"].poll_s = 0.7
    assert rig.union.latest_offset(start) == start
    assert (rig["a"].polls, rig["b"].polls) == (2, 2)


def test_a_poll_that_is_about_to_bring_something_is_waited_for(rig: Rig) -> None:
    """On a slow link its messages take longer than it may wait for them."""
    start = rig.start()
    threading.Timer(1.3, rig["b"].comes.set).start()
    rig["a"].poll_s = 0.7
    assert places(rig.union.latest_offset(start)) == {"a": 0, "b": 1}


def test_a_poll_that_has_ended_begins_again_beside_a_micro_batch(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The micro-batch before took so long that the queue was not polled any more."""
    monkeypatch.setattr(union, "POLLS_S", 0.0)
    start = rig.start()
    rig["a"].has_work = True
    rig["b"].poll_s = 0.5
    first = rig.union.latest_offset(start)
    deadline = SYSTEM_CLOCK.monotonic() + SOON_S
    while not rig.union.queues[queue_key(url_of("b"))].has_answered:
        assert SYSTEM_CLOCK.monotonic() < deadline
        threading.Event().wait(0.01)
    rig["a"].has_work, rig["b"].poll_s = True, SOON_S
    rig["b"].has_begun_to_poll.clear()
    assert places(rig.union.latest_offset(first)) == {"a": 2, "b": 0}
    assert rig["b"].has_begun_to_poll.wait(SOON_S)


@pytest.mark.parametrize("error", [QueueNotFoundError("a is not there."), TransientQueueError("a is silent.")])
def test_a_queue_that_is_gone_stops_no_other(rig: Rig, error: SqsFifoError) -> None:
    start = rig.start()
    rig["a"].error = error
    rig["b"].has_work = True
    first = rig.union.latest_offset(start)
    assert places(first) == {"a": 0, "b": 1}
    assert rig.union.report()["queuesRefused"] == 1
    rig.union.plan(start, first)
    rig.union.commit(first)


def test_a_refused_queue_is_tried_again_with_a_new_driver(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(union, "ASIDE_S", 0.0)
    start = rig.start()
    old = rig["a"]
    old.error = QueueNotFoundError("a is not there.")
    rig["b"].has_work = True
    first = rig.union.latest_offset(start)
    rig.prepare = lambda url, driver: setattr(driver, "has_work", True)
    assert places(rig.union.latest_offset(first))["a"] == 1
    assert rig["a"] is not old


@pytest.mark.parametrize("silent", ["", "a", "b"])
def test_the_last_queue_that_is_refused_ends_the_query(rig: Rig, silent: str) -> None:
    """A silent one is the reason, if there is one: it may answer the next run, so the query does not end for good."""
    start = rig.start()
    for name in "ab":
        rig[name].error = TransientQueueError("silent.") if name == silent else QueueNotFoundError("not there.")
    with pytest.raises(TransientQueueError if silent else QueueNotFoundError):
        rig.union.latest_offset(start)


@pytest.mark.parametrize("error", [FencedError("another driver"), AccessDeniedError("no credentials"), Panic()])
def test_an_error_that_is_not_about_one_queue_ends_the_query(rig: Rig, error: BaseException) -> None:
    """A panic is no Exception; and where a question has no answer, the query would wait for it without end."""
    start = rig.start()
    rig["a"].error = error
    assert soon(lambda: rig.union.latest_offset(start)) is error


def test_a_queue_that_leaves_the_list_is_settled_and_then_forgotten(rig: Rig) -> None:
    start = rig.start()
    rig["a"].has_work = rig["b"].has_work = True
    rig["b"].closes.wait()
    first = rig.union.latest_offset(start)
    assert places(first) == {"a": 1, "b": 1}
    again = Rig("a")
    again.union.plan(start, first)
    again["a"].has_work = True
    second = again.union.latest_offset(first)
    assert places(second) == {"a": 2, "b": 1}
    again.union.commit(first)
    assert ("commit", 1, False) in again["b"].calls
    again.union.plan(first, second)
    again["a"].has_work = True
    third = again.union.latest_offset(second)
    assert places(third) == {"a": 3}
    again.union.commit(second)
    again.union.plan(second, third)
    assert len(again.made[url_of("b")]) == 1


def test_a_queue_of_the_checkpoint_on_another_host_is_not_called() -> None:
    rig = Rig("a")
    known = Offsets({url_of("a"): at(1), "http://10.1.2.3:9324/000000000000/b.fifo": at(1)})
    with pytest.raises(OptionError, match=r"10\.1\.2\.3"):
        rig.union.plan(known, known)


def test_a_query_waits_for_queues_where_all_of_its_checkpoint_are_gone() -> None:
    """Nobody can name them once more: a list of queues that are gone is refused, too."""
    rig = Rig(queueNamePrefix="orders-", region="eu-west-1")
    rig.prepare = lambda url, driver: setattr(driver, "gone", QueueNotFoundError("it is not there."))
    known = Offsets({url_of("orders-a"): at(1), url_of("orders-b"): at(1)})
    assert soon(lambda: rig.union.latest_offset(known)) == known
    rig.names.append("orders-c")
    rig.union.queues.list_at = 0.0  # the next discovery is due
    rig.prepare = lambda url, driver: setattr(driver, "has_work", True)
    assert places(rig.union.latest_offset(known))["orders-c"] == 1


def test_a_queue_that_comes_begins_at_its_own_start() -> None:
    rig = Rig("a")
    start = rig.start()
    rig["a"].has_work = True
    first = rig.union.latest_offset(start)
    rig.union.plan(start, first)
    rig.names.append("b")
    rig.union.queues.list_at = 0.0  # the next discovery is due
    rig.prepare = lambda url, driver: setattr(driver, "has_work", True)
    second = rig.union.latest_offset(first)
    assert places(second)["b"] == 1
    rig.union.plan(first, second)
    assert ("plan", 0, 1) in [call[:3] for call in rig["b"].calls if call[0] == "plan"]


def test_available_now_ends_when_all_queues_have_ended(rig: Rig) -> None:
    rig = Rig("a", "b")
    rig.prepare = lambda url, driver: setattr(driver, "poll_s", 0.01)
    rig.union.prepare_available_now()
    start = rig.start()
    rig["a"].has_work = True
    first = rig.union.latest_offset(start)
    assert places(first) == {"a": 1, "b": 0}
    rig.union.plan(start, first)
    assert rig.union.latest_offset(first) == first
    assert [each.calls[0] for each in (rig["a"], rig["b"])] == ["prepare", "prepare"]


def test_available_now_fails_for_a_silent_queue_once_the_others_are_drained() -> None:
    """Else it would end as if nothing were left there."""
    rig = Rig("a", "b")

    def prepare(url: str, driver: FakeDriver) -> None:
        driver.poll_s, driver.has_work = 0.01, url == url_of("a")
        driver.error = TransientQueueError("b is silent.") if url == url_of("b") else None

    rig.prepare = prepare
    rig.union.prepare_available_now()
    start = rig.start()
    first = rig.union.latest_offset(start)
    assert places(first) == {"a": 1, "b": 0}
    rig.union.plan(start, first)
    with pytest.raises(TransientQueueError, match="b is silent"):
        rig.union.latest_offset(first)


def test_available_now_ends_at_once_if_no_queue_has_the_prefix() -> None:
    rig = Rig(queueNamePrefix="new-", region="eu-west-1")
    rig.union.prepare_available_now()
    start = rig.start()
    assert soon(lambda: rig.union.latest_offset(start)) == start


def test_a_driver_that_is_given_up_leaves_no_thread(server: LocalQueueServer, tmp_path: Path) -> None:
    """A queue that is refused for days gets a new driver each minute."""
    client = boto3.client("sqs", endpoint_url=server.endpoint_url)
    url = client.create_queue(QueueName="left.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    client.close()
    given = {"queueUrls": url, "journalLocation": str(tmp_path), "endpointUrl": server.endpoint_url}
    made = union_of_several(parse_source_options(given), given, tells_start=True)
    before = set(threading.enumerate())
    made.initial_offset()
    left = {each for each in threading.enumerate() if each.name.startswith("sqs-fifo-call")} - before
    assert left
    made.stop()
    assert not any(each.is_alive() for each in left)


def test_limits_hold_for_all_queues_together() -> None:
    shares = share_limits(Limits(100, 1_000), {"busy": 10_000, "quiet": 3, "other": 10_000})
    assert shares["quiet"].messages >= 3
    assert sum(each.messages for each in shares.values()) <= 100
    assert sum(each.size for each in shares.values()) <= 1_000
    assert shares["busy"].messages >= 40


def test_each_queue_gets_one_message_however_many_there_are() -> None:
    assert {each.messages for each in share_limits(Limits(2, 10), dict.fromkeys("abcde", 9)).values()} == {1}


def test_a_queue_of_which_nothing_is_expected_gets_its_message_from_the_limit() -> None:
    shares = share_limits(Limits(10, 100), {"busy": 1_000, "quiet": 0})
    assert {key: each.messages for key, each in shares.items()} == {"busy": 9, "quiet": 1}


def test_one_queue_with_work_has_all_limits() -> None:
    assert share_limits(Limits(100, 1_000), {"busy": 10}) == {"busy": Limits(100, 1_000)}


@pytest.mark.parametrize(
    ("own", "others", "share"), [(1_000, [], 8), (1_000, [1_000], 4), (1, [10_000] * 7, 1), (0, [], 8), (900, [100], 7)]
)
def test_partitions_are_shared_by_what_waits(own: int, others: list[int], share: int) -> None:
    assert share_partitions(8, own, others) == share


def test_a_report_has_sums_and_the_queues_with_the_most_messages(rig: Rig) -> None:
    rig["a"].waiting, rig["b"].waiting = 3, 4
    report = rig.union.report()
    assert (report["queue"], report["waitingMessages"], report["inFlightMessages"]) == ("2 queues", 7, 2)
    assert [figures["waitingMessages"] for figures in report["queues"].values()] == [4, 3]


def test_spark_before_4_2_gets_an_answer_at_once_where_the_driver_has_one() -> None:
    rig = Rig("a", "b", tells_start=False)
    rig.prepare = lambda url, driver: setattr(driver, "announce_blindly", lambda: at(9))
    first = rig.union.latest_offset()
    assert places(first) == {"a": 9, "b": 9}


def test_a_queue_that_has_left_the_list_is_asked_for_what_the_log_has_lost() -> None:
    """The sink may have it. Nothing else of that queue is served."""
    rig = Rig("a")

    def prepare(url: str, driver: FakeDriver) -> None:
        driver.has_work, driver.lost = url == url_of("a"), at(4) if url == url_of("b") else None

    rig.prepare = prepare
    known = Offsets({url_of("a"): at(3), url_of("b"): at(3)})
    rig.union.plan(known, known)
    end = rig.union.latest_offset(known)
    assert places(end) == {"a": 3, "b": 4}
    rig.union.plan(known, end)
    rig.union.commit(known)
    rig["a"].comes.set()
    second = rig.union.latest_offset(end)
    assert places(second) == {"a": 4, "b": 4}
    rig.union.plan(end, second)
    rig.union.commit(end)
    assert ("commit", 4, False) in rig["b"].calls


def test_available_now_asks_a_refused_queue_for_what_the_log_has_lost() -> None:
    """Its lost micro-batch comes before what is new of others, which a sink would skip in its place."""
    rig = Rig("a", "b")

    def refuse() -> None:
        raise QueueNotFoundError("b is not there.")

    def prepare(url: str, driver: FakeDriver) -> None:
        driver.has_work = url == url_of("a")
        if url == url_of("b"):
            driver.lost, driver.prepare_available_now = at(4), refuse  # type: ignore[method-assign]

    rig.prepare = prepare
    rig.union.prepare_available_now()
    known = Offsets({url_of("a"): at(3), url_of("b"): at(3)})
    end = rig.union.latest_offset(known)
    assert places(end) == {"a": 3, "b": 4}
    rig.union.plan(known, end)
    rig.union.commit(known)
    assert places(rig.union.latest_offset(end)) == {"a": 4, "b": 4}


def test_a_queue_with_nothing_lost_leaves_the_offsets_at_once_if_it_is_settled() -> None:
    rig = Rig("a")

    def prepare(url: str, driver: FakeDriver) -> None:
        driver.has_work, driver.settled = True, 3

    rig.prepare = prepare
    known = Offsets({url_of("a"): at(3), url_of("b"): at(3)})
    rig.union.plan(known, known)
    assert places(rig.union.latest_offset(known)) == {"a": 4}
    assert [call for call in rig["b"].calls if call != "stop"] == [("announce_again", 3)]


def test_a_told_epoch_stands_when_the_list_becomes_another_one() -> None:
    """Before 4.2, under the wrapper, Spark asks twice, and logs the first answer."""
    rig = Rig("a", "b", tells_start=False)
    rig.prepare = lambda url, driver: setattr(driver, "announce_blindly", lambda: blindly(driver))
    first = rig.union.latest_offset()
    known = Offsets({url_of("a"): at(3), url_of("b"): at(3)})
    rig.union.plan(known, known)
    rig.names.remove("b")
    rig.union.queues.list_at = 0.0
    assert rig.union.latest_offset() == first


def test_what_the_log_has_lost_of_a_queue_without_an_answer_is_asked_for_under_the_wrapper() -> None:
    """Its next entry has the first answer. The sink may have that micro-batch, and would skip the other queue's."""
    rig = Rig("a", tells_start=False)
    rig.prepare = lambda url, driver: setattr(driver, "announce_blindly", lambda: blindly(driver))
    assert places(rig.union.latest_offset()) == {"a": 9}
    known = Offsets({url_of("a"): at(3), url_of("b"): at(3)})
    rig.union.plan(known, known)
    assert ("require_none_lost", 3) in rig["b"].calls


def test_a_queue_that_is_left_out_of_a_batch_that_runs_again_keeps_what_was_told_of_it() -> None:
    """Under Spark's wrapper its log gets the run's first answer, once the batch before has run again."""
    rig = Rig("a", "b", tells_start=False)
    rig.prepare = lambda url, driver: setattr(driver, "announce_blindly", lambda: blindly(driver))
    told = rig.union.latest_offset()
    assert places(told) == {"a": 9, "b": 9}
    before = Offsets({url_of("a"): at(4), url_of("b"): at(4)})
    last = Offsets({url_of("a"): at(5)})
    rig.union.plan(last, last)
    driver = rig["b"]
    rig.union.plan(before, last)
    assert ("commit", 4, False) in driver.calls
    assert rig["b"] is driver
    rig.union.commit(last)
    key = queue_key(url_of("b"))
    assert rig.union.latest_offset().of(key) == told.of(key)


def blindly(driver: FakeDriver) -> Offset:
    driver.announced = Offset("j", 9, 1, plan=2, is_blind=True)
    return driver.announced


def test_what_is_committed_of_a_queue_is_settled_where_the_first_answer_was_without_it() -> None:
    """Before 4.2 the first answer is given before Spark says that it has a place in the queue, which was refused."""
    rig = Rig("a", "b", tells_start=False)

    def prepare(url: str, driver: FakeDriver) -> None:
        def announce() -> Offset:
            if url == url_of("b"):
                raise QueueNotFoundError("b is not there.")
            return blindly(driver)

        driver.announce_blindly = announce  # type: ignore[attr-defined]

    rig.prepare = prepare
    end = rig.union.latest_offset()
    assert places(end) == {"a": 9}
    old = rig["b"]
    start = Offsets({url_of("a"): at(3), url_of("b"): at(3)})
    assert [plan.url for plan in rig.union.plan(start, end)] == [url_of("a")]
    assert rig["b"] is not old
    assert ("commit", 3, False) in rig["b"].calls
    rig.prepare = lambda url, driver: setattr(driver, "has_work", True)
    assert places(rig.union.latest_offset())["b"] == 1


def test_a_queue_that_comes_before_4_2_is_announced_as_one_that_begins() -> None:
    """A blindly announced epoch whose rows nobody reads would stand for ever: Spark has said its place by then."""
    rig = Rig("a", tells_start=False)
    known = Offsets({url_of("a"): at(3)})
    rig.union.plan(known, known)
    rig.names.append("b")
    rig.union.queues.list_at = 0.0
    rig.prepare = lambda url, driver: setattr(driver, "has_work", True)
    assert places(rig.union.latest_offset())["b"] == 1


def test_a_queue_that_is_left_out_of_the_log_is_settled_when_its_poll_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under Spark's wrapper its log gets the first answer, which was without it, though it was tried again since."""
    monkeypatch.setattr(union, "ASIDE_S", 0.0)
    rig = Rig("a", "b", tells_start=False)

    def refuse() -> Offset:
        raise QueueNotFoundError("b is not there.")

    def prepare(url: str, driver: FakeDriver) -> None:
        driver.announce_blindly = refuse if url == url_of("b") else lambda: at(9)  # type: ignore[attr-defined]

    rig.prepare = prepare
    assert places(rig.union.latest_offset()) == {"a": 9}
    rig.prepare = lambda url, driver: setattr(driver, "position", at(5))
    before, last = (Offsets({url_of("a"): at(epoch), url_of("b"): at(epoch)}) for epoch in (4, 5))
    rig.union.plan(before, last)
    rig["a"].position, rig["a"].has_work = at(5), True
    assert places(rig.union.latest_offset()) == {"a": 6, "b": 5}
    assert rig["b"].has_begun_to_poll.wait(SOON_S)
    old = rig["b"]
    threading.Timer(0.3, old.comes.set).start()
    rig.union.plan(last, Offsets({url_of("a"): at(6)}))
    assert rig["b"] is not old
    assert ("commit", 5, False) in rig["b"].calls


def test_a_queue_that_refuses_deletes_is_read_no_further(world: World) -> None:
    """Else all that comes is served, and never deleted: the ledger would have it all."""
    query = Query(world).resume()
    query.driver._queue.may_go = True
    world.send("a1", "b1")
    assert query.trigger()
    world.fault = lambda action: "denied" if action == "DeleteMessageBatch" else ""
    world.send("c1", "d1")
    assert query.trigger()  # it was announced before the refusal
    received = world.received()
    for number in range(1, 4):
        world.send(f"e{number}", f"f{number}")
        query.trigger()
    assert not query.trigger()
    assert world.received() == received
    assert isinstance(query.driver._queue.gone, AccessDeniedError)
    assert query.driver.report()["unconfirmedDeletes"] == 4


def test_available_now_before_4_2_does_not_read_a_queue_that_refuses_deletes(world: World) -> None:
    """It announces before it knows its place: each run would serve more of what is never deleted."""
    world.send("a1")
    Query(world, **WRAPPED).resume().trigger()
    world.fault = lambda action: "denied" if action == "DeleteMessageBatch" else ""
    world.send("b1")
    query = Query(world, **WRAPPED)
    query.driver._queue.may_go = True
    with pytest.raises(AccessDeniedError, match="DeleteMessage"):
        query.resume()


def test_available_now_ends_at_a_queue_that_refuses_deletes(world: World) -> None:
    """Its messages are hidden, and wait: a query that may not receive them does not wait for that."""
    world.send("a1")
    world.receive_elsewhere(10, 30)
    query = Query(world, available_now=True)
    query.driver._queue.may_go = True
    query.driver._queue.gone = AccessDeniedError("deletes are refused")
    calls: list[str] = []

    def count(action: str) -> str:
        calls.append(action)
        assert len(calls) < 20, "it asks again and again"
        return ""

    world.fault = count
    assert not query.resume().trigger()


@pytest.mark.parametrize("fate", ["missing", "throttled"])
def test_a_queue_that_is_gone_still_serves_what_the_journal_has(world: World, fate: str) -> None:
    query = Query(world).resume()
    world.send("a1")
    assert query.trigger()
    world.send("b1")
    world.receive_elsewhere(10, 0)
    assert query.trigger()  # defers it, for somebody else has received it before
    assert world.bodies() == ["a1"]
    world.die(down_s=LAPSE_S)
    world.fault = lambda action: fate
    query = Query(world)
    query.driver._queue.may_go = True
    assert query.resume().trigger()
    assert world.bodies() == ["a1", "b1"]


def test_an_overtaken_run_claims_no_other_journal(rig: Rig) -> None:
    """A queue that is new to it, or was refused a minute ago, is the newer run's: that would stop."""
    start = rig.start()
    rig["a"].has_work = True
    first = rig.union.latest_offset(start)
    rig.union.plan(start, first)
    rig.names.append("c")
    rig.union.queues.list_at = 0.0  # the next discovery is due
    rig["a"].is_fenced = rig["b"].is_fenced = True
    with pytest.raises(FencedError, match="another run"):
        rig.union.latest_offset(first)
    assert url_of("c") not in rig.made


def test_an_overtaken_run_settles_nothing_of_a_queue_that_it_would_claim_again(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stood still between its offset and the commit, and a refused queue is to be tried again by then."""
    start = rig.start()
    rig["b"].has_work = True
    first = rig.union.latest_offset(start)
    rig.union.plan(start, first)
    rig["b"].error, rig["a"].has_work = QueueNotFoundError("b is not there."), True
    second = rig.union.latest_offset(first)
    assert places(second) == {"a": 1, "b": 1}
    rig.union.queues[queue_key(url_of("b"))].aside_until = 0.0  # it is to be tried again
    rig["a"].is_fenced = True
    made = len(rig.made[url_of("b")])
    with pytest.raises(FencedError, match="another run"):
        rig.union.commit(first)
    assert len(rig.made[url_of("b")]) == made


def test_available_now_does_not_ask_a_queue_again_and_again_that_refuses(world: World) -> None:
    """Somebody else holds a message: for a visibility timeout the query would wait for that."""
    world.send("a1")
    world.receive_elsewhere()
    query = Query(world, available_now=True)
    query.driver._queue.may_go = True
    world.fault = lambda action: "denied" if action == "ReceiveMessage" else ""
    assert soon(lambda: query.resume().trigger()) is False
    assert world.calls("ReceiveMessage") == 1


def test_a_told_epoch_is_told_again_however_slow_its_queue_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under Spark's wrapper its log gets the first answer, and then its driver is planned, by one thread."""
    monkeypatch.setattr(union, "GRACE_S", 0.0)
    rig = Rig("a", "b", tells_start=False)
    rig.prepare = lambda url, driver: setattr(driver, "announce_blindly", lambda: at(9))
    first = rig.union.latest_offset()
    before, last = (Offsets({url_of("a"): at(epoch), url_of("b"): at(epoch)}) for epoch in (4, 5))
    rig.union.plan(before, last)
    goes_on = threading.Event()

    def recount() -> None:
        with rig["b"].is_used:
            assert goes_on.wait(SOON_S)

    for name in "ab":
        rig[name].announced = at(9)
    monkeypatch.setattr(rig["b"], "recount", recount)
    threading.Timer(0.3, goes_on.set).start()
    assert rig.union.latest_offset() == first
    assert {each.url for each in rig.union.plan(last, first)} == {url_of("a"), url_of("b")}
