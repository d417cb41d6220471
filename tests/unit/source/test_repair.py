"""A message that an operator moves aside, and what is released: nothing else changes, and nothing is lost."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from sqs_fifo_spark.errors import EpochSettledError, FencedError, JournalUnavailableError
from sqs_fifo_spark.source import repair
from sqs_fifo_spark.source.batches import Outcome
from sqs_fifo_spark.source.journal_objects import Journal
from sqs_fifo_spark.source.queue import Queue
from tests.simulation.hub import Crash
from tests.simulation.world import LAPSE_S
from tests.unit.by_hand import MODES, MakeWorld, Query, World, in_both_modes

pytestmark = pytest.mark.law("source-1", "source-3")


def opened(world: World) -> Journal:
    """The journal, each of whose calls is a step."""
    found = Journal.look(world.store)
    assert found is not None
    return found


def poisoned(world: World, *bodies: str) -> tuple[int, str]:
    """Send these, and let a query die on the first one, after it was read. Return its epoch and its id."""
    first = len(world.sent)
    world.send(*bodies)
    query = Query(world)
    world.kill("-- batch 0 is read", query.trigger)
    return query.offsets[-1].epoch, world.sent[first].message_id


def take_over(world: World, *, after: int | None = None) -> repair.Takeover:
    """Let a command take the journal over."""
    return repair.take_over(opened(world), world.clock, after=after)


def skip(
    world: World, epoch: int, message_id: str, meanwhile: Callable[[], object] = lambda: None
) -> list[pa.RecordBatch]:
    """Move a message aside, with something done just before its mark, and return what was put aside."""
    aside: list[pa.RecordBatch] = []

    def put_aside(row: pa.RecordBatch) -> None:
        aside.append(row)
        meanwhile()

    repair.skip(take_over(world), epoch, message_id, world.clock, to="a list", put_aside=put_aside)
    return aside


def require_all_but(world: World, *skipped: str) -> None:
    """Each message is in the sink once, in order, and deleted; those `skipped` are deleted only."""
    bodies = world.bodies()
    assert sorted(bodies) == sorted(row.body for row in world.sent if row.body not in skipped)
    by_group: dict[str, list[int]] = {}
    for rows in world.rows():
        for row in rows:
            by_group.setdefault(row.group, []).append(row.sequence)
    assert all(numbers == sorted(numbers) for numbers in by_group.values())
    assert world.depth() == (0, 0)


@in_both_modes
def test_the_query_goes_on_without_what_was_moved_aside_and_loses_nothing_else(world: World) -> None:
    """The epoch runs again with all its other rows; the message is put aside whole, and deleted with its epoch."""
    world.send("a1")
    epoch, message_id = poisoned(world, "a2", "a3", "b1", "b2", "c1")
    (aside,) = skip(world, epoch, message_id)
    (row,) = aside.to_pylist()
    assert (row["messageId"], row["body"], row["messageGroupId"]) == (message_id, "a2", "a")
    query = Query(world).resume()
    world.send("a4", "b3")
    query.drain()
    require_all_but(world, "a2")
    told = world.journal().skip_of(message_id)
    assert told is not None
    assert (told["epoch"], told["messageId"], told["to"], told["messageGroupId"]) == (epoch, message_id, "a list", "a")
    assert told["at"].startswith("2023-11-14T")


@in_both_modes
def test_every_read_after_that_is_without_it(world: World) -> None:
    """Several reads of a partition, and another restart, give the same rows."""
    world.send("a1", "a2")
    epoch, message_id = poisoned(world, "a3", "b1")
    skip(world, epoch, message_id)
    query = Query(world)
    world.crash("-- batch 0 is in the sink", query.resume)
    for _ in range(2):
        assert {index: query.read(plan) for index, plan in enumerate(query.plans(0))} == world.sink[0]
    first = world.sink.pop(0)
    world.die()
    Query(world).resume().drain()
    assert world.sink[0] == first
    require_all_but(world, "a3")


@in_both_modes
def test_it_stays_aside_for_a_query_with_a_new_checkpoint(world: World) -> None:
    """Then its message comes from SQS, or from the journal, once more: it is not served there either."""
    epoch, message_id = poisoned(world, "a1", "a2", "b1")
    skip(world, epoch, message_id)
    world.checkpoint.offsets.clear()
    world.pass_time(LAPSE_S)
    Query(world).drain()
    require_all_but(world, "a1")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("limit", [{"maxMessagesPerTrigger": "3"}, {"maxBytesPerTrigger": "6"}], ids=["count", "bytes"])
def test_what_stands_aside_takes_no_place_in_a_micro_batch(
    make_world: MakeWorld, mode: str, limit: dict[str, str]
) -> None:
    """Progress: be it as much as the limit, and all that a query without a checkpoint takes over."""
    world = make_world(deleteAfter=mode, numPartitions="1", **limit)
    epoch, _ = poisoned(world, "a1", "a2", "a3")
    for row in world.sent:
        skip(world, epoch, row.message_id)
    world.checkpoint.offsets.clear()
    world.die(down_s=LAPSE_S)
    world.served("a4", "b1")
    assert world.bodies() == ["a4", "b1"]
    world.die()
    Query(world).resume().drain()
    require_all_but(world, "a1", "a2", "a3")


@pytest.mark.parametrize("step", ["before put skipped/", "after put skipped/"])
def test_a_crash_while_it_is_moved_leaves_it_in_one_place_at_least(world: World, step: str) -> None:
    """Before the mark, the query serves it as before; after it, it stands aside. The command may run again."""
    epoch, message_id = poisoned(world, "a1", "a2")
    aside: list[pa.RecordBatch] = []
    taken = take_over(world)
    world.crash(step, lambda: repair.skip(taken, epoch, message_id, world.clock, to="a list", put_aside=aside.append))
    assert len(aside) == 1
    is_marked = step.startswith("after")
    assert (world.journal().skip_of(message_id) is not None) is is_marked
    world.die()
    Query(world).resume().drain()
    require_all_but(world, *["a1"] if is_marked else [])


def test_what_cannot_be_put_aside_stays_where_it_is(world: World) -> None:
    """Where its copy fails, it is not marked."""
    epoch, message_id = poisoned(world, "a1", "a2")

    def fail() -> None:
        raise JournalUnavailableError("no space left")

    with pytest.raises(JournalUnavailableError):
        skip(world, epoch, message_id, fail)
    assert world.journal().skip_of(message_id) is None
    Query(world).resume().drain()
    require_all_but(world)


def test_a_committed_epoch_and_an_unknown_message_are_refused(world: World) -> None:
    """One line for each, and nothing is marked."""
    epoch, message_id = poisoned(world, "a1")
    with pytest.raises(repair.NoSuchMessageError, match="has no message 'another'"):
        skip(world, epoch, "another")
    with pytest.raises(repair.NoSuchMessageError, match="has no message"):
        skip(world, epoch + 1, message_id)
    Query(world).resume().drain()
    with pytest.raises(EpochSettledError, match=f"epoch {epoch} is settled"):
        skip(world, epoch, message_id)
    assert not world.journal().skipped()


def test_a_query_that_runs_after_all_stops_and_the_next_one_goes_on(world: World) -> None:
    """Whoever takes the journal over fences its driver, at the latest with its next commit, idle or not."""
    query = world.served("a1", "b1")
    take_over(world)
    with pytest.raises(FencedError):
        query.trigger()
    world.die()
    world.pass_time(LAPSE_S)
    idle = Query(world).resume().drain()
    take_over(world)
    world.pass_time(LAPSE_S)
    with pytest.raises(FencedError):
        idle.trigger()
    world.restart(down_s=0)


@pytest.mark.parametrize("is_stopped", [False, True])
def test_a_query_that_starts_before_the_mark_is_told_of(world: World, is_stopped: bool) -> None:
    """It may not know of the mark, and serve the message, perhaps before another command has stopped it."""
    epoch, message_id = poisoned(world, "a1", "a2")

    def start_query() -> None:
        Query(world).resume()
        if is_stopped:
            take_over(world)

    with pytest.raises(FencedError, match="was moved to 'a list' and marked, but a query has opened the journal"):
        skip(world, epoch, message_id, start_query)
    assert world.journal().skip_of(message_id) is not None


def test_what_is_marked_is_not_put_aside_again(world: World) -> None:
    """Whatever place the next call names: the mark says where it is."""
    epoch, message_id = poisoned(world, "a1", "a2")
    assert len(skip(world, epoch, message_id)) == 1
    assert skip(world, epoch, message_id) == []
    Query(world).resume().drain()
    assert skip(world, epoch, message_id) == []  # nor once its epoch is settled
    require_all_but(world, "a1")


@pytest.mark.parametrize("to", ["another list", "a list"], ids=["place", "host"])
def test_two_commands_that_move_it_at_once_say_that_it_is_in_both_places(
    world: World, monkeypatch: pytest.MonkeyPatch, to: str
) -> None:
    """The mark tells of the first place only, so the second command does not end well: nor if the path is the same."""
    epoch, message_id = poisoned(world, "a1", "a2")

    def put_aside_late(row: pa.RecordBatch) -> None:
        with monkeypatch.context() as patch:
            patch.setattr("socket.gethostname", lambda: "elsewhere")
            assert len(skip(world, epoch, message_id)) == 1

    taken = take_over(world)
    told = rf"is in '{to}' \(host .*\), but another command has moved it to 'a list' \(host elsewhere\)"
    with pytest.raises(FencedError, match=told):
        repair.skip(taken, epoch, message_id, world.clock, to=to, put_aside=put_aside_late, is_on_host=True)
    Query(world).resume().drain()
    require_all_but(world, "a1")


@in_both_modes
@pytest.mark.parametrize("deferring", [True, False], ids=["deferred", "caught"])
def test_what_an_epoch_only_holds_for_a_later_one_can_be_moved_too(world: World, deferring: bool) -> None:
    """One that came again is deferred, or caught by the driver: it is found there, and no later epoch serves it."""
    world.send("a1", "b1", "b2")
    world.receive_elsewhere(1, 1)
    world.pass_time(LAPSE_S)
    query = Query(world)
    if not deferring:
        query.drain()
        world.send("a2", "a3")
        world.crash_at("after put epochs/")
    else:
        world.crash_at("-- batch 0 is read")
    with pytest.raises(Crash):
        query.trigger()
    world.die()
    journal = world.journal()
    held = [
        (epoch, receipt.message_id)
        for epoch, names in journal.objects().items()
        for name in names
        for receipt in journal.receipts(name)
        if receipt.deferred or "caught" in name
    ]
    assert held
    epoch, message_id = held[0]
    (aside,) = skip(world, epoch, message_id)
    (body,) = aside.column("body").to_pylist()
    world.pass_time(LAPSE_S)
    Query(world).resume().drain()
    require_all_but(world, body)


@in_both_modes
def test_released_messages_are_to_be_had_at_once_and_are_served_once(world: World) -> None:
    """Nobody waits for the visibility timeout; and the query that goes on serves them from its journal alone."""
    poisoned(world, "a1", "a2", "b1", "b2", "c1")
    queue = Queue(world.options, world.clock)
    is_held = world.options.delete_after == "commit"
    found = repair.release(take_over(world), queue)
    assert (found[Outcome.DONE], found.total()) == (5 * is_held, 5)
    assert world.depth() == (5 * is_held, 0)
    # Again: SQS refuses the handles, for nothing is held by them.
    assert repair.release(take_over(world), queue) == {Outcome.LOST: 5}
    world.restart()


def test_what_a_query_has_taken_back_is_not_released(world: World) -> None:
    """It started after the journal was taken over, so the messages are its own."""
    poisoned(world, "a1", "a2")
    taken = take_over(world)
    Query(world).resume()
    with pytest.raises(FencedError):
        repair.release(taken, Queue(world.options, world.clock))
    assert world.depth() == (0, 2)


def test_a_query_that_starts_while_the_last_one_is_asked_about_keeps_the_journal(world: World) -> None:
    """The claim that was found dead is not the highest any more: nothing is taken over."""
    world.send("a1")
    Query(world).drain()
    owner = world.journal().owner()
    assert owner is not None
    query = Query(world).resume()
    assert not query.trigger()
    with pytest.raises(FencedError, match=r"a query took over the journal at 'memory' .* meanwhile"):
        take_over(world, after=owner.claim)
    world.send("a2")
    query.drain_and_audit()


def test_a_command_that_comes_first_is_not_called_a_query(world: World) -> None:
    """There is nothing to stop or to start again; and what was marked before is moved for good."""
    epoch, message_id = poisoned(world, "a1", "a2")
    taken = take_over(world)

    def run_another(row: pa.RecordBatch) -> None:
        take_over(world)

    assert repair.skip(taken, epoch, message_id, world.clock, to="a list", put_aside=run_another)
    with pytest.raises(FencedError, match=r"another command took over the journal .* Try again\."):
        take_over(world, after=taken.claim)


def test_a_command_does_not_wait_for_another_one(world: World) -> None:
    """Its claim says that it is none of a query."""
    world.send("a1")
    Query(world).drain()
    taken = take_over(world)
    assert repair.require_no_owner(opened(world), world.clock) == taken.claim
