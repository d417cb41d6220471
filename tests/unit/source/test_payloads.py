"""Payloads on S3 under the source's laws: nothing lost, one content, in order, and each deleted after its message."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast
from unittest import mock

import pyarrow as pa
import pytest

from sqs_fifo_spark.aws.s3 import CONCURRENT_CALLS
from sqs_fifo_spark.errors import EpochSettledError, FencedError, PayloadError
from sqs_fifo_spark.payloads.pointer import SIZE_ATTRIBUTE, Pointer, body_of
from sqs_fifo_spark.source import repair
from sqs_fifo_spark.source.batches import Outcome
from sqs_fifo_spark.source.segment import decode, encode
from sqs_fifo_spark.source.settlement import delete_committed
from tests.helpers import raises_one_line
from tests.simulation.payloads import Bucket
from tests.simulation.world import LAPSE_S
from tests.unit.by_hand import Query, World, in_both_modes_with, with_options
from tests.unit.source.attempts import Attempts
from tests.unit.source.stores import receipt

GIVEN = {"payloads": "s3", "deletePayloads": "true"}
in_both_modes = in_both_modes_with(**GIVEN)
in_both_modes_as_null = in_both_modes_with(**GIVEN, payloadErrors="null")


class Bodies:
    """A bucket in memory to which all bodies go, but for those of group "z"; its reads and deletes are steps."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.objects: dict[str, bytes] = {}
        self.failing: dict[str, PayloadError] = {}
        self.undeletable: dict[str, PayloadError] = {}
        self.stated: dict[str, int] = {}
        """Sizes that messages state, where they are not the payload's."""
        self.padding = 0
        self.read_keys: list[str] = []
        world.bucket = cast(Bucket, self)

    def pointer_to(self, body: str) -> tuple[str, Mapping[str, Mapping[str, str]]] | None:
        if body.startswith("z"):
            return None
        self.objects[body] = body.encode().ljust(self.padding)
        size = {"DataType": "Number", "StringValue": str(self.stated.get(body, len(body)))}
        return body_of(Pointer("bodies", body)), {SIZE_ATTRIBUTE: size}

    def has_sent(self, message_id: str, body: str) -> None:
        """Nobody asks."""

    def read(self, pointer: Pointer, most: int) -> bytes:
        self._world.step(f"before read s3 {pointer.key}")
        self.read_keys.append(pointer.key)
        if pointer.key in self.failing:
            raise self.failing[pointer.key]
        if pointer.key not in self.objects:
            raise PayloadError("it is missing", is_final=True)
        return self.objects[pointer.key][:most]

    def delete(self, pointers: Sequence[Pointer]) -> Mapping[Pointer, PayloadError]:
        self._world.step("before delete s3")
        failed = {each: self.undeletable[each.key] for each in pointers if each.key in self.undeletable}
        for pointer in pointers:
            assert pointer.key not in self.present(), "a payload goes before its message"
            if pointer not in failed:
                self.objects.pop(pointer.key, None)
        self._world.step("after delete s3")
        return failed

    def present(self) -> set[str]:
        ids = self._world.present()
        return {row.body for row in self._world.sent if row.message_id in ids}


@pytest.fixture
def bodies(world: World) -> Bodies:
    return Bodies(world)


def served(world: World) -> list[Any]:
    return sorted((row.body or "") for rows in world.rows() for row in rows)


@in_both_modes
def test_payloads_come_in_the_place_of_pointers_and_go_after_their_messages(world: World, bodies: Bodies) -> None:
    """Through several micro-batches and a restart, beside bodies that SQS has."""
    world.ran("a1", "z1", "a2", "b1")
    world.send("a3", "z2")
    world.restart()
    assert not bodies.objects
    assert sorted(bodies.read_keys)[:4] == ["a1", "a2", "a3", "b1"]


@with_options(payloads="s3")
def test_without_deletePayloads_they_stay(world: World, bodies: Bodies) -> None:
    world.ran("a1")
    world.restart()
    assert bodies.objects.items() >= {"a1": b"a1"}.items()


@in_both_modes
def test_a_micro_batch_that_runs_again_has_the_first_bytes_and_needs_no_s3(world: World, bodies: Bodies) -> None:
    """Though the object was replaced since, or is gone."""
    world.send("a1", "b1")
    query, (plan, *_) = world.planned()
    first = world.read(plan)
    bodies.objects["a1"] = b"replaced"
    bodies.objects.pop("b1", None)  # where tasks delete, it is gone already
    assert world.read(plan) == first
    assert {row.body for row in first} == {"a1", "b1"}
    query.finish(first)


@in_both_modes
def test_a_missing_payload_fails_its_task_in_one_line_and_nothing_is_served(world: World, bodies: Bodies) -> None:
    """The line has bucket, key and remedy. Its messages are free at once, and come whole when it is back."""
    world.send("z1", "a1")
    text = bodies.objects.pop("a1")
    query, (plan, *_) = world.planned()
    said = r"payload 'a1' in the bucket 'bodies' cannot be read: it is missing\. .+payloadErrors=null"
    with raises_one_line(PayloadError, match=said):
        world.read(plan)
    assert not world.store.under("epochs/00000000000000000001/0")
    bodies.objects["a1"] = text
    query.finish(world.read(plan))


@in_both_modes_as_null
@pytest.mark.parametrize(
    ("payload", "why"),
    [
        (None, "it is missing"),
        (b"\xff", "it is not UTF-8"),
        (b"x" * 100, "it has more than the 50 bytes of maxPayloadBytes"),
    ],
)
def test_with_null_a_bad_payload_is_a_null_body_and_is_kept(
    world: World, bodies: Bodies, payload: bytes | None, why: str
) -> None:
    """Its row says why. Messages behind it come, and are deleted."""
    world.options = replace(world.options, max_payload_bytes=50)
    world.send("a1", "a2")
    bodies.objects.pop("a1")
    if payload is not None:
        bodies.objects["a1"] = payload
    query, (plan, *_) = world.planned()
    rows = world.read(plan)
    name = world.store.under("epochs/00000000000000000001/0")[0]
    assert decode(world.store.objects[name], name).rows.to_pylist()[0]["payloadError"] == why
    query.finish(rows)
    Query(world).drain()
    assert served(world) == ["", "a2"]
    assert bodies.objects == ({} if payload is None else {"a1": payload})


@in_both_modes_as_null
def test_an_outage_is_never_a_null_body(world: World, bodies: Bodies) -> None:
    """It fails the task, which is tried again."""
    world.send("a1")
    query, (plan, *_) = world.planned()
    bodies.failing["a1"] = PayloadError("S3 fails with 503")
    with raises_one_line(PayloadError, match="S3 fails with 503"):
        world.read(plan)
    bodies.failing.clear()
    query.finish(world.read(plan))


@in_both_modes
def test_an_attempt_whose_payload_another_one_has_deleted_serves_what_that_one_put(
    world: World, bodies: Bodies
) -> None:
    """As with speculation: nothing is wrong, so it does not fail."""
    world.send("a1", "b1")
    query, (plan, *_) = world.planned()
    attempts = Attempts(world)
    late = attempts.begin(plan, "before read s3 a1")
    attempts.end(attempts.begin(plan))
    bodies.objects.clear()
    attempts.end(late)
    assert attempts.agreed() == attempts.rows[0]
    world.on_step = lambda event: None
    query.into_sink({0: attempts.rows[0]})


@in_both_modes
def test_an_attempt_that_is_too_late_says_so_though_the_payload_is_gone(world: World, bodies: Bodies) -> None:
    """Its link went with the epoch that is settled, and nobody is to correct anything on S3."""
    world.send("a1", "b1")
    query, (plan, *_) = world.planned()
    attempts = Attempts(world)
    late = attempts.begin(plan, "before read s3 a1")
    attempts.end(attempts.begin(plan))
    query.into_sink({0: attempts.rows[0]})
    world.send("z1")
    query.trigger()
    assert not bodies.objects
    with raises_one_line(EpochSettledError, match="is committed"):
        attempts.end(late)


@in_both_modes_with(**GIVEN, maxBytesPerTrigger="100", numPartitions="1")
@pytest.mark.parametrize("stated", [1, 60, 1_000])
def test_payloads_beyond_the_micro_batch_wait_unread_and_come_in_order(
    world: World, bodies: Bodies, stated: int
) -> None:
    """By their own sizes, whatever their messages state. One always comes, however large; each is read once."""
    names = [f"{group}{number}" for number in (1, 2, 3) for group in "abc"]
    bodies.stated, bodies.padding = dict.fromkeys(names, stated), 60
    world.send(*names)
    Query(world).drain()
    for rows in (rows for batch in world.sink.values() for rows in batch.values()):
        assert sum(len(row.body) for row in rows) <= 100 + 62
    assert sorted(body.strip() for body in served(world)) == sorted(names)
    # What was begun for the sake of a size that is a lie is read again when its turn comes.
    assert stated == 1 or sorted(bodies.read_keys) == sorted(names)
    assert not bodies.objects


@with_options(**GIVEN, maxBytesPerTrigger="2000", numPartitions="1", deleteAfter="journal")
def test_what_stands_before_a_payload_without_room_is_served(world: World, bodies: Bodies) -> None:
    """Though it is of the same group."""
    bodies.padding = 1_500
    world.send("a1", "a2", "a3", "a4", "z1")
    query, (plan, *_) = world.planned()
    assert [row.body.strip() for row in world.read(plan)] == ["a1", "a2", "z1"]
    assert query.offsets


@in_both_modes
def test_a_crash_between_the_two_deletes_leaves_no_orphan(world: World, bodies: Bodies) -> None:
    """The journal names the payload, or the message is deleted once more."""
    for crash in ("before delete s3", "after delete s3", "after DeleteMessageBatch"):
        world.send("a1", "b1", "z1")
        world.kill(crash, lambda: Query(world).resume().drain())
        world.restart(down_s=LAPSE_S)
        world.send("z1")
        Query(world).resume().drain()
        assert not bodies.objects, crash


@in_both_modes
def test_the_ledger_names_what_s3_does_not_delete(world: World, bodies: Bodies) -> None:
    """Until it does, also for the next query."""
    world.send("a1", "b1")
    bodies.undeletable["a1"] = PayloadError("S3 fails with 503")
    query = Query(world).drain()
    world.send("z1")
    query.drain()
    assert bodies.objects.keys() == {"a1"}
    assert "s3://bodies/a1" in world.journal().ledger().payloads
    bodies.undeletable.clear()
    world.send("z2")
    world.restart(down_s=LAPSE_S)
    assert not bodies.objects


@pytest.mark.parametrize("outcome", Outcome)
def test_only_a_confirmed_delete_gives_its_payload_away(world: World, outcome: Outcome) -> None:
    """Any other leaves it to the ledger's entry, which a later delete of the message finds."""
    known = receipt(1)._replace(payload="s3://bodies/a1")
    queue, lease = mock.Mock(), mock.Mock()
    queue.delete.return_value = [(known, outcome)]
    left, payloads = delete_committed([known], {}, queue=queue, lease=lease, clock=world.clock, budget_s=1)
    if outcome is Outcome.DONE:
        assert (left, payloads) == ({}, ["s3://bodies/a1"])
        return
    assert payloads == []
    assert left[known.message_id].payload == "s3://bodies/a1"
    again = known._replace(receipt_handle="newer", payload="")
    queue.delete.return_value = [(again, Outcome.DONE)]
    left, payloads = delete_committed([again], left, queue=queue, lease=lease, clock=world.clock, budget_s=1)
    assert (left, payloads) == ({}, ["s3://bodies/a1"])


@in_both_modes
def test_the_row_that_is_moved_aside_is_the_one_that_is_served(world: World, bodies: Bodies) -> None:
    """The driver's catch has the pointer, and the chain the payload, whose object may be gone soon."""
    world.send("a1")
    query, (plan, *_) = world.planned()
    journal = world.journal()
    message_id = world.sent[0].message_id
    assert "s3Key" in repair.find(journal, 1, message_id).column("body")[0].as_py()
    world.read(plan)
    assert repair.find(journal, 1, message_id).column("body").to_pylist() == ["a1"]
    assert query.driver


@in_both_modes_with(**GIVEN, numPartitions="1")
def test_the_payload_of_a_pointer_that_stands_aside_stays(world: World, bodies: Bodies) -> None:
    """A query reads it before the mark, and the next one, which knows the mark, does not serve it."""
    world.send("a1")
    world.kill("-- batch 0 is planned", Query(world).trigger)
    message_id, aside = world.sent[0].message_id, list[str]()

    def put_aside(row: pa.RecordBatch) -> None:
        aside.append(row.column("body")[0].as_py())
        world.kill("-- batch 1 is read", Query(world).resume().drain)

    taken = repair.take_over(world.journal(), world.clock)
    with pytest.raises(FencedError, match="but a query has opened the journal"):
        repair.skip(taken, 1, message_id, world.clock, to="a list", put_aside=put_aside)
    world.die()
    Query(world).resume().drain()
    assert (world.bodies(), world.present()) == ([], set())
    assert bodies.objects == {"a1": b"a1"}
    assert "s3Key" in aside[0]


@in_both_modes_with(**GIVEN, numPartitions="1")
def test_it_stays_though_a_query_without_deletePayloads_comes_between(world: World, bodies: Bodies) -> None:
    """That one names what a later one deletes."""
    world.send("a1")
    world.kill("-- batch 0 is planned", Query(world).trigger)
    taken = repair.take_over(world.journal(), world.clock)
    with pytest.raises(FencedError, match="but a query has opened the journal"):
        repair.skip(
            taken,
            1,
            world.sent[0].message_id,
            world.clock,
            to="a list",
            put_aside=lambda row: world.kill("-- batch 1 is read", Query(world).resume().drain),
        )
    given = world.options
    for options in (replace(given, delete_payloads=False), given):
        world.die(down_s=LAPSE_S)
        world.options = options
        world.send(f"z{options.delete_payloads}")
        Query(world).resume().drain()
    assert world.present() == set()
    assert bodies.objects == {"a1": b"a1"}


@in_both_modes_with(**GIVEN, numPartitions="1")
def test_a_message_of_an_earlier_epoch_is_not_moved_aside_as_a_pointer(world: World, bodies: Bodies) -> None:
    """The one before the last has served it, and is not settled: where tasks delete, the pointer leads nowhere."""
    world.send("z1")
    query, (plan, *_) = world.planned()
    world.send("a1")
    bodies.failing["a1"] = PayloadError("S3 fails with 503")
    query.into_sink({0: world.read(plan)})
    bodies.failing.clear()
    query.announce()
    (plan,) = query.plans(1)
    query.into_sink({0: world.read(plan)}, 1)
    assert served(world) == ["a1", "z1"]
    query.log(query.latest_offset(query.start_of(2)))
    world.die()
    message_id = next(row.message_id for row in world.sent if row.body == "a1")
    epochs = [end.epoch for end in world.offsets]
    assert world.journal().ledger().epoch < epochs[1] < epochs[2]
    assert repair.find(world.journal(), epochs[2], message_id).column("body").to_pylist() == ["a1"]


def test_a_pointer_is_not_moved_aside_from_a_query_that_runs(world: World, bodies: Bodies) -> None:
    """It opened the journal before it could know that the payload is to stay."""
    world.send("a1")
    world.kill("-- batch 0 is planned", Query(world).trigger)
    taken = repair.take_over(world.journal(), world.clock)
    Query(world).resume().claim()
    with pytest.raises(FencedError):
        repair.skip(taken, 1, world.sent[0].message_id, world.clock, to="a list", put_aside=pytest.fail)
    assert bodies.objects


def test_a_segment_has_no_column_of_what_no_row_has(world: World) -> None:
    """They cost nothing where they are not used; and come back as they were."""
    world.send("a1")
    _, (plan, *_) = world.planned()
    world.read(plan)
    name = world.store.under("epochs/00000000000000000001/0")[0]
    data = world.store.objects[name]
    for absent in (b"payloadKey", b"sns"):
        assert absent not in data
    assert b"messageGroupId" in data
    segment = decode(data, name)
    assert segment.rows.column("payloadKey").null_count == 1
    assert decode(encode(segment), name).rows == segment.rows


@with_options(**GIVEN)
def test_rows_show_where_a_payload_was(world: World, bodies: Bodies) -> None:
    """And the reserved attribute is gone."""
    world.send("a1", "z1")
    _, (plan, *_) = world.planned()
    world.read(plan)
    name = world.store.under("epochs/00000000000000000001/0")[0]
    first, second = decode(world.store.objects[name], name).rows.to_pylist()
    assert (first["payloadBucket"], first["payloadKey"], first["messageAttributes"]) == ("bodies", "a1", [])
    assert (second["payloadBucket"], second["body"]) == (None, "z1")
    assert not bodies.failing


def receive_counts(world: World) -> dict[str, int]:
    found = Counter(event.message_id for event in world.events if event.kind == "received")
    return {row.body: found[row.message_id] for row in world.sent}


@in_both_modes_with(**GIVEN, numPartitions="1")
@pytest.mark.parametrize("is_outage", [False, True], ids=["missing", "outage"])
def test_attempts_that_fail_for_a_payload_receive_nothing_again(world: World, bodies: Bodies, is_outage: bool) -> None:
    """Else some restarts would take all messages of the task to the dead-letter queue."""
    world.send("z1")
    query, (plan, *_) = world.planned()
    world.send("a1", "b1", "zz1")  # the task receives them, and not the driver
    if is_outage:
        bodies.failing["a1"] = PayloadError("S3 fails with 503")
    else:
        del bodies.objects["a1"]
    first = world.read(plan)
    assert {"z1", "zz1"} <= {row.body for row in first} <= {"z1", "zz1", "b1"}
    query.into_sink({0: first})
    before = receive_counts(world)
    for _ in range(3):
        for _ in range(4):
            with raises_one_line(PayloadError, match="'a1' in the bucket"):
                query.trigger()
            query = Query(world)
        world.die(down_s=LAPSE_S)
        query = Query(world)
    assert receive_counts(world) == before
    assert max(before.values()) <= 1
    bodies.failing.clear()
    bodies.objects["a1"] = b"a1"
    world.restart()
    assert served(world)[:2] == ["a1", "b1"]


@in_both_modes_with(**GIVEN, numPartitions="1")
def test_a_message_that_waits_for_its_payload_can_be_moved_aside(world: World, bodies: Bodies) -> None:
    """In the epoch that fails for it, though an earlier one has received it. Its payload is not deleted."""
    world.send("z1")
    query, (plan, *_) = world.planned()
    world.send("a1")
    bodies.failing["a1"] = PayloadError("it is missing", is_final=True)
    query.into_sink({0: world.read(plan)})
    with raises_one_line(PayloadError, match="'a1' in the bucket"):
        query.trigger()
    world.die(down_s=LAPSE_S)
    message_id = next(row.message_id for row in world.sent if row.body == "a1")
    row = repair.find(world.journal(), len(world.offsets), message_id)
    assert "s3Key" in row.column("body")[0].as_py()
    takeover = repair.take_over(world.journal(), world.clock)
    assert repair.skip(
        takeover, len(world.offsets), message_id, world.clock, to="elsewhere", put_aside=lambda row: None
    )
    Query(world).resume().drain()
    assert "a1" not in served(world)
    assert "a1" in bodies.objects
    assert "a1" not in bodies.present()


@in_both_modes_with(**GIVEN, numPartitions="4")
def test_after_a_restart_one_task_alone_meets_the_bad_payload(world: World, bodies: Bodies) -> None:
    """The others would receive at each start: what was held lapses between, and is received once more."""
    world.send(*(f"z{chr(97 + number // 26)}{chr(97 + number % 26)}1" for number in range(450)), "a1")
    bodies.failing["a1"] = PayloadError("it is missing", is_final=True)
    query = Query(world)
    with raises_one_line(PayloadError, match="'a1' in the bucket"):
        query.play_out()
    assert max(end.partitions for end in world.offsets) > 1
    for _ in range(3):
        world.die(down_s=LAPSE_S)
        query = Query(world).resume()
        before = receive_counts(world)
        with raises_one_line(PayloadError, match="'a1' in the bucket"):
            query.play_out()
        assert world.offsets[-1].partitions == 1
        assert receive_counts(world) == before
    bodies.failing.clear()
    world.die(down_s=LAPSE_S)
    query = Query(world).resume()
    query.play_out()
    assert "a1" in served(world)


@with_options(**GIVEN)
def test_what_is_settled_while_it_is_looked_for_is_not_moved_aside(
    world: World, bodies: Bodies, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its pointer may lead nowhere by then, and its payload was served."""
    world.send("a1")
    world.planned()
    journal = world.journal()
    ledgers = iter([journal.ledger(), replace(journal.ledger(), epoch=1)])
    monkeypatch.setattr(journal, "ledger", lambda: next(ledgers))
    with raises_one_line(EpochSettledError, match="epoch 1 is settled"):
        repair.find(journal, 1, world.sent[0].message_id)
    assert bodies.objects


@in_both_modes
def test_a_key_is_shown_on_one_line_whatever_is_in_it(world: World, bodies: Bodies) -> None:
    """A sender chooses it."""
    key = "line\n2026-01-01 ERROR another line"
    size = {"DataType": "Number", "StringValue": "1"}
    world.model.call(
        "SendMessage",
        {
            "QueueUrl": world.url,
            "MessageBody": body_of(Pointer("bodies", key)),
            "MessageAttributes": {SIZE_ATTRIBUTE: size},
            "MessageGroupId": "a",
            "MessageDeduplicationId": "1",
        },
    )
    _, (plan, *_) = world.planned()
    with raises_one_line(
        PayloadError, match=r"the payload 'line\\n2026-01-01 ERROR another line' in the bucket 'bodies'"
    ):
        world.read(plan)
    assert bodies.read_keys[0] == key


@with_options(**GIVEN, maxBytesPerTrigger="100m", numPartitions="1")
def test_after_an_outage_no_further_payload_is_read(world: World, bodies: Bodies) -> None:
    """Each would be waited for as long, and be received again."""
    world.send("z1")
    query, (plan, *_) = world.planned()
    world.send(*(f"{chr(97 + number % 20)}{number}" for number in range(200)))
    bodies.failing = dict.fromkeys(bodies.objects, PayloadError("S3 fails with 503"))
    query.into_sink({0: world.read(plan)})
    assert len(bodies.read_keys) <= CONCURRENT_CALLS
