"""The deal that all tasks of a plan have in common: its size, its place, and its end."""

from __future__ import annotations

import pickle
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from sqs_fifo_spark.errors import EpochSettledError, FencedError, JournalCorruptError
from sqs_fifo_spark.journal.file_store import FileStore
from sqs_fifo_spark.options import parse_source_options
from sqs_fifo_spark.source.driver.planning import deal_out, plan_partitions
from sqs_fifo_spark.source.journal_objects import Journal
from sqs_fifo_spark.source.message import Receipt, from_sqs, to_arrow
from sqs_fifo_spark.source.offset import Offset
from sqs_fifo_spark.source.plan import Deal, PartitionPlan, Remainder, Share, deal_of, publish
from sqs_fifo_spark.source.reader import SqsFifoPartition
from sqs_fifo_spark.source.segment import Chain, Head, Origin, Segment, decode, encode
from sqs_fifo_spark.source.task import partition
from sqs_fifo_spark.source.task.partition import read_partition
from tests.helpers import raises_one_line
from tests.unit.aws.answering import sqs_message
from tests.unit.by_hand import Query, World, in_both_modes, with_options

pytestmark = pytest.mark.law("source-3")

CAUGHT = "epochs/00000000000000000007/caught-00000000000000000000"


@pytest.fixture
def in_the_journal() -> Iterator[None]:
    """Each deal is too long for the plans."""
    with mock.patch("sqs_fifo_spark.source.plan.LONGEST_INLINE", 0):
        yield


# Sizes


def plan_much(tmp_path: Path, groups: int = 1_000, count: int = 20) -> tuple[Deal, list[PartitionPlan], Journal]:
    """Plan an epoch to which this many groups are carried, a hundred in each object, with 10,000 marks."""
    carried = {}
    for number in range(groups // 100):
        receipts = tuple(
            Receipt(uuid.uuid4().hex, "handle", uuid.uuid4().hex, 100 * number + each, 2, 0, 0.0, 0)
            for each in range(100)
        )
        head = Head(Origin("j", 6, groups // 100, number, uuid.uuid4().hex, 0, ""), receipts, sizes=(9,) * 100)
        carried[Journal.segment_name(6, number, 0)] = Remainder(head, tuple(range(100)))
    journal = Journal(FileStore(tmp_path), "j")
    marks = frozenset(uuid.uuid4().hex for _ in range(10_000))
    deal = deal_out(carried, count, max_messages=groups, skipped=marks, is_replay=True)
    offset = Offset("j", 7, count)
    deal_in_plans = publish(deal, journal, offset)
    limits = {"expected": 1, "max_messages": groups, "max_bytes": 1}
    plans = plan_partitions(offset, after="", deal=deal, deal_in_plans=deal_in_plans, claim=0, deletes=False, **limits)
    return deal, plans, journal


@pytest.mark.slow
def test_plans_do_not_grow_with_what_is_carried(tmp_path: Path) -> None:
    """Spark's driver keeps each plan's pickle: all of an epoch have 2 MB, and 1 KiB for each partition."""
    deal, plans, journal = plan_much(tmp_path, 100_000, 1_000)
    assert sum(len(pickle.dumps(SqsFifoPartition(plan))) for plan in plans) <= 2_000_000 + 1_024 * len(plans)
    assert deal_of(plans[0], journal) == deal


def test_tasks_read_few_objects_whole(tmp_path: Path) -> None:
    """Groups are dealt out by the objects that hold them; by their names, each task would read nearly all objects."""
    deal, plans, _ = plan_much(tmp_path)
    assert len(plans) <= len(deal.shares) <= len({share.name for share in deal.shares}) + len(plans)


@pytest.mark.parametrize("partitions", [1, 16, 500])
def test_a_short_deal_stands_in_the_plans(tmp_path: Path, partitions: int) -> None:
    """It takes no call to the journal; all plans together have a MiB at most."""
    journal = Journal(FileStore(tmp_path), "j")
    inline = []
    for groups in (0, 30, 300, 30_000):
        deal = Deal(groups={uuid.uuid4().hex: 0 for _ in range(groups)})
        deal_in_plans = publish(deal, journal, Offset("j", 1, partitions))
        if isinstance(deal_in_plans, bytes):
            assert len(deal_in_plans) <= min(1 << 16, (1 << 20) // partitions)
            assert Deal.decode(deal_in_plans) == deal
            inline.append(groups)
    assert inline == ([0, 30] if partitions == 500 else [0, 30, 300])


# In the journal


def deals(world: World) -> list[str]:
    return world.store.under("plans/")


@in_both_modes
@pytest.mark.usefixtures("in_the_journal")
def test_a_long_deal_stands_in_the_journal_until_its_epoch_is_settled(world: World) -> None:
    """Also where the answer to its put is lost; and a new driver drops those of the drivers before it."""
    world.send("a1", "b1")
    world.store.lies_about = lambda name: "deny" if name.startswith("plans/") else ""
    _, plans = world.planned()
    (name,) = {plan.deal for plan in plans}
    assert deals(world) == [name]
    world.die()
    query = Query(world)
    query.run(0)
    assert len(deals(world)) == 1
    assert deals(world) != [name]
    query.drain()
    assert deals(world) == []
    world.audit()


@pytest.mark.usefixtures("in_the_journal")
def test_a_driver_that_is_overtaken_drops_no_newer_deal(world: World) -> None:
    """It stands still before it looks for what is to be dropped; meanwhile the next one has planned. So it stops."""
    world.send("a1")
    plans: list[PartitionPlan] = []
    world.do_at("before list plans", lambda: plans.extend(world.planned()[1]))
    with pytest.raises(FencedError):
        Query(world).claim()
    assert [row.body for plan in plans for row in world.read(plan)] == ["a1"]


@pytest.mark.usefixtures("in_the_journal")
@with_options(numPartitions="1", waitTimeSeconds="1")
def test_a_deal_that_is_gone_is_not_taken_for_an_empty_one(world: World) -> None:
    """Else messages would overtake what it decides. The query stops, and plans the epoch anew at its next start.

    Somebody has removed it, and deleted what it decides from the queue, so that SQS hands out what follows.
    """
    world.send(*(f"c{number}" for number in range(10)))
    query, (plan,) = world.planned()
    for name in world.carried(plan):
        receipts = decode(world.store.objects[name], name).head.receipts
        world.delete_elsewhere(*(each.receipt_handle for each in receipts))
    world.send("c10")
    for name in deals(world):
        del world.store.objects[name]
    with pytest.raises(EpochSettledError):
        query.run(0)
    world.restart(down_s=0)


@pytest.mark.usefixtures("in_the_journal")
def test_a_deal_that_is_damaged_is_not_used(world: World) -> None:
    """Its name has a checksum, so nothing that somebody else has written there is parsed."""
    world.send("a1")
    query, plans = world.planned()
    name = str(plans[0].deal)
    world.store.objects[name] = Deal(reserved=frozenset("a")).encode()
    with raises_one_line(JournalCorruptError, match="a checksum does not match"):
        query.run(0)


@pytest.mark.usefixtures("in_the_journal")
def test_a_whole_chain_is_served_without_its_deal(world: World) -> None:
    """A second read needs nothing but links, unless something was moved aside."""
    query = world.served("a1")
    for name in deals(world):
        del world.store.objects[name]
    assert [row.body for plan in query.plans(0) for row in world.read(plan)] == ["a1"]


@pytest.mark.usefixtures("in_the_journal")
def test_a_leftover_whose_deal_was_dropped_is_told_that_it_is_fenced(world: World) -> None:
    """The deal went with the start of the driver that has overtaken its own."""
    world.send("a1")
    _, plans = world.planned()
    Query(world).resume()
    with pytest.raises(FencedError):
        world.read(plans[0])


@pytest.mark.usefixtures("in_the_journal")
def test_so_is_one_that_finds_a_whole_chain(world: World) -> None:
    """It needs the deal for what was moved aside. Its epoch is not committed, and nobody has removed anything."""
    world.served("a1", "a2")
    world.die()
    world.journal().put_skip(world.sent[0].message_id, {})
    plans = Query(world).resume().plans(0)
    assert [row.body for row in world.read(plans[0])] == ["a2"]
    Query(world).claim()
    with pytest.raises(FencedError):
        world.read(plans[0])


# What Spark gets


def segment(*bodies: str, partition: int = 0, name: str = "w") -> Segment:
    messages = [from_sqs(sqs_message(*each), receive=0, received_at=0.0) for each in enumerate(bodies)]
    origin, sizes = Origin("j", 7, 1, partition, name, 0, ""), tuple(each.size for each in messages)
    head = Head(origin, tuple(each.receipt for each in messages), chain=Chain(is_last=True), sizes=sizes)
    return Segment(head, to_arrow(messages))


class OneLink(FileStore):
    """A journal with one link, where a read of what was caught hangs."""

    def __init__(self, path: Path, link: Segment) -> None:
        super().__init__(path)
        self.put_if_absent(Journal.segment_name(7, 0, 0), encode(link))
        self.asked, self.go_on = threading.Event(), threading.Event()

    def get(self, name: str) -> bytes | None:
        if name == CAUGHT:
            self.asked.set()
            self.go_on.wait(60)
        elif name.startswith("epochs/"):
            self.asked.wait(60)
        return super().get(name)


def read_one_link(tmp_path: Path, link: Segment, monkeypatch: pytest.MonkeyPatch) -> tuple[list[int], OneLink]:
    """Return how many bytes each batch for Spark has."""
    options = parse_source_options({"queueUrl": "http://localhost:1/0/q.fifo", "journalLocation": "/j"})
    store = OneLink(tmp_path, link)
    monkeypatch.setattr(partition, "_journal", lambda *given: Journal(store, "j"))
    deal = Deal((Share(0, CAUGHT, "w", (0,)),))
    plan = PartitionPlan("j", 7, 1, 0, 10, 1 << 20, 0, "", 0, False, 0, deal.encode(), False)
    return [batch.nbytes for batch in read_partition(options, plan)], store


def test_an_attempt_at_a_chain_that_has_begun_waits_for_no_read_of_what_is_carried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may take long, and the chain has what is carried."""
    _, store = read_one_link(tmp_path, segment("x"), monkeypatch)
    assert store.asked.is_set()
    reading = [each for each in threading.enumerate() if each.name.startswith("sqs-fifo-begin") and each.is_alive()]
    store.go_on.set()
    assert reading


def test_a_batch_for_spark_is_bounded_in_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message may have 1 MiB; a link, a thousand of them. Here, all is a sixteenth of that."""
    most, link = partition.BYTES_PER_BATCH, segment(*("x" * (1 << 16) for _ in range(50)), "y")
    assert most <= 16 << 20
    monkeypatch.setattr(partition, "BYTES_PER_BATCH", most // 16)
    sizes, store = read_one_link(tmp_path, link, monkeypatch)
    store.go_on.set()
    assert sum(sizes) >= 50 << 16
    assert max(sizes) <= 1 << 20
    assert len(sizes) <= 8
