"""The journal: the first writer wins, the newest driver owns, and damage is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sqs_fifo_spark.errors import (
    EpochSettledError,
    FencedError,
    JournalCorruptError,
    JournalMismatchError,
    JournalUnavailableError,
)
from sqs_fifo_spark.journal.file_store import FileStore
from sqs_fifo_spark.source.journal_objects import Journal
from sqs_fifo_spark.source.ledger import Ledger
from tests.helpers import raises_one_line
from tests.unit.by_hand import Late
from tests.unit.source.stores import ARN, FaultyStore, opened, raise_after, say_no, segment

pytestmark = pytest.mark.law("source-3")


def test_create_then_find_gives_the_same_journal(store: FaultyStore) -> None:
    """The id is made once, whoever asks."""
    assert Journal.find(store, ARN) is None
    made = Journal.create(store, ARN)
    found = Journal.find(store, ARN)
    assert found is not None
    assert found.id == made.id == Journal.create(store, ARN).id


def test_journal_of_another_queue_is_refused(store: FaultyStore, journal: Journal) -> None:
    """Both queues are named, and what to do."""
    other = ARN.replace("bids", "asks")
    for call in (Journal.find, Journal.create):
        with raises_one_line(JournalMismatchError, match="Give each its own journalLocation") as told:
            call(store, other)
        assert ARN in str(told.value)
        assert other in str(told.value)


def test_journal_of_a_later_format_is_refused(store: FaultyStore) -> None:
    """A newer version's journal is not touched."""
    store.put_if_absent("journal.json", json.dumps({"format": 99, "journal": "j", "queueArn": ARN}).encode())
    with raises_one_line(JournalMismatchError, match="format 99"):
        Journal.find(store, ARN)


def test_store_that_overwrites_is_refused(store: FaultyStore) -> None:
    """A store on which both of two puts succeed cannot keep one content, and is refused at the start."""
    store.answer = lambda name, done: True
    with raises_one_line(JournalUnavailableError, match="does not put objects only if they are absent"):
        Journal.check_store(store)
    assert store.list("check") == []


# Claims


def test_each_claim_is_higher_and_fences_the_older(journal: Journal, store: FaultyStore) -> None:
    """The newest owner goes on; all before it are told who took over."""
    first = journal.claim({})
    journal.require_claim(first)
    second = journal.claim({})
    assert second > first
    journal.require_claim(second)
    with raises_one_line(FencedError, match="another query or an operator took over"):
        journal.require_claim(first)
    assert len(store.list("drivers")) == 1


def test_claims_begin_where_the_journal_says_whatever_else_stands_there(store: FaultyStore) -> None:
    """An object that is no claim counts for nothing."""
    store.put_if_absent("drivers/README.txt", b"who am I?")
    journal = Journal(store, "j", first_claim=1_000)
    assert [journal.claim({}), journal.claim({})] == [1_000, 1_001]


def test_two_claims_at_once_get_different_numbers(journal: Journal, store: FaultyStore) -> None:
    """The loser of a number takes the next one."""
    numbers: list[int] = []

    def rival(name: str) -> None:
        store.before_put = lambda name: None
        numbers.append(journal.claim({}))

    store.before_put = rival
    numbers.append(journal.claim({}))
    assert len(set(numbers)) == 2
    journal.require_claim(max(numbers))


def test_lost_reply_to_a_claim_is_recognised_as_own(journal: Journal, store: FaultyStore) -> None:
    """A put that took effect and was denied is our claim, not a rival's."""
    store.answer = say_no
    number = journal.claim({})
    assert number == 1
    journal.require_claim(number)


def test_a_claim_that_was_dropped_and_is_put_again_owns_nothing(journal: Journal, store: FaultyStore) -> None:
    """A driver that stood still between look and put takes the number after the owner's."""
    others = Journal(store, journal.id)

    def others_claim(name: str) -> None:
        store.before_put = lambda name: None
        assert [others.claim({}) for _ in range(3)] == [1, 2, 3]

    store.before_put = others_claim
    assert journal.claim({}) == 4
    journal.require_claim(4)
    with pytest.raises(FencedError):
        others.require_claim(3)


def test_a_claim_is_looked_at_by_its_content(journal: Journal, store: FaultyStore) -> None:
    """Its own name may have been dropped with the next one's, and put again by somebody who stood still."""
    number = journal.claim({})
    others = Journal(store, journal.id)
    others.claim({})
    others.claim({})
    store.put_if_absent(f"drivers/{number:020d}.json", b'{"driver": "who stood still"}')
    with pytest.raises(FencedError):
        journal.require_claim(number)


def test_a_claim_that_is_dropped_while_it_is_looked_at_is_overtaken(
    journal: Journal, store: FaultyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list was made before the other driver came, and the claim is read after: the journal is not removed."""
    number = journal.claim({})
    find = store.list

    def list_and_be_overtaken(prefix: str) -> list[str]:
        names = find(prefix)
        monkeypatch.setattr(store, "list", find)
        Journal(store, journal.id).claim({})
        return names

    monkeypatch.setattr(store, "list", list_and_be_overtaken)
    with pytest.raises(FencedError, match="another query or an operator took over"):
        journal.require_claim(number, Late())


def test_a_task_sees_when_its_driver_owns_the_journal_no_more(journal: Journal, store: FaultyStore) -> None:
    """Its plan's claim must be that of the newest ledger; it has no claim of its own."""
    claim = opened(journal)
    task = Journal(store, journal.id)
    task.require_current(1, claim)
    for _ in range(2):
        opened(Journal(store, journal.id))
        with raises_one_line(FencedError, match="another query or an operator took over"):
            task.require_current(1, claim)
    task.require_current(1, claim + 2)


def test_a_task_sees_that_its_epoch_is_settled(journal: Journal, store: FaultyStore) -> None:
    """Whoever has settled it."""
    claim = opened(journal)
    task = Journal(store, journal.id)
    journal.put_ledger(Ledger(3))
    task.require_current(4, claim)
    for _ in range(2):
        with raises_one_line(EpochSettledError, match="epoch 3 is committed"):
            task.require_current(3, claim)
        opened(Journal(store, journal.id))


def test_a_task_whose_journal_is_removed_owns_nothing(journal: Journal, store: FaultyStore) -> None:
    """Nobody knows what counts: nothing may be deleted."""
    claim = opened(journal)
    store.delete(store.list("ledger"))
    with pytest.raises(JournalUnavailableError, match="vanished"):
        journal.require_current(1, claim)


def test_removed_journal_stops_the_query(journal: Journal, store: FaultyStore) -> None:
    """With the claims gone nobody knows who owns it: one line, no further receive."""
    number = journal.claim({})
    store.delete(store.list("drivers"))
    with raises_one_line(JournalUnavailableError, match="was removed while the query ran"):
        journal.require_claim(number)


def test_claims_that_are_none_do_not_keep_from_owning(tmp_path: Path) -> None:
    """Whatever lies among them; what a claim says inside does not matter."""
    store = FileStore(tmp_path)
    for name in [
        "x",
        "7.json",
        "00000000000000000003.json",
        "00000000000000000003.json.bak",
        "-0000000000000000001.json",
    ]:
        store.put_if_absent(f"drivers/{name}", b"\x00")
    journal = Journal(store, "j")
    assert journal.claim({}) == 4
    journal.require_claim(4)


def test_names_that_are_none_are_no_epochs(tmp_path: Path) -> None:
    """A list shows whatever lies there."""
    store = FileStore(tmp_path)
    for name in ("epochs/x/0000-000000", "epochs/7/0000-000000", "epochs/00000000000000000007/a/b", "epochs/note"):
        store.put_if_absent(name, b"")
    assert Journal(store, "j").objects() == {}


# Segments


def test_first_writer_wins_and_the_loser_gets_the_winners_segment(journal: Journal) -> None:
    """All attempts return the same content."""
    won = journal.seal(segment(journal, 1, 2, writer="first"), 0)
    lost = journal.seal(segment(journal, 3, writer="second"), 0)
    assert won.head.origin.writer == lost.head.origin.writer == "first"
    assert lost.head == won.head
    assert lost.rows.equals(won.rows)
    read = journal.read(journal.segment_name(1, 0, 0))
    assert read is not None
    assert read.head == won.head


def test_each_link_of_a_chain_has_a_winner_of_its_own(journal: Journal) -> None:
    """Losers of one may win the next: no link takes another's place."""
    writers = [
        journal.seal(segment(journal, link, writer=writer, link=link, is_last=link == 2), 0).head.origin.writer
        for link in range(3)
        for writer in ("first", "second")[:: 1 if link % 2 else -1]
    ]
    assert writers == ["second", "second", "first", "first", "second", "second"]
    names = journal.objects()[1]
    assert [Journal.link_of(name, 0) for name in names] == [(0, 0), (0, 1), (0, 2)]
    heads = [journal.head(name) for name in names]
    assert [head and head.chain.is_last for head in heads] == [False, False, True]


def test_links_are_listed_in_their_order(journal: Journal) -> None:
    """A list is sorted by name: by partition, then by link, then by plan; whatever the numbers are."""
    places = [(partition, link, plan) for partition in (0, 1) for link in (2, 10, 999_999) for plan in (3, 20)]
    for partition, link, plan in reversed(places):
        journal.seal(segment(journal, partition=partition, link=link, plan=plan), 0)
    names = journal.objects()[1]
    found = [(Journal.link_of(name, 3) or Journal.link_of(name, 20), Journal.plan_of(name)) for name in names]
    assert found == [((partition, link), plan) for partition, link, plan in places]


def test_lost_put_reply_is_recognised_as_own_segment(journal: Journal, store: FaultyStore) -> None:
    """A put that took effect and was denied: the writer's name tells that nothing must be released."""
    store.answer = say_no
    sealed = journal.seal(segment(journal, 1, writer="mine"), 0)
    assert sealed.head.origin.writer == "mine"


def test_put_without_a_definite_answer_fails_and_the_next_attempt_serves_it(
    journal: Journal, store: FaultyStore
) -> None:
    """The task must fail rather than receive again; the segment that it left is the content."""
    store.answer = raise_after
    with pytest.raises(JournalUnavailableError):
        journal.seal(segment(journal, 1, writer="first"), 0)
    store.answer = lambda name, done: done
    assert journal.seal(segment(journal, 2, writer="second"), 0).head.origin.writer == "first"


def test_receipts_are_those_of_the_segment(journal: Journal) -> None:
    """Ids, handles, counts and 128-bit numbers, as they were sealed; none for an object that is gone."""
    name = journal.segment_name(1, 0, 0)
    assert journal.receipts(name) == ()
    assert journal.read(name) is None
    sealed = journal.seal(segment(journal, 1, 2), 0)
    assert journal.receipts(name) == sealed.head.receipts


def test_objects_are_listed_by_epoch(journal: Journal) -> None:
    """Links, and what the driver caught; a link's name tells its place, the other has none, and both tell the plan."""
    journal.seal(segment(journal, 1, epoch=1, partition=0), 0)
    journal.seal(segment(journal, 2, epoch=1, partition=1), 0)
    journal.seal(segment(journal, 3, epoch=2, partition=0, plan=7), 0)
    caught = journal.put_caught(segment(journal, 4, epoch=2, plan=7))
    found = journal.objects()
    assert sorted(found) == [1, 2]
    assert [Journal.link_of(name, 0) for name in found[1]] == [(0, 0), (1, 0)]
    assert {Journal.link_of(name, 7) for name in found[2]} == {(0, 0), None}
    assert {Journal.link_of(name, 0) for name in found[2]} == {None}
    assert {Journal.plan_of(name) for name in found[2]} == {7}
    assert caught == Journal.caught_name(2, 7) in found[2]
    assert [each.message_id for each in journal.receipts(caught)] == ["id-4"]
    assert Journal.plan_of("epochs/00000000000000000002/of-another-kind") is None


def test_what_a_driver_caught_is_put_once_for_a_plan(journal: Journal, store: FaultyStore) -> None:
    """A lost answer is recognised by the writer; what somebody else has put there is not taken for one's own."""
    store.answer = say_no
    name = journal.put_caught(segment(journal, 1, writer="mine"))
    assert [each.message_id for each in journal.receipts(name)] == ["id-1"]
    store.answer = lambda name, done: done
    with raises_one_line(JournalUnavailableError):
        journal.put_caught(segment(journal, 2, writer="another"))
    assert [each.message_id for each in journal.receipts(name)] == ["id-1"]


@pytest.mark.parametrize(
    "name",
    [
        *(Journal.segment_name(*place) for place in [(2, 0, 0), (99_999, 0, 0), (1, 0, 0, 1), (1, 1, 0), (1, 0, 7)]),
        *(Journal.caught_name(*place) for place in [(2, 0), (1, 7)]),
    ],
)
def test_segment_copied_from_another_place_is_refused(journal: Journal, store: FaultyStore, name: str) -> None:
    """Of another epoch, link, partition or plan: its rows would be served in the wrong micro-batch, or twice in one."""
    journal.seal(segment(journal, 1), 0)
    data = store.get(journal.segment_name(1, 0, 0))
    assert data is not None
    store.put_if_absent(name, data)
    for call in (journal.read, journal.receipts):
        with raises_one_line(JournalCorruptError, match="another journal, epoch or partition"):
            call(name)


def test_segment_copied_from_another_journal_is_refused(journal: Journal, tmp_path: Path) -> None:
    """Each segment names its journal."""
    other_store = FileStore(tmp_path / "other")
    other = Journal.create(other_store, ARN)
    journal.seal(segment(journal, 1), 0)
    data = FileStore(tmp_path).get(journal.segment_name(1, 0, 0))
    assert data is not None
    other_store.put_if_absent(other.segment_name(1, 0, 0), data)
    for call in (other.read, other.receipts):
        with pytest.raises(JournalCorruptError, match="another journal, epoch or partition"):
            call(other.segment_name(1, 0, 0))


def test_damaged_segment_is_told_with_its_name(journal: Journal, store: FaultyStore) -> None:
    """By `read` and by `receipts`, in one line."""
    name = journal.segment_name(1, 0, 0)
    store.put_if_absent(name, b"damaged")
    for call in (journal.read, journal.receipts):
        with raises_one_line(JournalCorruptError, match=name):
            call(name)
