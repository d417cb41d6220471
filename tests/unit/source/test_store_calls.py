"""An epoch waits for few calls to the journal's store in a row: on an object store each takes long."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from sqs_fifo_spark.source.pool import Answer, Pool
from tests.unit.by_hand import Query, World, in_both_modes

S = TypeVar("S")
T = TypeVar("T")


class InARow:
    """Counts the store's calls in a row: those that pools make at once count as the longest of them."""

    def __init__(self, world: World) -> None:
        self.count = 0
        for name in ("get", "get_range", "list", "put_if_absent", "delete"):
            setattr(world.store, name, self._counted(getattr(world.store, name)))
        world.pool = lambda name, threads: AtOnce(self)

    def _counted(self, call: Callable[..., T]) -> Callable[..., T]:
        def counted(*given: Any) -> T:
            self.count += 1
            return call(*given)

        return counted

    def of(self, call: Callable[[], object]) -> int:
        before = self.count
        call()
        return self.count - before


class AtOnce(Pool):
    """Makes a call when it is submitted, but counts it only as far as it goes on longer than what is made meanwhile."""

    def __init__(self, in_a_row: InARow) -> None:
        self._in_a_row = in_a_row

    def submit(self, call: Callable[[], T], /) -> Answer[T]:
        return Ahead(self._in_a_row, call)

    def map(self, call: Callable[[S], T], items: Iterable[S], /) -> Iterable[T]:
        answers = [self.submit(lambda item=item: call(item)) for item in items]  # type: ignore[misc]
        return [answer.result() for answer in answers]


class Ahead(Answer[T]):
    def __init__(self, in_a_row: InARow, call: Callable[[], T]) -> None:
        self._in_a_row = in_a_row
        before = in_a_row.count
        self._result = call()
        self._over, in_a_row.count = in_a_row.count, before

    def result(self) -> T:
        self._in_a_row.count = max(self._in_a_row.count, self._over)
        return self._result


OPTIONS = {"numPartitions": "2"}


@in_both_modes
def test_an_epoch_waits_for_few_calls_in_a_row(world: World) -> None:
    """The driver: objects and their heads, claim; ledger, claim. A task: what its chain has, the put, the ledger."""
    in_a_row = InARow(world)
    query = Query(world)
    for number in range(1, 4):
        world.send(*(f"{group}{number}" for group in "abcd"))
        assert query.trigger()
    world.send("a4", "b4", "c4", "d4")
    start = query.start_of(3)
    announcing = in_a_row.of(lambda: query.log(query.latest_offset(start)))
    committing = in_a_row.of(lambda: query.startless.commit(start))
    planning = in_a_row.of(lambda: query.plans(3))
    assert (announcing, committing, planning) == (3, 2, 0)
    rows = []
    deletes = world.options.delete_after == "journal"
    for plan in query.plans(3):
        assert in_a_row.of(lambda plan=plan: rows.extend(world.read(plan))) <= (7 if deletes else 3)  # type: ignore[misc]
    assert sorted(row.body for row in rows) == ["a4", "b4", "c4", "d4"]


def test_a_start_waits_for_few_calls_in_a_row(world: World) -> None:
    """Journal, claim and ledger in turn; what stands in the journal all at once; a new one is checked and made, too."""
    in_a_row = InARow(world)
    new, old = (in_a_row.of(Query(world).claim) for _ in range(2))
    assert (new, old) == (18, 20)
