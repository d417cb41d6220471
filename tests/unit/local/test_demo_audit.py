"""The demo: its audit must find what it is there to find, and its errors must be one line."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sqs_fifo_spark.demo import play as demo
from sqs_fifo_spark.demo.auction import (
    Audit,
    Bid,
    Row,
    SinkFile,
    SinkLog,
    audit,
    bids,
    count_rows,
    read_rows,
    sendings,
)

BIDS = bids(200, 5)
Spoil = Callable[[list[Row]], object]
CLEAN = Audit(sent=200, delivered=200, lost=0, doubled=0, out_of_order=0, unknown=0)


def rows_of(made: list[Bid], per_batch: int = 50) -> list[Row]:
    """Rows as a faultless source would deliver them: in order, several micro-batches, two files in each."""
    return [
        Row(
            batch_id=index // per_batch,
            file=f"{index // per_batch}-{int(bid.auction[-1]) % 2}",
            group=bid.auction,
            sequence_number=1000 + 256 * index,
            auction=bid.auction,
            number=bid.number,
        )
        for index, bid in enumerate(made)
    ]


def positions_of_a_group(rows: list[Row], *, same_batch: bool) -> tuple[int, int]:
    """Two positions of neighbouring rows of one group, in one micro-batch or in two."""
    first = next(
        index
        for index, row in enumerate(rows)
        if (following := next((r for r in rows[index + 1 :] if r.group == row.group), None))
        and (following.batch_id == row.batch_id) is same_batch
    )
    second = next(index for index in range(first + 1, len(rows)) if rows[index].group == rows[first].group)
    return first, second


def test_nothing_sent_is_not_clean() -> None:
    """A demo that sent nothing has shown nothing."""
    assert not audit([], []).is_clean


def lose(position: int) -> Spoil:
    return lambda rows: rows.pop(position)


def double(later: int) -> Spoil:
    """Let a row come again, so many rows later, whatever its sequence number."""

    def spoil(rows: list[Row]) -> None:
        again = rows[50]._replace(batch_id=rows[50 + later].batch_id, sequence_number=10**9)
        rows.insert(51 + later, again)

    return spoil


def swap(*, same_batch: bool) -> Spoil:
    def spoil(rows: list[Row]) -> None:
        first, second = positions_of_a_group(rows, same_batch=same_batch)
        one, other = rows[first], rows[second]
        rows[first] = other._replace(batch_id=one.batch_id, file=one.file)
        rows[second] = one._replace(batch_id=other.batch_id, file=other.file)

    return spoil


def swap_numbers(rows: list[Row]) -> None:
    """Leave sequence numbers that rise, and bids that fall."""
    first, second = positions_of_a_group(rows, same_batch=True)
    numbers = rows[second].number, rows[first].number
    rows[first], rows[second] = (rows[at]._replace(number=n) for at, n in zip((first, second), numbers, strict=True))


def spread(rows: list[Row]) -> None:
    """Files of one micro-batch have no order, so a group in two of them has none either."""
    _, second = positions_of_a_group(rows, same_batch=True)
    rows[second] = rows[second]._replace(file="elsewhere")


@pytest.mark.parametrize(
    ("spoil", "found"),
    [
        *((lose(position), {"delivered": 199, "lost": 1}) for position in (0, 77, 199)),
        *((double(later), {"delivered": 201, "doubled": 1}) for later in (0, 100)),
        (swap(same_batch=True), {"out_of_order": 1}),
        (swap(same_batch=False), {"out_of_order": 1}),
        (swap_numbers, {"out_of_order": 1}),
        (spread, {"out_of_order": 1}),
        (lambda rows: rows.append(rows.pop()._replace(group="auction-999")), {"out_of_order": 1}),
        (
            lambda rows: rows.append(rows[-1]._replace(number=999, sequence_number=10**9)),
            {"delivered": 201, "unknown": 1},
        ),
    ],
)
def test_each_fault_is_found_and_nothing_else(spoil: Spoil, found: dict[str, int]) -> None:
    """Lost, doubled at once or later, out of order in a file or across files, or sent by nobody."""
    rows = rows_of(BIDS)
    spoil(rows)
    told = audit(BIDS, rows)
    assert told == replace(CLEAN, **found)
    assert not told.is_clean


def test_bids_rise_in_each_auction() -> None:
    """Every auction's bids count from 1 without a gap, their amounts rise, and auctions interleave."""
    last: dict[str, Bid] = {}
    for bid in BIDS:
        before = last.get(bid.auction)
        assert bid.number == (before.number + 1 if before else 1)
        assert before is None or bid.amount > before.amount
        last[bid.auction] = bid
    assert len(last) == 5
    assert len({bid.auction for bid in BIDS[100:120]}) > 1


def test_duplicates_repeat_an_earlier_sending() -> None:
    """Sendings hold every bid in order, and some again, each only after its first time."""
    made = bids(2000, 20)
    sent = list(sendings(made))
    counts = Counter(sent)
    assert list(dict.fromkeys(sent)) == made
    assert len(made) < len(sent) < 1.1 * len(made)
    assert all(bid.deduplication_id == f"{bid.auction}-{bid.number}" for bid in counts)
    assert len({bid.deduplication_id for bid in made}) == len(made)


def write_parquet(path: Path, made: list[Bid]) -> None:
    pq.write_table(
        pa.table(
            {
                "messageGroupId": [bid.auction for bid in made],
                "sequenceNumber": [str(10**19 + bid.number) for bid in made],
                "body": [bid.body for bid in made],
            }
        ),
        path,
    )


def test_rows_come_from_committed_files_with_their_batch(tmp_path: Path) -> None:
    """Only files in the sink's log count; a compacted entry repeats old files, which keep their batch."""
    sink = tmp_path / "with space"
    log = sink / "_spark_metadata"
    log.mkdir(parents=True)
    paths = [sink / f"part-{number}.parquet" for number in range(3)]
    for number, path in enumerate([*paths, sink / "never-committed.parquet"]):
        write_parquet(path, BIDS[10 * number : 10 * number + 10])
    entries = [json.dumps({"path": path.as_uri()}) for path in paths]
    (log / "9").write_text("\n".join(["v1", entries[0]]))
    (log / ".9.crc").write_text("not an entry")
    reader = SinkLog(sink)
    assert reader.new_files() == [SinkFile(9, str(paths[0]))]
    (log / "11.compact").write_text("\n".join(["v1", *entries]))
    (log / "10").write_text("\n".join(["v1", entries[1]]))
    rest = reader.new_files()
    assert rest == [SinkFile(10, str(paths[1])), SinkFile(11, str(paths[2]))]
    assert reader.new_files() == []

    files = SinkLog(sink).new_files()
    assert count_rows(files) == 30
    rows = list(read_rows(files))
    assert [(row.batch_id, row.auction, row.number) for row in rows] == [
        (9 + index // 10, bid.auction, bid.number) for index, bid in enumerate(BIDS[:30])
    ]
    assert audit(BIDS[:30], rows).is_clean


def test_no_log_means_no_files(tmp_path: Path) -> None:
    """Before the first micro-batch there is nothing to count."""
    assert SinkLog(tmp_path).new_files() == []


def test_used_directory_is_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`--keep` with a directory that holds something is one clear line and status 2, before anything starts."""
    (tmp_path / "precious").write_text("data")
    assert demo.run(10, 2, tmp_path) == 2
    printed = capsys.readouterr()
    assert printed.err == f"demo: --keep '{tmp_path}' must be a new or an empty directory\n"
    assert [path.name for path in tmp_path.iterdir()] == ["precious"]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "[STREAM_FAILED] Failed:\n  File reader.py\nsqs_fifo_spark.errors.QueueNotFoundError: no queue.\n=== Q",
            "no queue.",
        ),
        (
            "An error occurred while calling o44.load.\n: java.lang.Error: out of luck\n\tat a.b(C:1)",
            "java.lang.Error: out of luck",
        ),
        ("\n[CODE] first\nsecond", "[CODE] first"),
        ("", "ValueError('')"),
    ],
    ids=["ours", "py4j", "spark", "empty"],
)
def test_error_is_told_in_one_line(text: str, line: str) -> None:
    """A person sees our own message if there is one, else the first line that says something."""
    assert demo._one_line(ValueError(text)) == line
