"""The simulated world, with every step and every second of it in the hands of a test.

Heartbeats are beaten when time passes, and what shall happen at a step is done on the spot, inside of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import pytest

from sqs_fifo_spark.errors import DataLossError
from sqs_fifo_spark.source.lease import Lease
from sqs_fifo_spark.source.offset import Offset
from sqs_fifo_spark.source.plan import PartitionPlan
from sqs_fifo_spark.source.pool import Answer, CallingThread
from tests.helpers import raises_one_line
from tests.manual_clock import ManualClock
from tests.simulation import spark
from tests.simulation import world as simulated
from tests.simulation.hub import Crash
from tests.simulation.spark import read
from tests.simulation.world import LAPSE_S, Checkpoint, Row

T = TypeVar("T")
MakeWorld = Callable[..., "World"]
MODES = ("commit", "journal")
"""The values of `deleteAfter`."""


def unread(*batches: int) -> Callable[[int, int], range | None]:
    """Return what a query `reads` when nobody looks at the rows of these micro-batches."""
    return lambda batch, count: None if batch in batches else range(count)


def with_options(**options: str) -> pytest.MarkDecorator:
    """Give the test a world with these options."""
    return pytest.mark.parametrize("world", [options], indirect=True, ids=["-".join(options.values())])


def in_both_modes_with(**options: str) -> pytest.MarkDecorator:
    """For a law that holds whenever messages are deleted, in a world with these options."""
    worlds = [{"deleteAfter": mode, **options} for mode in MODES]
    return pytest.mark.parametrize("world", worlds, indirect=True, ids=MODES)


in_both_modes = in_both_modes_with()

STARTS: list[dict[str, Any]] = [{}, {"tells_start": False}, {"tells_start": False, "is_wrapped": True}]
"""The start of a query by Spark 4.2, by 4.0, and by 4.0 with its wrapper for AvailableNow."""
WRAPPED = STARTS[2]
however_started = pytest.mark.parametrize("how", STARTS, ids=["4.2", "4.0", "4.0 wrapped"])


class HandHeartbeat:
    """`Heartbeat` without its thread: `World.pass_time` beats all that are started."""

    live: list[HandHeartbeat]

    def __init__(
        self, lease: Lease, clock: ManualClock, *, every_s: float, discover: Callable[[], None] | None = None
    ) -> None:
        self._lease = lease
        self._discover = discover
        self._failure: Exception | None = None

    def start(self) -> None:
        if self not in self.live:
            self.live.append(self)

    def stop(self) -> None:
        if self in self.live:
            self.live.remove(self)

    def check(self) -> None:
        if self._failure is not None:
            self._failure = None
            self._beat()

    def beat(self) -> None:
        try:
            self._beat()
        except Exception as error:
            self._failure = error

    def _beat(self) -> None:
        if self._discover is not None:
            self._discover()
        self._lease.renew()


class World(simulated.World):
    """A queue, a journal, a checkpoint and a sink: what is left when processes die."""

    def __init__(self, seed: int = 0, **options: str) -> None:
        super().__init__(seed, **options)  # type: ignore[arg-type]
        self.poll = self.pass_time

    @property
    def offsets(self) -> list[Offset]:
        return self.checkpoint.offsets

    @property
    def committed(self) -> set[int]:
        return self.checkpoint.committed

    @property
    def sink(self) -> dict[int, dict[int, list[Row]]]:
        return self.checkpoint.sink

    # Time, and what is done at a step

    def beat(self) -> None:
        """Let every live heartbeat beat."""
        for heartbeat in list(HandHeartbeat.live):
            heartbeat.beat()

    def pass_time(self, seconds: float) -> None:
        """Let time pass with every live heartbeat beating."""
        while seconds > 0:
            share = min(seconds, self.options.heartbeat_s)
            self.clock.advance(share)
            seconds -= share
            self.beat()

    def do_at(self, wanted: str, action: Callable[[], object]) -> None:
        """Do something once, at the step that begins with `wanted`."""

        def on_step(event: str) -> None:
            if event.startswith(wanted):
                self.on_step = lambda event: None
                action()

        self.on_step = on_step

    def crash_at(self, wanted: str, occurrence: int = 1) -> None:
        """Kill whoever takes the step that begins with `wanted` for the `occurrence`th time from now."""
        left = occurrence

        def on_step(event: str) -> None:
            nonlocal left
            if event.startswith(wanted):
                left -= 1
                if left == 0:
                    self.on_step = lambda event: None
                    raise Crash(event)

        self.on_step = on_step

    def crash(self, at: str, run: Callable[[], object], occurrence: int = 1) -> None:
        """Let a process do `run` up to the step that begins with `at`, where it dies."""
        self.crash_at(at, occurrence)
        with pytest.raises(Crash):
            run()

    def kill(self, at: str, run: Callable[[], object], occurrence: int = 1, *, down_s: float = 0.0) -> None:
        """Let a process do `run` up to the step that begins with `at`, where all of our processes die for so long."""
        self.crash(at, run, occurrence)
        self.die(down_s=down_s)

    def kill_or_end(self, at: str, run: Callable[[], object], occurrence: int = 1) -> None:
        """As `kill`, until every hold has lapsed; `run` may also come to its end without such a step."""
        self.crash_at(at, occurrence)
        with suppress(Crash):
            run()
        self.on_step = lambda event: None
        self.die(down_s=LAPSE_S)

    def die(self, *, down_s: float = 0.0) -> None:
        """All of our processes are gone, and their heartbeats with them, for so many seconds."""
        HandHeartbeat.live.clear()
        self.step("-- killed")
        self.clock.advance(down_s)

    @contextmanager
    def failing(self, action: str, fault: str = "refused") -> Iterator[None]:
        """Let calls of this action fail meanwhile."""
        self.fault = lambda called: fault if called == action else ""
        yield
        self.fault = lambda called: ""

    @contextmanager
    def answering(self, answer: Callable[[str, dict[str, Any]], Any]) -> Iterator[None]:
        """Let `answer` stand in SQS's place meanwhile; `World.call_sqs(world, ...)` is SQS itself."""
        self.call_sqs = answer  # type: ignore[assignment, method-assign]
        yield
        del self.call_sqs

    # Queries, and what becomes of them

    def served(self, *bodies: str, **how: Any) -> Query:
        """Send these, and return a query that has had its first micro-batch."""
        self.send(*bodies)
        query = Query(self, **how)
        assert query.trigger()
        return query

    def ran(self, *bodies: str, **how: Any) -> None:
        """Send these, and run the query for one micro-batch; then all are dead until every hold has lapsed."""
        self.send(*bodies)
        assert Query(self, **how).resume().trigger()
        self.die(down_s=LAPSE_S)

    def planned(self, limit: int | None = None, **how: Any) -> tuple[Query, list[PartitionPlan]]:
        """Return a query and the plans of its first micro-batch, of at most `limit` messages; nothing is read yet."""
        query = Query(self, **how).resume()
        start = query.start_of(0)
        query.log(query.latest_offset(start) if limit is None else query.driver.latest_offset(start, limit))
        return query, query.plans(0)

    def read(self, plan: PartitionPlan) -> list[Row]:
        """Make one attempt at this partition, and return its rows."""
        return read(self, plan)

    def restart(self, *, down_s: float | None = None, allow_forgotten: bool = False, **how: Any) -> None:
        """Start the query again from its checkpoint, drain and audit; all may be dead for so many seconds before."""
        if down_s is not None:
            self.die(down_s=down_s)
        Query(self, **how).resume().drain_and_audit(allow_forgotten=allow_forgotten)

    def require_refused(self, checkpoint: Checkpoint | None = None, **how: Any) -> None:
        """The query with this checkpoint does not start, for another one has taken the journal; nothing is received."""
        receives = self.calls("ReceiveMessage")
        with raises_one_line(DataLossError, match="belongs to another query, which began on it later"):
            Query(self, checkpoint=checkpoint, **how).resume().trigger()
        assert self.calls("ReceiveMessage") == receives
        self.die(down_s=LAPSE_S)

    def lose_entry(self) -> Offset:
        """Let Spark's log lose its last entry, and return that."""
        lost = self.offsets.pop()
        self.committed.discard(len(self.offsets))
        return lost

    # The queue

    def calls(self, action: str) -> int:
        """Return how often our processes have called this action."""
        return sum(event == f"before {action}" for _, _, event in self.trace)

    def received(self) -> int:
        """Return how many messages all receives have brought."""
        return sum(event.kind == "received" for event in self.events)

    def delete_elsewhere(self, *handles: str) -> None:
        """Let somebody delete the messages that these handles hold, or all that a receive brings."""
        for handle in handles or [each["ReceiptHandle"] for each in self.receive_elsewhere()]:
            self.model.call("DeleteMessage", {"QueueUrl": self.url, "ReceiptHandle": handle})

    def require_held(self, seconds: int) -> None:
        """A plain consumer that never stops asking gets nothing, while all heartbeats beat."""
        for _ in range(seconds):
            self.pass_time(1)
            assert not self.receive_elsewhere()

    # What is found in the end

    def deleted(self) -> list[str]:
        """Bodies of deleted messages, in the order of their deletion."""
        bodies = {row.message_id: row.body for row in self.sent}
        return [bodies[event.message_id] for event in self.events if event.kind == "deleted"]

    def bodies(self) -> list[str]:
        """Bodies in the sink by batch, partition and position."""
        return [row.body for rows in self.rows() for row in rows]

    def rows(self) -> Iterator[list[Row]]:
        return self.checkpoint.rows()

    def audit(self, *, allow_forgotten: bool = False) -> None:
        """Each message once, each group in order and in one partition of a batch, and nothing left behind.

        Where tasks delete, a group may stand in several partitions of a batch, in order in each.

        `allow_forgotten` explains entries of the ledger: a driver that dies after its probe deleted a copy of a
        committed message leaves the id behind, which a later commit removes, or its age.
        """
        counts = Counter(row.message_id for rows in self.rows() for row in rows)
        wrong = {row.body: counts[row.message_id] for row in self.sent if counts[row.message_id] != 1}
        assert not wrong, f"not exactly once in the sink: {wrong}"
        before: dict[str, int] = {}
        for batch in sorted(self.sink):
            places = Counter(group for rows in self.sink[batch].values() for group in {row.group for row in rows})
            in_one = all(count == 1 for count in places.values()) or self.options.delete_after == "journal"
            assert in_one, f"a group in two partitions of batch {batch}"
            after = dict(before)
            for rows in self.sink[batch].values():
                last = dict(before)
                for row in rows:
                    assert row.sequence > last.get(row.group, 0), f"{row.body} out of order in batch {batch}"
                    last[row.group] = row.sequence
                    after[row.group] = max(after.get(row.group, 0), row.sequence)
            before = after
        assert self.depth() == (0, 0), "messages are left in the queue"
        ledger = self.journal().ledger()
        assert not ledger.carried
        assert allow_forgotten or not ledger.unconfirmed


class Query(spark.Query):
    """Spark's order of calls, also in smaller steps."""

    world: World

    def resume(self) -> Query:
        super().resume()
        return self

    def drain(self, limit: int = 400) -> Query:
        super().drain(limit)
        return self

    def claim(self) -> None:
        """Let the driver claim the journal, as it does when Spark has said where the query is."""
        self.driver._owned(self.start_of(0))

    def announce(self) -> None:
        """Let Spark log the next micro-batch, and commit the one before."""
        self.log(self.latest_offset(self.start_of(len(self.offsets))))
        self.startless.commit(self.offsets[-2])

    def announced(self) -> bool:
        """Do as `announce` does, from the first micro-batch on; return False when there is nothing new."""
        batch = len(self.offsets)
        start = self.start_of(batch)
        end = self.latest_offset(start)
        if end == start:
            return False
        self.log(end)
        if batch:
            self.startless.commit(self.offsets[batch - 1])
        return True

    def into_sink(self, rows: dict[int, list[Row]], batch: int = 0) -> None:
        """Let the sink take a micro-batch's rows by partition, and Spark note that it has."""
        self.to_sink(batch, rows)
        self.checkpoint.committed.add(batch)

    def goes_on_alone(self, end: Offset) -> None:
        """Let the next batch have rows of another source only, so that ours is at `end` still, and is committed."""
        batch = len(self.offsets)
        self.log(end)
        self.startless.commit(end)
        self.into_sink({}, batch)

    def play_out(self) -> None:
        """Trigger until there is nothing new."""
        while self.trigger():
            pass

    def drain_and_audit(self, *, allow_forgotten: bool = False) -> None:
        self.drain()
        self.world.audit(allow_forgotten=allow_forgotten)

    def finish(self, rows: list[Row]) -> None:
        """Let the first micro-batch, of one partition, have these rows; drain and audit what follows."""
        self.into_sink({0: rows})
        self.drain_and_audit()


class Late(CallingThread):
    """Makes a call when somebody waits for it."""

    def submit(self, call: Callable[[], T], /) -> Answer[T]:
        return _LateAnswer(call)


class _LateAnswer(Answer[T]):
    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call

    def result(self) -> T:
        return self._call()
