"""The demo: its audit finds what it is there to find, its errors are one line, and its screen shows how far it is."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from concurrent.futures import Future
from contextlib import nullcontext, redirect_stdout, suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from sqs_fifo_spark.cli.commands import commands
from sqs_fifo_spark.clock import SYSTEM_CLOCK
from sqs_fifo_spark.demo import play as demo
from sqs_fifo_spark.demo.auction import Audit, Bid, Row, SinkFile, SinkLog, audit, bids, count_rows, read_rows, sendings
from sqs_fifo_spark.demo.query import QueryProcess, _workers, one_line
from sqs_fifo_spark.demo.screen import Bars, Lines, Screen, make_screen, print_table
from sqs_fifo_spark.local import LocalQueueServer
from sqs_fifo_spark.options import parse_source_options
from tests.helpers import wait_until
from tests.manual_clock import ManualClock

BIDS = bids(200, 5)
CLEAN = Audit(sent=200, delivered=200, lost=0, doubled=0, out_of_order=0, unknown=0)


SENT = ("a1", "b1", "a2", "a3", "b2")
"""Auction and number of the bids that are audited; their sequence numbers are their places here."""


def row(place: str, bid: str, sequence_number: int | None = None, group: str = "") -> Row:
    """A row of this bid in a place such as "0f": a micro-batch, and a file of it."""
    if sequence_number is None:
        sequence_number = SENT.index(bid)
    return Row(int(place[0]), place, group or bid[0], sequence_number, bid[0], int(bid[1]))


def queue_at(url: str) -> demo.DemoQueue:
    return demo.DemoQueue(parse_source_options({"queueUrl": url, "journalLocation": "/none"}), SYSTEM_CLOCK)


def test_nothing_sent_is_not_clean() -> None:
    """A demo that sent nothing has shown nothing."""
    assert not audit([], []).is_clean


A1, A2, B1 = row("0f", "a1"), row("0f", "a2"), row("0g", "b1")
A3, B2 = row("1f", "a3"), row("1g", "b2")


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        ([A1, A2, B1, A3, B2], {}),
        ([A2, B1, A3, B2], {"delivered": 4, "lost": 1}),
        ([A1, A2, A3, B2], {"delivered": 4, "lost": 1}),
        ([A1, A2, B1, A3], {"delivered": 4, "lost": 1}),
        # A row that comes again, at once or later, whatever its sequence number.
        ([A1, row("0f", "a1", 99), A2, B1, A3, B2], {"delivered": 6, "doubled": 1}),
        ([A1, A2, B1, row("1f", "a1", 99), A3, B2], {"delivered": 6, "doubled": 1}),
        # Out of order in a file, or across micro-batches.
        ([A2, A1, B1, A3, B2], {"out_of_order": 1}),
        ([A1, row("0f", "a3"), B1, row("1f", "a2"), B2], {"out_of_order": 1}),
        ([row("0f", "a3"), A1, B1, row("1f", "a2"), B2], {"out_of_order": 2}),
        # By the sequence numbers alone, or by the bids alone.
        ([row("0f", "a1", 2), row("0f", "a2", 0), B1, A3, B2], {"out_of_order": 1}),
        ([row("0f", "a2", 0), row("0f", "a1", 2), B1, A3, B2], {"out_of_order": 1}),
        # Files of one micro-batch have no order, so a group in two of them has none either.
        ([A1, row("0g", "a2"), B1, A3, B2], {"out_of_order": 1}),
        ([A1, A2, B1, A3, row("1g", "b2", group="c")], {"out_of_order": 1}),
        # Sent by nobody.
        ([A1, A2, B1, A3, B2, row("1g", "b9", 99)], {"delivered": 6, "unknown": 1}),
    ],
)
def test_each_fault_is_found_and_nothing_else(rows: list[Row], found: dict[str, int]) -> None:
    told = audit([Bid(bid[0], int(bid[1]), "bidder", 100) for bid in SENT], rows)
    assert told == replace(CLEAN, sent=5, **{"delivered": 5, **found})
    assert told.is_clean is (found == {})


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


def test_foreign_message_is_a_row_that_nobody_sent(tmp_path: Path) -> None:
    """A given queue may get one meanwhile."""
    table = pa.table({"messageGroupId": ["g"] * 2, "sequenceNumber": ["1"] * 2, "body": ["no JSON", "[]"]})
    pq.write_table(table, tmp_path / "f")
    assert audit(BIDS[:1], read_rows([SinkFile(0, str(tmp_path / "f"))])).unknown == 2


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


@pytest.mark.parametrize("hidden", ["", "in flight", "delayed"])
def test_given_queue_must_be_empty(hidden: str) -> None:
    """Messages that nobody sees yet count, too; once they are deleted, the queue is free."""
    with LocalQueueServer(queues=["q.fifo"]) as server:
        sqs, url = server.client, server.queue_url("q.fifo")
        queue = queue_at(url)
        queue.require_free()
        if hidden == "delayed":
            sqs.set_queue_attributes(QueueUrl=url, Attributes={"DelaySeconds": "900"})
        sqs.send_message(QueueUrl=url, MessageBody="1", MessageGroupId="g", MessageDeduplicationId="1")
        if hidden == "in flight":
            sqs.receive_message(QueueUrl=url)
        with pytest.raises(demo.DemoError, match="the queue has 1 messages, and must be empty"):
            queue.require_free()


@pytest.mark.parametrize(("most", "is_free"), [(9, False), (10, True)])
def test_given_queue_must_not_move_what_killed_processes_held(most: int, is_free: bool) -> None:
    with LocalQueueServer(queues=["q.fifo", "dead.fifo"]) as server:
        url = server.queue_url("q.fifo")
        arn = server.client.get_queue_attributes(QueueUrl=server.queue_url("dead.fifo"), AttributeNames=["QueueArn"])
        policy = {"deadLetterTargetArn": arn["Attributes"]["QueueArn"], "maxReceiveCount": most}
        server.client.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": json.dumps(policy)})
        with nullcontext() if is_free else pytest.raises(demo.DemoError, match="set maxReceiveCount to 10 or more"):
            queue_at(url).require_free()


class LateQuery:
    """Commits the micro-batch of the rows, 4, and then the next one, which deletes them."""

    end = None

    def __init__(self) -> None:
        self.commits = [4, 4, 5]

    @property
    def last_commit(self) -> int:
        return self.commits.pop(0)


def test_empty_queue_alone_ends_nothing(tmp_path: Path) -> None:
    """SQS's counts may be late: all rows must have come, and a later micro-batch must be committed."""
    write_parquet(tmp_path / "f", BIDS[:3])
    looks = iter([[], [SinkFile(4, str(tmp_path / "f"))], [], []])
    bidders = SimpleNamespace(screen=Lines(ManualClock()), sent=3, queue=SimpleNamespace(depth=lambda: 0))
    query, log, sending = LateQuery(), SimpleNamespace(new_files=looks.__next__), Future[None]()
    sending.set_result(None)
    demo._watch(cast(Any, query), cast(Any, bidders), sending, cast(Any, log), [])
    assert query.commits == []


def test_flags_of_a_given_queue_need_one() -> None:
    done = CliRunner().invoke(commands, ["demo", "--region", "eu-west-1"])
    assert (done.exit_code, "for a queue that --queue-url names" in done.output) == (2, True)


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
    assert one_line(ValueError(text)) == line


# What it kills

STAND_IN = """
import os, subprocess, sys, time
if sys.argv[1:] == ["-m", "pyspark.daemon", "pyspark.worker"]:
    if os.fork() == 0:  # the worker
        while time.process_time() < 30: pass
    time.sleep(60)
else:
    print("said", flush=True)
    subprocess.Popen([sys.executable, "-c", sys.argv[1], "-m", "pyspark.daemon", "pyspark.worker"])
    sys.stdin.read()
"""


class StandIn(QueryProcess):
    """A process tree such as Spark's: driver, daemon, worker."""

    def _start(self) -> subprocess.Popen[bytes]:
        self._command = [sys.executable, "-c", STAND_IN, STAND_IN]
        return super()._start()

    @property
    def workers(self) -> list[int]:
        return list(_workers(self._process.pid))


def test_a_worker_is_killed_alone_and_a_query_with_all_of_its_group(tmp_path: Path) -> None:
    """The daemon is no worker; what was killed is counted; the query that was killed is started again."""
    query = StandIn({}, tmp_path)
    with query:
        wait_until(lambda: query.workers, 30, "the worker is there")
        [worker] = query.workers
        wait_until(query.kill_a_worker, 30, "it works")
        wait_until(lambda: worker not in query.workers, 30, "the worker is gone")
        assert query.end is None
        first = query._process.pid
        query.kill_and_restart()
        assert query._process.pid != first
        wait_until(lambda: query.workers, 30, "the next one has a worker")
        assert (query.kills, query.worker_kills) == (1, 1)
        os.killpg(query._process.pid, signal.SIGTERM)
        wait_until(lambda: query.end, 30, "it has ended")
        assert query.end == "said"


def test_the_table_says_what_was_killed() -> None:
    assert demo._killed(1, 1) == (
        "killed", "2", "with kill -9: the query 1 x, and a Python worker of Spark 1 x", None
    )  # fmt: skip


# What it shows while it plays, and its table


class Terminal(io.StringIO):
    """A terminal that keeps what is written to it."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True

    @property
    def text(self) -> str:
        """The text that was written, without colours and movements of the cursor."""
        return re.sub(r"\x1b\[[?\d;]*[a-zA-Z]", "", self.getvalue())


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return Terminal()


def play(screen: Screen) -> None:
    with screen:
        screen.begin("Spark starts")
        screen.sent(150)
        screen.begin("bids arrive")
        screen.arrived(100, 40)
        screen.sent(200)
        screen.arrived(200, 200)


def test_lines_tell_of_each_step_and_of_figures_once_a_second(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is told twice, no line says that nothing has arrived, and the last figures are always told."""
    clock = ManualClock()
    with Lines(clock) as screen:
        screen.begin("Spark starts")
        for sent in range(10, 200, 10):
            screen.sent(sent)
            screen.arrived(0, 0)
            clock.advance(0.5)
        screen.arrived(100, 0)
        clock.advance(0.5)
        screen.arrived(110, 0)
        clock.advance(0.5)
        screen.arrived(120, 30)
        screen.arrived(120, 30)
        clock.advance(0.25)
        screen.arrived(190, 190)
    assert capsys.readouterr().out.splitlines() == [
        "   0.0 s  Spark starts",
        "   9.5 s  sent     190 | delivered     100 | deleted       0",
        "  10.5 s  sent     190 | delivered     120 | deleted      30",
        "  10.8 s  sent     190 | delivered     190 | deleted     190",
    ]


def test_a_terminal_sees_steps_and_three_bars(terminal: Terminal) -> None:
    """Bids are shown before Spark runs; each step is ticked off; the last picture has all figures."""
    with redirect_stdout(terminal):
        screen = make_screen(200, SYSTEM_CLOCK)
        play(screen)
    assert isinstance(screen, Bars)
    assert re.search(r"✓ Spark starts  \d\.\d s", terminal.text)
    last = terminal.text[terminal.text.rindex("sent ") :]
    assert re.findall(r"(sent|delivered|deleted) .*? (\d+)/200", last) == [
        ("sent", "200"),
        ("delivered", "200"),
        ("deleted", "200"),
    ]


def test_a_failure_ticks_nothing_off(terminal: Terminal) -> None:
    """The step that failed was not done, and the terminal has its cursor back."""
    with redirect_stdout(terminal), suppress(ZeroDivisionError), make_screen(200, SYSTEM_CLOCK) as screen:
        screen.begin("Spark starts")
        raise ZeroDivisionError
    assert "✓" not in terminal.text
    assert terminal.getvalue().rindex("\x1b[?25h") > terminal.getvalue().rindex("\x1b[?25l")


@pytest.mark.parametrize("variables", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_who_wants_no_colours_gets_lines(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]
) -> None:
    """NO_COLOR is a word against drawing, and so is a terminal that cannot."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with redirect_stdout(terminal):
        play(make_screen(200, ManualClock()))
    assert terminal.getvalue().splitlines() == [
        "   0.0 s  Spark starts",
        "   0.0 s  bids arrive",
        "   0.0 s  sent     150 | delivered     100 | deleted      40",
        "   0.0 s  sent     200 | delivered     200 | deleted     200",
    ]


def test_the_table_shows_every_figure_of_the_audit(capsys: pytest.CaptureFixture[str]) -> None:
    """Those that should be 0, too; without a frame where there is no terminal."""
    print_table("200 bids", demo._entries(CLEAN, 4, 7, 5, 2.0), "Every bid arrived.", is_good=True)
    assert capsys.readouterr().out.splitlines() == [
        "",
        "200 bids",
        "",
        "  sent                200   and 4 of them a second time, with the same deduplication id",
        "  delivered           200   rows in 7 Parquet files",
        "  lost                  0   sent, but in no file",
        "  doubled               0   rows that had come before",
        "  out of order          0   in their group, within files and across micro-batches",
        "  micro-batches         5   of 40 rows on average",
        "  seconds             2.0   from the query's first start until the queue was empty",
        "",
        "Every bid arrived.",
    ]


def test_a_fault_is_red(terminal: Terminal) -> None:
    """And what is as it should be is green."""
    entries = demo._entries(replace(CLEAN, lost=1, unknown=1), 4, 7, 5, 2.0)
    with redirect_stdout(terminal):
        print_table("200 bids", entries, "BROKEN", is_good=False)
    told = terminal.getvalue()
    assert [entry.name for entry in entries if entry.is_good is False] == ["lost", "unknown"]
    assert "\x1b[1;31m1\x1b[0m" in told
    assert "\x1b[1;32m0\x1b[0m" in told
    assert "\x1b[1;31mBROKEN\x1b[0m" in told
