"""Many schedules: played on all cores until one breaks a law, or played against a planted bug until it is caught.

An even seed is a schedule of the source, an odd one of the sink.
"""

from __future__ import annotations

import concurrent.futures
import logging
import multiprocessing
import re
import subprocess
import sys
import time
from collections.abc import Iterator

from tests.simulation import schedule, sink_schedule
from tests.simulation.mutations import MUTATIONS
from tests.simulation.planting import Mutation
from tests.simulation.refusal_mutations import REFUSAL_MUTATIONS
from tests.simulation.repair_mutations import REPAIR_MUTATIONS
from tests.simulation.schedule import Schedule
from tests.simulation.sink_mutations import SINK_MUTATIONS
from tests.simulation.sink_schedule import SinkSchedule
from tests.simulation.union_mutations import UNION_MUTATIONS

ALL_MUTATIONS = (*MUTATIONS, *SINK_MUTATIONS)
CHUNK = 50
SHOWN = 250
"""Last steps of a failing schedule that are printed."""
_STUMBLES = re.compile("(Assertion|Attribute|Name|Type)Error: ")
"""End of a bug that calls, or is called, as the package does no longer: no law has caught it then."""


def play(seed: int) -> Schedule | SinkSchedule:
    """Return the schedule of `seed`, played. Its laws tell what was violated, its world what happened."""
    schedule = SinkSchedule(seed) if seed % 2 else Schedule(seed)
    schedule.play()
    return schedule


def _play_chunk(first: int, count: int, step: int) -> tuple[int, int, list[str], list[str]]:
    """Play until the first violation; return the first seed, how many were played, the violations and the trace."""
    logging.disable(logging.CRITICAL)
    for seed in range(first, first + count, step):
        schedule = play(seed)
        if schedule.laws.violations:
            return first, (seed - first) // step + 1, schedule.laws.violations, schedule.world.told()
    return first, -(-count // step), [], []


def play_many(first: int, count: int, jobs: int, side: str | None = None) -> int:
    """Play schedules, perhaps only those of one side, and report; return the exit code."""
    began_at = time.monotonic()
    step = 2 if side else 1
    first += side is not None and (first % 2) != (side == "sink")
    done, last = 0, first + step * count
    for begin, played, violations, trace in _in_order(first, last, jobs, step):
        done += played
        if violations:
            seed = begin + step * (played - 1)
            print(*trace[-SHOWN:], sep="\n")
            for violation in violations:
                print(f"seed {seed}: {violation}")
            print(f"Replay it with: make replay SEED={seed}")
            return 1
        if done % 1_000 == 0 or done == count:
            print(
                f"{done:,} of {count:,} schedules in {time.monotonic() - began_at:,.0f} s, 0 violations"
                + (
                    ""
                    if done == count
                    else f"; to go on from here: make simulate N={count - done} FROM={first + step * done}"
                ),
                flush=True,
            )
    return 0


def _in_order(first: int, last: int, jobs: int, step: int) -> Iterator[tuple[int, int, list[str], list[str]]]:
    """Play chunks on `jobs` processes and yield their results by seed, without queueing more than is under way."""
    begins = iter(range(first, last, CHUNK))
    if jobs == 1:
        for begin in begins:
            yield _play_chunk(begin, min(CHUNK, last - begin), step)
        return
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(jobs, mp_context=context) as pool:
        under_way = []
        for begin in begins:
            under_way.append(pool.submit(_play_chunk, begin, min(CHUNK, last - begin), step))
            if len(under_way) > 2 * jobs:
                yield under_way.pop(0).result()
        for future in under_way:
            yield future.result()


def plant(mutation: Mutation) -> None:
    """Put the bug in place, in schedules that can meet it.

    One of a query over two queues where all are that, any other one where none is; one of a repair where all have
    operators that may have some; and one of refused rows where all keep these.
    """
    schedule.UNION_SHARE = 1.0 if mutation in UNION_MUTATIONS else 0.0
    if mutation in REPAIR_MUTATIONS:
        schedule.OPERATORS_SHARE = 1.0
    if mutation in REFUSAL_MUTATIONS:
        sink_schedule.KEEPS_SHARE = 1.0
    mutation.plant()


def hunt(mutation: Mutation, first: int, count: int) -> int:
    """Play `count` schedules, of the kind that can meet it, until the bug is caught; return 0 if it was, else 1."""
    plant(mutation)
    logging.disable(logging.CRITICAL)
    first += (first % 2) != (mutation in SINK_MUTATIONS)
    for played, seed in enumerate(range(first, first + 2 * count, 2), start=1):
        violations = play(seed).laws.violations
        if violations and _STUMBLES.search(violations[0]):
            print(f"it no longer fits what it is planted into: {mutation.name} (seed {seed}: {violations[0]})")
            return 1
        if violations:
            print(f"caught after {played:5,} schedules: {mutation.name} (seed {seed}: {violations[0][:80]})")
            return 0
    print(f"NOT caught in {count:,} schedules: {mutation.name}")
    return 1


def hunt_all(first: int, count: int, jobs: int, share: tuple[int, int] = (0, 1)) -> int:
    """Hunt planted bugs, each in a process of its own: of `share` (k, n) each n-th one, from number k on."""
    turn, turns = share
    mutations = ALL_MUTATIONS[turn::turns]
    print(f"share {turn}/{turns}: {len(mutations)} of {len(ALL_MUTATIONS)} planted bugs", flush=True)

    def run(mutation: Mutation) -> int:
        command = [sys.executable, "-m", "tests.simulation", "--mutation", mutation.name]
        command += ["--first", str(first), "--schedules", str(count)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        print((done.stdout + done.stderr).strip(), flush=True)
        return done.returncode

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        missed = sum(code != 0 for code in pool.map(run, mutations))
    print(f"{len(mutations) - missed} of {len(mutations)} planted bugs caught")
    return 1 if missed else 0
