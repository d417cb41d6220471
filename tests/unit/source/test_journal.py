"""The journal: the first writer wins, the newest driver owns, a committed epoch is over, and damage is told."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar
from unittest import mock

import pytest

from sqs_fifo_spark.errors import (
    EpochSettledError,
    FencedError,
    JournalCorruptError,
    JournalMismatchError,
    JournalUnavailableError,
    SqsFifoError,
)
from sqs_fifo_spark.journal.file_store import FileStore
from sqs_fifo_spark.journal.identity import FORMAT
from sqs_fifo_spark.source.journal import Journal
from sqs_fifo_spark.source.ledger import Ledger, Unconfirmed, encode_ledger
from sqs_fifo_spark.source.message import Message, Receipt, to_arrow
from sqs_fifo_spark.source.pool import Answer, CallingThread
from sqs_fifo_spark.source.segment import Chain, Head, Origin, Segment
from tests.helpers import raises_one_line

T = TypeVar("T")

ARN = "arn:aws:sqs:eu-west-1:123456789012:bids.fifo"


class FaultyStore:
    """A store whose puts may take effect and say something else, and which can be disturbed before a put."""

    def __init__(self, root: Path) -> None:
        self._store = FileStore(root)
        self.location = self._store.location
        self.answer: Callable[[str, bool], bool] = lambda name, done: done
        self.before_put: Callable[[str], None] = lambda name: None
        self.get = self._store.get
        self.get_range = self._store.get_range
        self.list = self._store.list

    def put_if_absent(self, name: str, data: bytes) -> bool:
        self.before_put(name)
        return self.answer(name, self._store.put_if_absent(name, data))

    def delete(self, names: Iterable[str]) -> None:
        self._store.delete(names)


def say_no(name: str, done: bool) -> bool:
    return False


def raise_after(name: str, done: bool) -> bool:
    raise JournalUnavailableError(f"no answer about '{name}'")


@pytest.fixture
def store(tmp_path: Path) -> FaultyStore:
    return FaultyStore(tmp_path)


@pytest.fixture
def journal(store: FaultyStore) -> Journal:
    return Journal.create(store, ARN)


def receipt(number: int) -> Receipt:
    return Receipt(f"id-{number}", f"handle-{number}", "a", (1 << 100) + number, 1, 1_700_000_000_000, 1.5, 0)


def segment(
    journal: Journal,
    *numbers: int,
    writer: str = "w",
    epoch: int = 1,
    partition: int = 0,
    plan: int = 0,
    link: int = 0,
    is_last: bool = True,
) -> Segment:
    receipts = [receipt(number) for number in numbers]
    rows = to_arrow(
        [Message(each, (each.message_id, f"body {each.message_id}", "a", *[None] * 8, []), 9) for each in receipts]
    )
    origin = Origin(journal.id, epoch, 2, partition, writer, plan, "", link)
    return Segment(Head(origin, tuple(receipts), chain=Chain(is_last), sizes=(9,) * len(receipts)), rows)


def one_line(error: SqsFifoError) -> str:
    assert "\n" not in str(error)
    return str(error)


# Identity


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
        with pytest.raises(JournalMismatchError, match="Give each its own journalLocation") as told:
            call(store, other)
        assert ARN in one_line(told.value)
        assert other in str(told.value)


def test_journal_of_a_later_format_is_refused(store: FaultyStore) -> None:
    """A newer version's journal is not touched."""
    store.put_if_absent("journal.json", json.dumps({"format": 99, "journal": "j", "queueArn": ARN}).encode())
    with raises_one_line(JournalMismatchError, match="format 99"):
        Journal.find(store, ARN)


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b"null", b"\xff\xfe", b'"text"', json.dumps({"format": FORMAT, "queueArn": ARN}).encode()],
    ids=["empty", "cut", "list", "null", "no text", "text", "no id"],
)
def test_damaged_identity_is_told(store: FaultyStore, data: bytes) -> None:
    """Not taken for an absent one, which would begin a new journal."""
    store.put_if_absent("journal.json", data)
    with raises_one_line(JournalCorruptError, match=r"journal\.json"):
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
    """Who is beaten to a number takes the next one."""
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
    """Who stood still between its look and its put takes the number after the true owner's."""
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


class Late(CallingThread):
    """Makes a call when somebody waits for it."""

    def submit(self, call: Callable[[], T], /) -> Answer[T]:
        answer: Answer[T] = mock.Mock()
        answer.result = call  # type: ignore[method-assign]
        return answer


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


def opened(journal: Journal) -> int:
    """Do with a journal what a driver does first, and return its claim."""
    claim = journal.claim({})
    journal.put_ledger(journal.ledger())
    return claim


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
    """Who loses one may win the next: no link takes another's place."""
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
        Journal.segment_name(2, 0, 0),
        Journal.segment_name(99_999, 0, 0),
        Journal.segment_name(1, 0, 0, 1),
        Journal.segment_name(1, 0, 7),
        Journal.caught_name(2, 0),
        Journal.caught_name(1, 7),
    ],
)
def test_segment_copied_from_another_place_is_refused(journal: Journal, store: FaultyStore, name: str) -> None:
    """Of another epoch, link or plan: its rows would be served in the wrong micro-batch, or twice in one."""
    journal.seal(segment(journal, 1), 0)
    data = store.get(journal.segment_name(1, 0, 0))
    assert data is not None
    store.put_if_absent(name, data)
    for call in (journal.read, journal.receipts):
        with raises_one_line(JournalCorruptError, match="another journal, epoch or partition"):
            call(name)


def test_segment_copied_from_another_partition_is_refused(journal: Journal, store: FaultyStore) -> None:
    """Its rows would stand twice in the micro-batch."""
    journal.seal(segment(journal, 1), 0)
    data = store.get(journal.segment_name(1, 0, 0))
    assert data is not None
    name = journal.segment_name(1, 1, 0)
    store.put_if_absent(name, data)
    with pytest.raises(JournalCorruptError):
        journal.read(name)


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


# Commits and the ledger


def put(journal: Journal, ledger: Ledger) -> list[str]:
    """Put a ledger as a commit does, and return the names of those that it may drop then."""
    journal.put_ledger(ledger)
    return journal.older_ledgers(ledger.epoch)


def ledger_name(epoch: int, claim: int = 0) -> str:
    return f"ledger/{claim:020d}-{epoch:020d}.json"


LEDGER = Ledger(
    3,
    {
        "id-1": Unconfirmed(1_700_000_000.5, "a", 1 << 127, None),
        "id-2": Unconfirmed(1_700_000_001.0, "a", 2, receipt(2)),
    },
    {f"epochs/{3:020d}/caught-{7:020d}": ("id-7", "id-8")},
)


def test_a_new_journal_has_the_empty_ledger_of_epoch_0(journal: Journal) -> None:
    """Nothing is committed, nothing is unfinished."""
    assert journal.ledger() == Ledger(0)


def test_ledger_comes_back_as_it_was(journal: Journal) -> None:
    """Ids, times, receipts with 128-bit numbers, and what is carried over."""
    journal.put_ledger(LEDGER)
    assert journal.ledger() == LEDGER


def test_commit_drops_the_ledgers_before_it(journal: Journal, store: FaultyStore) -> None:
    """One ledger stands at a time; the number of epochs leaves no trace."""
    for epoch in range(1, 30):
        journal.drop(put(journal, Ledger(epoch)))
    assert store.list("ledger") == [ledger_name(29)]


def test_the_newest_of_several_ledgers_counts(journal: Journal, store: FaultyStore) -> None:
    """A crash before the old one was dropped leaves two."""
    journal.put_ledger(Ledger(9))
    store.put_if_absent(ledger_name(10), encode_ledger(Ledger(10), "another"))
    assert journal.ledger() == Ledger(10)


@pytest.mark.parametrize("is_taken", [False, True])
@pytest.mark.parametrize("is_carried", [False, True])
@pytest.mark.parametrize("epoch", [1, 9])
def test_who_may_serve_the_link_of_a_leftover(journal: Journal, epoch: int, is_carried: bool, is_taken: bool) -> None:
    """Of its own link what the ledger carries, whichever epoch is the last one settled; of a taken one nothing."""
    opened(journal)
    if is_taken:
        journal.seal(segment(journal, 1, writer="first"), 1)
    name = journal.segment_name(1, 0, 0)
    journal.put_ledger(Ledger(epoch, carried={name: ("m2",)} if is_carried else {}))
    released: list[str] = []
    with pytest.raises(EpochSettledError):
        journal.seal(segment(journal, 2, writer="second"), 1, unserved=lambda: released.append("all"))
    assert bool(released) == (is_taken or not is_carried)


def test_lost_reply_to_a_commit_is_recognised_as_own(journal: Journal, store: FaultyStore) -> None:
    """A put that took effect and was denied is our commit."""
    store.answer = say_no
    journal.put_ledger(LEDGER)
    assert journal.ledger() == LEDGER


def test_losing_the_put_of_a_ledger_to_another_driver_is_being_fenced(journal: Journal) -> None:
    """The first ledger stands; whoever else was about to write it stops."""
    journal.put_ledger(LEDGER)
    with raises_one_line(FencedError, match="another query or an operator took over"):
        journal.put_ledger(Ledger(3))
    assert journal.ledger() == LEDGER


def test_a_ledger_that_is_put_again_after_a_later_one_commits_nothing(journal: Journal, store: FaultyStore) -> None:
    """Its name was dropped meanwhile, so put-if-absent does not tell."""
    journal.put_ledger(LEDGER)
    with pytest.raises(FencedError, match="another query or an operator took over"):
        put(journal, Ledger(2))
    assert journal.ledger() == LEDGER


def test_a_ledger_of_a_lower_claim_counts_no_more(journal: Journal, store: FaultyStore) -> None:
    """However high its epoch is: a driver that stood still puts it after the newer driver has opened the journal."""
    older, newer = Journal(store, journal.id), Journal(store, journal.id)
    older.claim({})
    older.put_ledger(Ledger(2))
    newer.claim({})
    newer.put_ledger(newer.ledger())
    with raises_one_line(FencedError, match="another query or an operator took over"):
        put(older, Ledger(7))
    assert journal.ledger() == Ledger(2)
    newer.drop(put(newer, Ledger(3)))
    assert journal.ledger() == Ledger(3)
    assert store.list("ledger") == [ledger_name(3, claim=2)]


def test_a_ledger_that_is_dropped_before_it_is_read_makes_way_for_the_newer_one(
    journal: Journal, store: FaultyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not taken for an empty one: a copy of a committed message would be served again."""
    journal.put_ledger(Ledger(2))
    get = store.get

    def slow_get(name: str) -> bytes | None:
        if name == ledger_name(2) and store.list("ledger") == [name]:
            journal.drop(put(Journal(store, journal.id), LEDGER))
        return get(name)

    monkeypatch.setattr(store, "get", slow_get)
    assert journal.ledger() == LEDGER


def test_a_ledger_that_is_listed_and_never_found_is_told(
    journal: Journal, store: FaultyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is guessed."""
    journal.put_ledger(LEDGER)
    monkeypatch.setattr(store, "get", lambda name: None)
    with raises_one_line(JournalUnavailableError, match="vanished"):
        journal.ledger()


def test_an_older_ledger_is_dropped_only_when_the_newer_one_is_seen(
    journal: Journal, store: FaultyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that says that it has put what it has not costs the query, and no message."""
    journal.put_ledger(Ledger(1))
    monkeypatch.setattr(store, "put_if_absent", lambda name, data: True)
    with pytest.raises(JournalUnavailableError, match="vanished"):
        put(journal, Ledger(2))
    assert journal.ledger() == Ledger(1)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b"\xff",
        b'{"unconfirmed": [], "carried": {}}',
        b'{"unconfirmed": {"id": {}}, "carried": {}}',
        b'{"unconfirmed": {"id": {"until": 1, "group": "g", "sequence": 1, "receipt": {"x": 1}}}, "carried": {}}',
        b'{"unconfirmed": {"id": null}, "carried": {}}',
        b'{"unconfirmed": {}, "carried": null}',
        b'{"unconfirmed": {}, "carried": {"name": null}}',
    ],
)
def test_damaged_ledger_is_told(journal: Journal, store: FaultyStore, data: bytes) -> None:
    """Nothing is guessed: messages that it names would be served twice."""
    store.put_if_absent(ledger_name(5), data)
    with raises_one_line(JournalCorruptError, match="ledger/0"):
        journal.ledger()


def test_after_commit_a_leftover_attempt_is_refused(journal: Journal) -> None:
    """Sealing any link in a committed epoch is EpochSettledError, and says what to do about it."""
    journal.put_ledger(Ledger(1))
    for link in (0, 3):
        with raises_one_line(EpochSettledError, match="Persist a micro-batch's DataFrame"):
            journal.seal(segment(journal, 1, link=link), 0)
    journal.seal(segment(journal, epoch=2), 0)


def test_commit_between_put_and_check_is_noticed(journal: Journal, store: FaultyStore) -> None:
    """The put of a leftover succeeds while the epoch is committed: the attempt is refused all the same."""

    def commit(name: str) -> None:
        store.before_put = lambda name: None
        journal.put_ledger(Ledger(1))

    store.before_put = commit
    with pytest.raises(EpochSettledError):
        journal.seal(segment(journal, 1), 0)


def test_dropped_objects_are_gone(journal: Journal, store: FaultyStore) -> None:
    """A dropped epoch leaves neither objects nor folders."""
    journal.seal(segment(journal, 1), 0)
    journal.drop([journal.segment_name(1, 0, 0), journal.segment_name(1, 7, 0)])
    assert journal.objects() == {}
    assert not (Path(store.location) / "epochs" / f"{1:020d}").exists()
