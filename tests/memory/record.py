"""The cost of a replay that finds many rows in the record: memory, processor time, and bytes read from the journal.

`python -m tests.memory.record [--rows N] [--beside FOLDER]` records rows of eight partitions, as Spark's shuffle deals
their groups, and looks at them as a task that has all groups, and as one that has those of one partition. With another
version's sources in `FOLDER` it does so with both, side by side, and ends with status 1 if this one misses its targets:
0.3 of the memory, 0.5 of the time, and a sixth of the bytes for an eighth of the groups.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import process_time
from typing import Any

import psutil

from sqs_fifo_spark.clock import SYSTEM_CLOCK
from sqs_fifo_spark.journal.file_store import FileStore
from sqs_fifo_spark.sink.outgoing import COLUMNS, RowForm, outgoing
from sqs_fifo_spark.sink.record import SentRecord

PARTITIONS = 8
ROWS_IN_PUT = 400
MIB = 1 << 20
_FORM = RowForm(None, True, 1 << 20)
Dealt = list[list[str]]
"""The groups of each partition."""


def digests(groups: Sequence[str], numbers: Sequence[int]) -> Iterator[bytes]:
    """Yield what tells the rows of these numbers in each group, as the version of the sources on the path has it."""
    for number in numbers:
        columns: list[list[Any]] = [["x"] * len(groups), list(groups), [str(number)] * len(groups)]
        columns += [[None] * len(groups)] * (len(COLUMNS) - len(columns))
        yield from (row.digest for row in outgoing(columns, _FORM, first_row=1))


def write(store: FileStore, dealt: Dealt, rows_each: int) -> None:
    for partition, groups in enumerate(dealt):
        record = SentRecord(store, SYSTEM_CLOCK, query="q", batch="0", run="000000000001", partition=partition)
        found = list(digests(groups, range(rows_each)))
        for begin in range(0, len(found), ROWS_IN_PUT):
            record.add(found[begin : begin + ROWS_IN_PUT], by=float("inf"))
            record.tidy()
        record.close()


def look(store: FileStore, groups: Sequence[str], rows_each: int) -> dict[str, float]:
    """Look as a task that has these groups; return what that takes, all rows found."""
    read: list[int] = []
    get = store.get

    def counted(name: str) -> bytes | None:
        data = get(name)
        read.append(len(data or b""))
        return data

    store.get = counted  # type: ignore[method-assign]
    record: Any = SentRecord(store, SYSTEM_CLOCK, query="q", batch="0", run="000000000002", partition=0)
    one_of_each = list(digests(groups, [0]))
    before = psutil.Process().memory_info().rss
    began = process_time()
    record.refresh(*([one_of_each] if inspect.signature(record.refresh).parameters else []))
    seconds, memory = process_time() - began, _peak() - before
    sample = list(digests(groups, range(0, rows_each, max(1, rows_each // 5))))
    began = process_time()
    assert all(map(record.is_sent, sample)), "a row that was recorded is not known"
    found = (process_time() - began) / len(sample) * 1e6
    return {"MiB": memory / MIB, "CPU s": seconds, "bytes": sum(read), "objects": len(read), "us/row": found}


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _in_process(sources: Path, *work: Any) -> Any:
    """Do it in a process of its own, with the package of `sources`; return what it tells."""
    environment = {**os.environ, "PYTHONPATH": str(sources)}
    command = [sys.executable, __file__, "--work"]
    done = subprocess.run(
        command, input=json.dumps(work), capture_output=True, text=True, env=environment, check=False, cwd=sources
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout or "null")


def _work() -> int:
    what, place, dealt, rows_each = json.load(sys.stdin)
    store = FileStore(Path(place))
    if what == "write":
        write(store, dealt, rows_each)
    else:
        print(json.dumps(look(store, dealt, rows_each)))
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--groups", type=int, default=20_000)
    parser.add_argument("--beside", type=Path, help="sources of another version")
    given = parser.parse_args()
    from sqs_fifo_spark.sink.digests import spark_hash  # the other version may have none

    dealt: Dealt = [[] for _ in range(PARTITIONS)]
    for number in range(given.groups):
        dealt[spark_hash(f"group-{number}") % PARTITIONS].append(f"group-{number}")
    everything = [group for groups in dealt for group in groups]
    builds = {"this": Path(__file__).parents[2]} | ({"other": given.beside.absolute()} if given.beside else {})
    found: dict[tuple[str, str], dict[str, float]] = {}
    print(f"{given.rows:,} rows of {given.groups:,} groups", flush=True)
    print(
        f"{'':6} {'a task with':16} {'MiB':>6} {'CPU s':>6} {'bytes read':>12} {'objects':>8} {'us/row':>7}", flush=True
    )
    with tempfile.TemporaryDirectory(prefix="sqs-fifo-record-") as home:
        for build, sources in builds.items():
            rows_each = given.rows // given.groups
            _in_process(sources, "write", f"{home}/{build}", dealt, rows_each)
            for share, groups in (("all groups", everything), ("an eighth", dealt[3])):
                told = found[build, share] = _in_process(sources, "look", f"{home}/{build}", groups, rows_each)
                line = f"{build:6} {share:16} {told['MiB']:6.0f} {told['CPU s']:6.2f} {told['bytes']:12,}"
                print(f"{line} {told['objects']:8} {told['us/row']:7.1f}", flush=True)
    mine, eighth = found["this", "all groups"], found["this", "an eighth"]
    shares = [("bytes for an eighth of the groups", eighth["bytes"] / mine["bytes"], 1 / 6)]
    if given.beside:
        other = found["other", "all groups"]
        shares += [("memory", mine["MiB"] / other["MiB"], 0.3), ("time", mine["CPU s"] / other["CPU s"], 0.5)]
    for what, is_taken, target in shares:
        print(f"{what}: {is_taken:.3f}, at most {target:.3f}")
    return int(any(is_taken > target for _, is_taken, target in shares))


if __name__ == "__main__":
    sys.exit(_work() if "--work" in sys.argv else main())
