"""The ledger: a committed epoch is over, whoever comes late, and one ledger stands at a time."""

from __future__ import annotations

import pytest

from sqs_fifo_spark.errors import EpochSettledError, FencedError, JournalUnavailableError
from sqs_fifo_spark.source.journal_objects import Journal
from sqs_fifo_spark.source.ledger import Ledger, UnconfirmedMessage, encode_ledger
from tests.helpers import raises_one_line
from tests.unit.source.stores import FaultyStore, opened, receipt, segment


def put(journal: Journal, ledger: Ledger) -> list[str]:
    """Put a ledger as a commit does, and return the names of those that it may drop then."""
    journal.put_ledger(ledger)
    return journal.older_ledgers(ledger.epoch)


def ledger_name(epoch: int, claim: int = 0) -> str:
    return f"ledger/{claim:020d}-{epoch:020d}.json"


LEDGER = Ledger(
    3,
    {
        "id-1": UnconfirmedMessage(1_700_000_000.5, "a", 1 << 127, None),
        "id-2": UnconfirmedMessage(1_700_000_001.0, "a", 2, receipt(2)),
    },
    {f"epochs/{3:020d}/caught-{7:020d}": ("id-7", "id-8")},
)


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


@pytest.mark.parametrize("epoch", [3, 2])
def test_losing_the_put_of_a_ledger_to_another_driver_is_being_fenced(journal: Journal, epoch: int) -> None:
    """What stands is the first ledger, or a later one: the name of one before that is free, so its put tells not."""
    journal.put_ledger(LEDGER)
    with raises_one_line(FencedError, match="another query or an operator took over"):
        put(journal, Ledger(epoch))
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


def test_after_commit_a_leftover_attempt_is_refused(journal: Journal) -> None:
    """Sealing any link in a committed epoch is EpochSettledError, and says what to do about it."""
    journal.put_ledger(Ledger(1))
    for link in (0, 3):
        with raises_one_line(EpochSettledError, match="Persist a micro-batch's DataFrame"):
            journal.seal(segment(journal, 1, link=link), 0)
    journal.seal(segment(journal, epoch=2), 0)
