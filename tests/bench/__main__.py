"""`python -m tests.bench`: the connector beside what one would use instead, in paired rounds; see `--help`.

Without `--suite`, one comparison of `--ways`. A way can have its own number of groups, such as `journal:50`.

    boto3, awscrt, node   loops that receive ten and delete ten, in as many processes as there are cores
    bare, loop            the first in one process; the same, that puts each ten on disk before it deletes them
    naive                 a simple streaming source that deletes as it receives
    commit, journal       the connector's source, by its `deleteAfter`; commit-s3, journal-s3: with its journal on S3;
                          commit-pointers, journal-pointers: each body an object of S3, 20 ms away
    sender                ten in a call by boto3, in two processes
    sink, sink-journal    the connector's sink, without and with a journal, in two tasks
    empty                 micro-batches without a row
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from tests.bench import plan
from tests.bench.latency import LATENCY_WAYS
from tests.bench.measure import compare
from tests.bench.model import Bench, Comparison, Entrant
from tests.bench.payload_store import payload_store
from tests.bench.peers import PEERS, has_awscrt, install_node_packages
from tests.bench.processes import adopt_orphans
from tests.bench.queue_process import queue_process
from tests.bench.report import Report
from tests.bench.sessions import Sessions
from tests.bench.slow_s3 import slow_s3
from tests.bench.spark_ways import SPARK_WAYS
from tests.conftest import pytest_configure

ROOT = Path(__file__).resolve().parents[2]
S3_DELAY_MS = 30.0
PAYLOAD_DELAY_MS = 20.0


def main() -> int:
    """Run the comparisons, write report, figures and plots, print the report, and return 0."""
    args = _arguments()
    if args.suite:
        comparisons = plan.full() if args.suite == "full" else plan.quick()
        topics = args.only.split(",") if args.only else plan.TOPICS
        comparisons = [plan.scaled(each, args.scale) for each in comparisons if each.topic in topics]
    else:
        comparisons = [_own(args)]
    args.out.mkdir(parents=True, exist_ok=True)
    command = "python -m tests.bench " + " ".join(sys.argv[1:])
    with ExitStack() as stack:
        bench, missing = set_up(stack, {entrant.way for each in comparisons for entrant in each.entrants})
        _run(bench, comparisons, missing, Report(command, args.out))
    return 0


def _run(bench: Bench, comparisons: list[Comparison], missing: dict[str, str], report: Report) -> None:
    for comparison in comparisons:
        there = tuple(each for each in comparison.entrants if each.way not in missing)
        ways = LATENCY_WAYS if comparison.rate else {**PEERS, **SPARK_WAYS}
        if unknown := [each.way for each in there if each.way not in ways]:
            raise SystemExit(f"no such way: {', '.join(unknown)}. There are {', '.join(ways)}.")
        report.add(comparison, compare(bench, replace(comparison, entrants=there), ways, frozenset(SPARK_WAYS)))
    print(report.markdown())


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--suite", choices=["quick", "full"])
    parser.add_argument("--only", help="topics of the suite, with commas: those of plan.py")
    parser.add_argument("--scale", type=float, default=1.0, help="of the suite's numbers of messages")
    parser.add_argument("--out", type=Path, default=ROOT / "artifacts" / "bench")
    parser.add_argument("--ways", default="loop,journal")
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--groups", type=int, default=1)
    parser.add_argument("--bytes", type=int, default=500, help="of a message's body")
    parser.add_argument("--delay-ms", type=float, default=0, help="added to each request to SQS")
    parser.add_argument("--rate", type=float, default=0, help="send so many a second meanwhile, and measure latencies")
    parser.add_argument("--slots", type=int, default=2, help="tasks that Spark runs at once")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--option", type=lambda text: text.split("=", 1), action="append", default=[])
    return parser.parse_args()


def _own(args: argparse.Namespace) -> Comparison:
    entrants = []
    for name in args.ways.split(","):
        way, _, groups = name.partition(":")
        entrants.append(Entrant(way, name, dict(args.option), int(groups) if groups else None))
    topic = "latency" if args.rate else "sink" if {"sender", "sink", "sink-journal"} & {e.way for e in entrants} else ""
    topic = topic or ("floor" if entrants[0].way == "empty" else "drain")
    return Comparison(
        topic,
        "own",
        tuple(entrants),
        messages=args.messages,
        groups=args.groups,
        size=args.bytes,
        delay_s=args.delay_ms / 1000,
        rate=args.rate,
        slots=args.slots,
        rounds=args.rounds,
    )


def set_up(stack: ExitStack, ways: set[str]) -> tuple[Bench, dict[str, str]]:
    """Set up what the ways need, and return it with those that are missing, and why."""
    pytest_configure()
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    adopt_orphans()
    missing: dict[str, str] = {}
    if "awscrt" in ways and not has_awscrt():
        missing["awscrt"] = "the extra `bench` is not installed"
    node = ROOT / "artifacts" / "bench-node"
    if "node" in ways and (why := install_node_packages(node)):
        missing["node"] = why
    for way, why in missing.items():
        print(f"without {way}: {why}", file=sys.stderr)
    home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sqs-fifo-bench-")))
    queue = stack.enter_context(queue_process())
    uncounted = {queue.pid}
    if any(way.endswith("-s3") for way in ways):
        # Before the JVM, whose workers inherit it.
        os.environ["AWS_ENDPOINT_URL_S3"], pid = stack.enter_context(slow_s3(S3_DELAY_MS))
        uncounted.add(pid)
    payloads = ""
    if any(way.endswith("-pointers") for way in ways):
        payloads, pid = stack.enter_context(payload_store(PAYLOAD_DELAY_MS))
        uncounted.add(pid)
    sessions = Sessions(home)
    stack.callback(sessions.stop)
    return Bench(queue, home, sessions, os.cpu_count() or 1, frozenset(uncounted), node, payloads), missing


if __name__ == "__main__":
    sys.exit(main())
