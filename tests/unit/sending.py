"""A strict queue that a sink's threads call, with every answer in the hands of a test, and rows to send to it."""

from __future__ import annotations

import hashlib
import math
import pickle
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
import pytest
from botocore.exceptions import ClientError, ReadTimeoutError

from sqs_fifo_spark.aws import client as aws
from sqs_fifo_spark.errors import JournalUnavailableError, SqsFifoError
from sqs_fifo_spark.local import FifoModel, SqsError
from sqs_fifo_spark.options import SinkOptions, parse_sink_options
from sqs_fifo_spark.sink.lanes import Stride
from sqs_fifo_spark.sink.outgoing import OutgoingRow, RowForm, outgoing
from sqs_fifo_spark.sink.record import Record
from sqs_fifo_spark.sink.sender import Sender
from sqs_fifo_spark.sink.sink_queue import SinkQueue
from tests.helpers import raises_one_line, wait_until
from tests.manual_clock import ManualClock
from tests.simulation import world

FORM = RowForm(None, True, 1_048_576)
KEEPS = RowForm(None, True, 1_048_576, keeps_refused=True)
STRICT = Stride()
LONG_S = 60.0
"""A deadline for what takes milliseconds."""

Entries = list[dict[str, Any]]
Answer = dict[str, Any]


def refusal(code: str, status: int = 400, message: str = "") -> ClientError:
    """Return what botocore raises for a call that SQS refuses."""
    told = {"Error": {"Code": code, "Message": message}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(told, "SendMessageBatch")


THROTTLED = refusal("ThrottlingException")
LOST = ReadTimeoutError(endpoint_url="http://127.0.0.1")
"""The answer did not come; the call may have had its effect."""


def raising(error: BaseException, when: Callable[..., bool] = lambda *given: True) -> Callable[..., Any]:
    """Return what raises the error where it is called, but only for what `when` holds of."""

    def fail(*given: Any, **named: Any) -> None:
        if when(*given):
            raise error

    return fail


def waiting(event: threading.Event, when: Callable[..., bool] = lambda *given: True) -> Callable[..., None]:
    """Return what waits for the event where it is called, but only for what `when` holds of."""

    def wait(*given: Any) -> None:
        assert not when(*given) or event.wait(LONG_S)

    return wait


class Hang:
    """A place where a thread stands until `end`. Every thread that comes there later passes."""

    def __init__(self) -> None:
        self.has_begun = threading.Event()
        self._is_over = threading.Event()

    def __call__(self, *given: object) -> None:
        if not self.has_begun.is_set():
            self.has_begun.set()
            assert self._is_over.wait(LONG_S)

    def wait(self) -> None:
        assert self.has_begun.wait(LONG_S)

    def end(self) -> None:
        self._is_over.set()


class SharedClock(ManualClock):
    """A hand-turned clock for several threads, which counts the pauses on it."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()  # of the reading, and of the field below
        self._waited_on: list[threading.Condition] = []
        self.wakes_at = math.inf
        """The end of the last wait on a condition, if nothing happens before."""
        self.pauses = 0
        self.on_sleep: Callable[[], object] = lambda: None

    def sleep(self, seconds: float) -> None:
        self.on_sleep()
        self.pauses += 1
        super().sleep(seconds)

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        """Pause; if the event is set meanwhile, no time goes by."""
        self.on_sleep()
        self.pauses += 1
        return super().wait(event, timeout_s)

    def wait_on(self, changed: threading.Condition, timeout_s: float) -> None:
        """Return when `changed` is notified, as it is whenever the clock is turned."""
        with self._lock:
            if changed not in self._waited_on:
                self._waited_on.append(changed)
                return  # the clock may have been turned since the caller looked at it
            self.wakes_at = self.monotonic() + timeout_s
        changed.wait()

    def turn_until(self, condition: Callable[[], bool]) -> None:
        """Turn the clock to the end of one wait on a condition after the other, until this holds."""

        def is_waited_for() -> bool:
            return condition() or self.monotonic() < self.wakes_at < math.inf

        wait_until(is_waited_for, LONG_S, "somebody waits for the clock")
        while not condition():
            self.advance(self.wakes_at - self.monotonic())
            wait_until(is_waited_for, LONG_S, "somebody waits for the clock")

    def advance(self, seconds: float) -> None:
        with self._lock:
            super().advance(seconds)
            waited_on = tuple(self._waited_on)
        for changed in waited_on:
            with changed:
                changed.notify_all()


class Panic(BaseException):
    """A panic of a store's native code, which is no Exception."""


class Store(world.MemoryStore):
    """A store for several threads. `steps` are all calls so far; `on_step` is told of each, and may raise."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.on_step: Callable[[str], object] = lambda event: None
        super().__init__(self._take_step, ManualClock())

    def list(self, prefix: str) -> world.Names:
        self._take_step(f"before list {prefix}")
        if self.fails("list"):
            raise JournalUnavailableError(f"cannot list '{prefix}'")
        found = sorted(name for name in tuple(self.objects) if name.startswith(f"{prefix}/"))
        self._take_step(f"after list {prefix}")
        return found

    def fail_at(self, step: str, error: BaseException | None = None) -> None:
        """Raise at each step that begins so, until `on_step` is another one."""
        self.on_step = raising(error or JournalUnavailableError("503"), lambda event: event.startswith(step))

    def once_at(self, step: str, action: Callable[[], object]) -> None:
        """Do this at the next step that begins so."""

        def look(event: str) -> None:
            if event.startswith(step):
                self.calm()
                action()

        self.on_step = look

    def calm(self) -> None:
        """Let steps be steps again."""
        self.on_step = lambda event: None

    def count(self, step: str) -> int:
        """Count steps that begin so."""
        return sum(each.startswith(step) for each in self.steps)

    def puts(self) -> world.Names:
        """Names in the order in which they were put."""
        return [step.split(" ")[2] for step in self.steps if step.startswith("after put ")]

    def _take_step(self, event: str) -> None:
        self.steps.append(event)
        self.on_step(event)


class Sqs:
    """boto3's client over the model, for several threads, and the laws that no call of a sink may break.

    A broken law is an AssertionError in the thread that calls, which the sender hands to its caller.
    """

    def __init__(self, clock: SharedClock, **attributes: str) -> None:
        self.clock = clock
        self._lock = threading.Lock()  # of the model, and of the fields below
        self.model = FifoModel(clock, random.Random(0))
        given = {"QueueName": "q.fifo", "Attributes": {"FifoQueue": "true", **attributes}}
        self.url: str = self.model.call("CreateQueue", given)["QueueUrl"]
        self.calls: list[list[str]] = []
        """The bodies of each call, in the order in which they were made."""
        self.urls: list[str] = []
        """The queue of each call."""
        self.duplicates = 0
        self.may_batch = False
        """True if a call may hold several rows of a group."""
        self._under_way: Counter[tuple[str, str]] = Counter()
        self.most_calls = 0
        """Most calls under way at once."""
        self._now = 0
        self.connect: Callable[[list[str]], object] = lambda bodies: None
        """Told the bodies of a call that finds and reaches SQS, and leaves its process after that, if it still may."""
        self.before: Callable[[list[str]], object] = lambda bodies: None
        """Told the bodies of a call before its effect; may raise what botocore raises, or wait."""
        self.failing: Callable[[str], tuple[str, bool] | None] = lambda body: None
        """The code with which an entry fails, without effect, and whether that is the sender's fault."""
        self.after: Callable[[list[str], Answer], object] = lambda bodies, answer: None
        """Told the answer of a call after its effect; may change it, or raise."""
        self.not_described: BaseException | None = None
        """The error of a request for its settings, if any."""
        self.described: list[str] = []
        """The queue of each such request."""
        self.model.on_event(self._count)

    def options(self, **options: str) -> SinkOptions:
        return parse_sink_options({"queueUrl": self.url, **options})

    def create(self, name: str, **attributes: str) -> str:
        """Create another queue, and return its URL."""
        given = {"QueueName": name, "Attributes": {"FifoQueue": "true", **attributes}}
        url: str = self.model.call("CreateQueue", given)["QueueUrl"]
        return url

    def refuse(self, *bodies: str) -> None:
        """Refuse these rows, and no others."""
        self.failing = lambda body: ("InvalidMessageContents", True) if body in bodies else None

    def fail_once(self, *bodies: str) -> None:
        """Fail these rows in the first call that holds them."""
        self.failing = lambda body: ("InternalError", False) if body in bodies and self.tries(body) == 1 else None

    def lose(self, count: int = 1) -> None:
        """Lose the answers of the next calls."""
        last = len(self.calls) + count
        self.after = raising(LOST, lambda bodies, answer: len(self.calls) <= last)

    def leave_out(self, *ends: str) -> None:
        """Leave entries whose ids end so out of the answer to the next call."""
        first = len(self.calls) + 1

        def leave(bodies: list[str], answer: Answer) -> None:
            if len(self.calls) == first:
                answer["Successful"] = [each for each in answer["Successful"] if not each["Id"].endswith(ends)]

        self.after = leave

    def get_queue_attributes(self, **request: Any) -> Answer:
        self.described.append(request["QueueUrl"])
        if self.not_described:
            raise self.not_described
        return self._call("GetQueueAttributes", request)

    def send_message_batch(self, *, QueueUrl: str, Entries: Entries) -> Answer:
        bodies = [entry["MessageBody"] for entry in Entries]
        groups = [(QueueUrl, entry["MessageGroupId"]) for entry in Entries]
        with self._lock:
            self.calls.append(bodies)
            self.urls.append(QueueUrl)
        self.connect(bodies)
        aws.require_in_time()
        with self._lock:
            self._now += 1
            self.most_calls = max(self.most_calls, self._now)
            self._under_way.update(groups)
            mine = Counter(groups) if self.may_batch else Counter(set(groups))
            crowded = [group for group in set(groups) if self._under_way[group] > mine[group]]
        try:
            what = "two calls" if self.may_batch else "two rows"
            assert not crowded, f"groups with {what} under way: {[group for _, group in crowded]}"
            self.before(bodies)
            answer = self._answer(QueueUrl, Entries)
            self.after(bodies, answer)
            return answer
        finally:
            with self._lock:
                self._under_way.subtract(groups)
                self._now -= 1

    def _answer(self, url: str, entries: Entries) -> Answer:
        failing = {entry["Id"]: self.failing(entry["MessageBody"]) for entry in entries}
        good = [entry for entry in entries if failing[entry["Id"]] is None]
        bad = [
            {"Id": each, "Code": told[0], "SenderFault": told[1], "Message": "no"}
            for each, told in failing.items()
            if told
        ]
        answer = self._call("SendMessageBatch", {"QueueUrl": url, "Entries": good}) if good else {}
        return {"Successful": answer.get("Successful", []), "Failed": [*answer.get("Failed", []), *bad]}

    def _call(self, action: str, request: dict[str, Any]) -> Answer:
        with self._lock:
            try:
                return self.model.call(action, request)
            except SqsError as error:
                raise refusal(error.query_code, error.status, error.message) from None

    def _count(self, event: Any) -> None:
        self.duplicates += event.kind == "duplicate"

    def bodies(self, group: str | None = None, queue: str = "q.fifo") -> list[str]:
        """Return the messages in the queue, oldest first: all, or those of one group."""
        with self._lock:
            found = self.model.messages(queue)
        return [each.draft.body for each in found if group in (None, each.draft.group_id)]

    def tries(self, body: str) -> int:
        """Count calls with the row."""
        return sum(body in call for call in self.calls)


def patched(monkeypatch: pytest.MonkeyPatch, **attributes: str) -> Sqs:
    """Return a queue that every sink made from now on calls."""
    sqs = Sqs(SharedClock(), **attributes)
    monkeypatch.setattr("sqs_fifo_spark.aws.client.sqs_client", lambda config, wait_time_s=0: sqs)
    return sqs


def rows(*bodies: str, form: RowForm = FORM) -> list[OutgoingRow]:
    """Return rows whose group is the letters of the body, such as "a" for "a7"."""
    return rows_of(((group_of(body), body) for body in bodies), form=form)


def group_of(body: str) -> str:
    return body.rstrip("0123456789")


def batch(*bodies: str | None) -> pa.RecordBatch:
    """Return Spark's rows: the group is the letters of the body, the id all of it; those of a row without body "x"."""
    groups = [group_of(body) if body else "x" for body in bodies]
    names = ["body", "messageGroupId", "messageDeduplicationId"]
    ids = [(body or "x")[:100] for body in bodies]
    return pa.RecordBatch.from_arrays([pa.array(each, pa.string()) for each in (bodies, groups, ids)], names)


def rows_of(groups_and_bodies: Iterable[tuple[str, str]], *, form: RowForm = FORM) -> list[OutgoingRow]:
    """Return rows in these groups; their ids are equal where group and body are."""
    values = [
        (body, group, hashlib.md5(f"{group}/{body}".encode()).hexdigest(), None, None)
        for group, body in groups_and_bodies
    ]
    return outgoing(list(zip(*values, strict=True)), form, first_row=1)


def in_trouble(sqs: Sqs, seed: int) -> Callable[[], bool]:
    """Throttle a fifth of the calls, and lose the answers of a fifth; return what says whether something else fails."""
    dice, lock = random.Random(seed), threading.Lock()

    def is_hit() -> bool:
        with lock:
            return dice.random() < 0.2

    def before(bodies: list[str]) -> None:
        if is_hit():
            raise THROTTLED

    def after(bodies: list[str], answer: Answer) -> None:
        if is_hit():
            raise LOST

    sqs.before, sqs.after = before, after
    return is_hit


class Noted(Record):
    """A record in memory, which can fail."""

    def __init__(self, looked_at: float = math.inf) -> None:
        self._looked_at = looked_at
        self.digests: set[bytes] = set()
        self.closed = 0
        self.on_look: Callable[[], object] = lambda: None
        self.on_add: Callable[[list[bytes]], object] = lambda digests: None

    def refresh(self, digests: Iterable[bytes]) -> float:
        self.on_look()
        return self._looked_at

    def is_sent(self, digest: bytes) -> bool:
        return digest in self.digests

    def add(self, digests: Iterable[bytes], *, by: float, at_once: bool = False) -> None:
        new = list(digests)
        self.on_add(new)
        self.digests.update(new)

    def close(self) -> None:
        self.closed += 1


def make(sqs: Sqs, record: Record | None = None, stride: Stride = STRICT) -> Sender:
    return Sender(SinkQueue(sqs.options(), sqs.clock), record or Noted(), sqs.clock, stride)


def send(sqs: Sqs, given: Iterable[OutgoingRow], record: Record | None = None, stride: Stride = STRICT) -> Sender:
    """Send the rows to the end, and return who did."""
    sender = make(sqs, record, stride)
    try:
        sender.add(given)
        sender.finish()
    finally:
        sender.stop()
    return sender


def finish(sender: Sender, *bodies: str) -> Sender:
    sender.add(rows(*bodies))
    sender.finish()
    return sender


def digests_of(*bodies: str) -> set[bytes]:
    """Return what the record is told of these rows."""
    return {row.digest for row in rows(*bodies)}


class Task:
    """A call in a thread of its own; `error` is what it fails with."""

    def __init__(self, call: Callable[[], object]) -> None:
        self.error: BaseException | None = None
        self._call = call
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._call()
        except BaseException as error:
            self.error = error

    def is_over(self) -> bool:
        return not self._thread.is_alive()

    def end(self) -> BaseException | None:
        """Wait until it is over, and return what it fails with."""
        self._thread.join(LONG_S)
        assert self.is_over(), "it waits for ever"
        return self.error


def threads() -> list[str]:
    """The threads of all senders that still run."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("sqs-fifo-send")]


def wait_for_threads() -> None:
    """Wait until the senders' threads have ended by themselves, those that were abandoned, too."""
    wait_until(lambda: threads() == [], LONG_S, "the senders' threads end by themselves")


def failure(kind: type[SqsFifoError], call: Callable[..., object], *given: Any, **named: Any) -> str:
    """Return the one line of the error of this very class with which `call` fails, after a journey to the driver."""
    with raises_one_line(SqsFifoError) as told:
        call(*given, **named)
    copy = pickle.loads(pickle.dumps(told.value))
    assert (type(copy), str(copy)) == (kind, str(told.value))
    return str(copy)


def numbered(group: str, count: int) -> list[str]:
    return [f"{group}{number}" for number in range(1, count + 1)]


def dealt(groups: int, each: int) -> list[str]:
    """Bodies "a1", "b1", ... "a2", ...: group by group in turn."""
    names = [f"{chr(97 + number % 26)}{chr(97 + number // 26)}" for number in range(groups)]
    return [f"{name}{number}" for number in range(1, each + 1) for name in names]
