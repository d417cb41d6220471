"""The demo's auction: its bids, and the audit of the rows that arrived.

The audit counts from data alone: the sent bids, and the rows of the Parquet files with the micro-batch that each file
belongs to. It trusts no figure of the source.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

import pyarrow.parquet as pq

DUPLICATES = 0.02
"""The share of bids that are sent a second time, with the same deduplication id."""
_RECENT = 100


@dataclass(frozen=True)
class Bid:
    """One bid. `number` counts the bids of its auction from 1; the two together are unique."""

    auction: str
    number: int
    bidder: str
    amount: int

    @property
    def deduplication_id(self) -> str:
        return f"{self.auction}-{self.number}"

    @property
    def body(self) -> str:
        return json.dumps(asdict(self))


def bids(count: int, auctions: int) -> list[Bid]:
    """Return `count` bids of `auctions` auctions, interleaved at random, each auction's in order.

    The same arguments give the same bids.
    """
    dice = random.Random(0)
    numbers, raises = Counter[str](), Counter[str]()
    made = []
    for index in range(count):
        # Every auction gets a bid before chance decides.
        chosen = index if index < auctions else dice.randrange(auctions)
        auction = f"auction-{chosen:03d}"
        bidder = f"bidder-{dice.randrange(500):03d}"
        numbers[auction] += 1
        raises[auction] += dice.randint(1, 20)
        made.append(Bid(auction, numbers[auction], bidder, 100 + raises[auction]))
    return made


def sendings(made: Sequence[Bid]) -> Iterator[Bid]:
    """Yield all bids in order, and now and then one of the last hundred a second time."""
    dice = random.Random(0)
    for index, bid in enumerate(made):
        yield bid
        if dice.random() < DUPLICATES:
            yield made[dice.randint(max(0, index - _RECENT), index)]


class SinkFile(NamedTuple):
    """A Parquet file that Spark committed, and the micro-batch that wrote it."""

    batch_id: int
    path: str


class Row(NamedTuple):
    """A row as it stands in a Parquet file. `auction` and `number` are from the body."""

    batch_id: int
    file: str
    group: str
    sequence_number: int
    auction: str
    number: int


class SinkLog:
    """Reads the files that each micro-batch committed from the file sink's own `_spark_metadata`."""

    def __init__(self, parquet: Path) -> None:
        self._log = parquet / "_spark_metadata"
        self._known: set[str] = set()

    def new_files(self) -> list[SinkFile]:
        """Return the files committed since the last call, in the order of micro-batches."""
        entries = {entry: int(entry.name.partition(".")[0]) for entry in self._log.glob("[0-9]*")}
        found = []
        for entry, batch_id in sorted(entries.items(), key=itemgetter(1)):
            # The first line is the log's version. A `.compact` entry repeats all earlier batches' files.
            for line in entry.read_text(encoding="utf-8").splitlines()[1:]:
                path = json.loads(line)["path"]
                if path not in self._known:
                    self._known.add(path)
                    found.append(SinkFile(batch_id, unquote(urlsplit(path).path)))
        return found


def count_rows(files: Iterable[SinkFile]) -> int:
    """Return the number of rows in the files, from their footers alone."""
    return sum(pq.ParquetFile(file.path).metadata.num_rows for file in files)


def read_rows(files: Iterable[SinkFile]) -> Iterator[Row]:
    """Yield every row of the files, file by file, in the order in which each file holds them."""
    for file in files:
        table = pq.ParquetFile(file.path).read(columns=["messageGroupId", "sequenceNumber", "body"])
        for column in table.to_pylist():
            try:
                body = json.loads(column["body"])
                auction, number = str(body["auction"]), int(body["number"])
            except (ValueError, KeyError, TypeError):  # somebody else's message
                auction, number = "", 0
            yield Row(
                file.batch_id,
                file.path,
                column["messageGroupId"],
                int(column["sequenceNumber"]),
                auction,
                number,
            )


@dataclass(frozen=True)
class Audit:
    """The fate of the bids. All but `sent` and `delivered` should be 0."""

    sent: int
    delivered: int
    lost: int
    doubled: int
    out_of_order: int
    unknown: int
    """Delivered rows that nobody sent."""

    @property
    def is_clean(self) -> bool:
        return self.sent > 0 and not (self.lost or self.doubled or self.out_of_order or self.unknown)


def audit(sent: Iterable[Bid], rows: Iterable[Row]) -> Audit:
    """Compare the sent bids with the rows, which stand in the order of micro-batches, files, and positions.

    Nothing is sorted. A row is out of order if its sequence number or its bid number is not above all before it in its
    group, if it stands in another group than its auction's, or if its micro-batch has already put the group into
    another file, for files have no order among themselves. A row that came before is doubled, and not judged again.
    """
    expected = {(bid.auction, bid.number) for bid in sent}
    seen: set[tuple[str, int]] = set()
    highest: dict[str, tuple[int, int]] = {}
    file_of: dict[tuple[int, str], str] = {}
    delivered = doubled = out_of_order = unknown = 0
    for row in rows:
        delivered += 1
        bid = (row.auction, row.number)
        if bid not in expected:
            unknown += 1
            continue
        if bid in seen:
            doubled += 1
            continue
        seen.add(bid)
        sequence_number, number = highest.get(row.group, (-1, -1))
        file = file_of.setdefault((row.batch_id, row.group), row.file)
        if (
            row.sequence_number <= sequence_number
            or row.number <= number
            or row.group != row.auction
            or row.file != file
        ):
            out_of_order += 1
        highest[row.group] = (max(row.sequence_number, sequence_number), max(row.number, number))
    return Audit(len(expected), delivered, len(expected - seen), doubled, out_of_order, unknown)
