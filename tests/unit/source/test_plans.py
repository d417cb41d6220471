"""Which plan of an epoch is content, and where Spark's offset log may lead."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sqs_fifo_spark.errors import DataLossError, EpochSettledError, FencedError, OptionError
from sqs_fifo_spark.source.journal import Journal
from sqs_fifo_spark.source.offset import Offset
from sqs_fifo_spark.source.segment import decode
from tests.simulation.runs import play
from tests.simulation.spark import Query, read
from tests.simulation.world import LAPSE_S, Checkpoint, Row
from tests.unit.by_hand import World, do_at

pytestmark = pytest.mark.law("source-3")


def sealed(world: World) -> list[str]:
    """Return the bodies in all segments that tasks have put."""
    names = [name for name in world.store.under("epochs/") if Journal.is_link(name)]
    segments = [decode(world.store.objects[name], name) for name in names]
    return [body for segment in segments for body in segment.rows.column("body").to_pylist()]


@pytest.mark.parametrize("seed", [91006130, 91001318, 92012164, 92000726, 970101252])
def test_schedules_that_once_broke_a_law_break_none(seed: int) -> None:
    """Two plans of an epoch; the end of AvailableNow, twice; a claim put again; very many messages at once."""
    assert not play(seed).laws.violations


def test_two_plans_of_an_epoch_are_never_both_served(make_world: Callable[..., World]) -> None:
    """A leftover of the old query's plan seals what it holds, when the new query's plan has it elsewhere."""
    world = make_world(numPartitions="3", waitTimeSeconds="1")
    world.send("d1")
    old = Query(world)
    first = old.latest_offset(old.start_of(0))
    old.log(first)
    (plan, *_) = old.plans(0)
    new = Checkpoint()

    def a_new_query() -> None:
        world.die()
        world.clock.advance(LAPSE_S)  # what the leftover holds
        world.send(*(f"{group}1" for group in "abcefgh"))
        query = Query(world, checkpoint=new).resume()
        end = query.latest_offset(query.start_of(0))
        query.log(end)
        plans = query.plans(0)
        assert (plans[0].epoch, end.partitions) != (plan.epoch, first.partitions)
        rows.update(query.read_all(plans[1:]))
        pending.append((query, plans[0]))

    rows: dict[int, list[Row]] = {}
    pending: list[tuple[Query, object]] = []
    do_at(world, "before put epochs/", a_new_query)
    with pytest.raises(EpochSettledError):
        read(world, plan)
    query, head = pending[0]
    rows.update(query.read_all([head]))  # type: ignore[list-item]
    query.to_sink(0, rows)
    new.committed.add(0)
    query.drain()
    served = [row.body for batch in new.rows() for row in batch]
    assert sorted(served) == sorted({"d1", *(f"{group}1" for group in "abcefgh")})


def test_what_an_old_plan_holds_twice_is_served_once(make_world: Callable[..., World]) -> None:
    """A leftover receives again what its plan carries, and seals both, when another plan is Spark's."""
    world = make_world(numPartitions="1")
    world.send("d1", "d2")
    old = Query(world)
    old.log(old.latest_offset(old.start_of(0)))
    (plan,) = old.plans(0)
    assert world.carried(plan)
    world.die(down_s=LAPSE_S)
    new = Checkpoint()
    query = Query(world, checkpoint=new)
    do_at(world, "before put epochs/", lambda: query.start_of(0))
    with pytest.raises(FencedError):
        read(world, plan)  # the leftover
    start = query.start_of(0)
    world.send("a1")
    end = query.latest_offset(start)
    query.log(end)
    query.run(0)
    query.drain()
    assert sorted(row.body for rows in new.rows() for row in rows) == ["a1", "d1", "d2"]


def test_the_wrapper_around_available_now_never_takes_the_log_back(make_world: Callable[..., World]) -> None:
    """Spark 4.0 and 4.1: the latest offset is asked for before an unfinished batch is run again."""
    world = make_world(numPartitions="1")
    world.send(*(f"a{number}" for number in range(1, 25)))
    query = Query(world, tells_start=False).resume()
    assert query.trigger()
    query.log(query.latest_offset(query.start_of(1)))  # and it dies before `commit`
    world.die()
    for _ in range(3):
        query = Query(world, tells_start=False, is_wrapped=True).resume()
        assert query.trigger()
        assert not query.trigger()
        world.die()
    epochs = [offset.epoch for offset in world.offsets]
    assert epochs == sorted(set(epochs))
    assert len(world.bodies()) == 24
    Query(world, tells_start=False).resume().drain()
    world.audit()


def test_what_spark_was_never_given_is_given_back_and_not_deleted(make_world: Callable[..., World]) -> None:
    """A new query on an old journal that is asked for its offset in the dark: nothing of the old epochs is lost."""
    world = make_world(numPartitions="1")
    world.send("a1", "a2")
    old = Query(world, checkpoint=Checkpoint())
    assert old.trigger()
    world.die(down_s=LAPSE_S)
    query = Query(world, tells_start=False, is_wrapped=True).resume()
    assert query.trigger()
    world.die()
    assert world.deleted() == []
    Query(world, tells_start=False).resume().drain()
    world.audit()


def test_where_nobody_can_tell_what_was_committed_one_line_says_so(make_world: Callable[..., World]) -> None:
    """An epoch announced in the dark, whose rows were never read, after a crash: neither a loss nor a doubling."""
    world = make_world(numPartitions="1")
    world.send("a1", "a2")
    query = Query(world, tells_start=False)
    assert query.trigger()
    world.die()
    query = Query(world, tells_start=False, is_wrapped=True).resume()
    query.log(query.latest_offset(query.start_of(1)))  # and it dies before `commit`
    world.die()
    query = Query(world, tells_start=False, reads=lambda batch, count: None).resume()
    with pytest.raises(DataLossError, match="nobody can tell whether Spark has committed epoch 1") as told:
        query.trigger()
    assert "\n" not in str(told.value)
    assert world.deleted() == []


def test_an_offset_log_that_goes_back_is_told_in_one_line(world: World) -> None:
    """Whatever wrote it: nothing is served twice, and the line says what to do."""
    world.send("a1")
    query = Query(world)
    assert query.trigger()
    journal = world.offsets[0].journal
    with pytest.raises(DataLossError, match="goes back, from epoch 5 to epoch 2") as told:
        query.startless.plan(Offset(journal, 5, 1, 1, generation=1), Offset(journal, 2, 1, 1, generation=1))
    assert "\n" not in str(told.value)


def test_reading_on_without_a_commit_is_refused(world: World) -> None:
    """Asynchronous progress tracking commits late and skips epochs; their messages would be deleted too early."""
    world.send("a1")
    query = Query(world)
    assert query.trigger()
    world.send("b1")
    end = query.latest_offset(world.offsets[0])
    query.log(end)
    with pytest.raises(OptionError, match="'asyncProgressTrackingEnabled'") as told:
        query.startless.plan(world.offsets[0], end)
    assert "\n" not in str(told.value)
    assert world.deleted() == []


def test_of_two_who_commit_an_epoch_the_second_stops(world: World) -> None:
    """It looked at its claim in time, and found the ledger written: what stands there may say something else."""
    world.send("a1")
    older = Query(world)
    assert older.trigger()
    end = older.latest_offset(world.offsets[0])
    older.log(end)

    def rival() -> None:
        Query(world).resume()

    do_at(world, "before put ledger/", rival)
    with pytest.raises(FencedError):
        older.startless.commit(world.offsets[0])
    world.die()
    Query(world).resume().drain()
    world.audit()


def test_what_a_leftover_of_another_query_seals_ahead_is_never_served(make_world: Callable[..., World]) -> None:
    """Its message comes from the queue again, is served and deleted; the object is dropped."""
    world = make_world(numPartitions="1")
    world.send("a1")
    old = Query(world, checkpoint=Checkpoint(), tells_start=False, is_wrapped=True).resume()
    old.log(old.latest_offset(old.start_of(0)))
    (plan,) = old.plans(0)
    world.die()
    query = Query(world)
    do_at(world, "before put epochs/", lambda: query.resume().trigger())
    world.send("z1")
    with pytest.raises((EpochSettledError, FencedError)):
        read(world, plan)
    assert "z1" in sealed(world)
    world.clock.advance(LAPSE_S)
    query.drain()
    world.die()
    Query(world).resume().drain()
    world.audit()


def test_a_group_of_which_a_task_got_what_is_carried_to_another_comes_in_order(
    make_world: Callable[..., World],
) -> None:
    """Our hold on its head was lost, so its tail comes in order, from the queue."""
    world = make_world(numPartitions="2", maxMessagesPerTrigger="7")
    world.send("px1", "qx1", "rx1", "sx1")
    world.receive_elsewhere(10, 20)
    world.send("tx1")
    world.receive_elsewhere(10, LAPSE_S)
    world.send("a1", "a2", "a3")
    do_at(world, "after ReceiveMessage", lambda: world.send(*(f"ux{number}" for number in range(1, 7))))
    query = Query(world)
    query.log(query.latest_offset(query.start_of(0)))
    (other,) = (plan for plan in query.plans(0) if not world.carried(plan))
    held = world.receive_elsewhere(10, 43_000)
    world.clock.advance(LAPSE_S + 1)

    def attempt(further: int) -> None:
        if further:
            do_at(world, "before put epochs/", lambda: attempt(further - 1))
        read(world, other)

    attempt(3)
    query.to_sink(0, {})
    world.committed.add(0)
    for batch in (1, 2, 3):
        query.log(query.latest_offset(query.start_of(batch)))
        query.startless.commit(world.offsets[batch - 1])
        query.run(batch)
        if batch == 1:
            world.clock.advance(LAPSE_S)
            world.receive_elsewhere(10, 100)
    for message in held:
        release = {"QueueUrl": world.url, "ReceiptHandle": message["ReceiptHandle"], "VisibilityTimeout": 0}
        world.model.call("ChangeMessageVisibility", release)
    world.clock.advance(101)
    query.drain()
    world.audit()


def test_what_spark_committed_unread_is_never_taken_for_a_leftovers_segment(make_world: Callable[..., World]) -> None:
    """A crash before the commit; the log's plan has no object, another query's leftover has: nothing is deleted."""
    world = make_world(numPartitions="1")
    world.send("a1")
    old = Query(world, checkpoint=Checkpoint())
    old.log(old.latest_offset(old.start_of(0)))
    (plan,) = old.plans(0)
    world.die(down_s=LAPSE_S)
    query = Query(world, reads=lambda batch, count: None)

    def a_new_query() -> None:
        world.send("y1")
        assert query.resume().trigger()

    do_at(world, "before put epochs/", a_new_query)
    world.send("z1", "z2")
    with pytest.raises((EpochSettledError, FencedError)):
        read(world, plan)
    assert {"z1", "z2"} <= set(sealed(world))
    query.log(query.latest_offset(query.start_of(1)))  # and it dies before `commit`
    world.die(down_s=LAPSE_S)
    query = Query(world, reads=lambda batch, count: None if batch < 2 else range(count)).resume()
    query.drain()
    world.audit()


def test_an_epoch_that_was_read_and_never_committed_is_not_passed_over(make_world: Callable[..., World]) -> None:
    """Nor if nobody looks at the rows of the next one, so that its plan is never asked for."""
    world = make_world(numPartitions="1")
    world.send("a1", "a2")
    query = Query(world, reads=lambda batch, count: None if batch == 2 else range(count))
    query.trigger()
    world.send("a3", "a4")
    query.trigger()
    query.log(query.latest_offset(query.start_of(2)))
    query.run(2)
    world.send("b1")
    with pytest.raises(OptionError, match="Spark plans epoch 3 and has not committed epoch 2"):
        query.trigger()
    world.die(down_s=31)
    Query(world).resume().drain()
    world.audit()
