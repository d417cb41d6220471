"""A journal on a store whose puts may take effect and say something else."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from sqs_fifo_spark.errors import JournalUnavailableError
from sqs_fifo_spark.journal.file_store import FileStore
from sqs_fifo_spark.source.journal import Journal
from sqs_fifo_spark.source.message import Message, Receipt, to_arrow
from sqs_fifo_spark.source.segment import Chain, Head, Origin, Segment

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


def opened(journal: Journal) -> int:
    """Do with a journal what a driver does first, and return its claim."""
    claim = journal.claim({})
    journal.put_ledger(journal.ledger())
    return claim
