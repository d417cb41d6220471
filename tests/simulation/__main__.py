"""Play schedules, replay one, or show that planted bugs are caught.

python -m tests.simulation                        20,000 schedules, on all cores: every other one is the sink's
python -m tests.simulation --first 500000 --schedules 100000
python -m tests.simulation --side sink            20,000 of the sink's alone
python -m tests.simulation --seed 4711            one schedule, with its whole trace
python -m tests.simulation --mutations            every planted bug until it is caught
python -m tests.simulation --mutations --share 3/8     every eighth planted bug, from number 3 on
"""

from __future__ import annotations

import argparse
import os
import sys

from tests.simulation.runs import ALL_MUTATIONS, hunt, hunt_all, plant, play, play_many


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description="Simulate the whole protocol.")
    parser.add_argument("--schedules", type=int, default=20_000, help="how many to play")
    parser.add_argument("--first", type=int, default=0, help="the seed of the first one; odd: the sink")
    parser.add_argument("--side", choices=["source", "sink"], help="play only schedules of this side")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many processes play")
    parser.add_argument("--seed", type=int, help="play only this one, and print its trace")
    names = [mutation.name for mutation in ALL_MUTATIONS]
    parser.add_argument("--mutation", choices=names, metavar="NAME", help="plant this bug, by its name in the code")
    parser.add_argument("--mutations", action="store_true", help="plant each bug, and play until it is caught")
    parser.add_argument("--share", type=_share, default=(0, 1), help="K/N: plant only those that are K modulo N")
    given = parser.parse_args()
    mutation = next((each for each in ALL_MUTATIONS if each.name == given.mutation), None)
    if given.mutations:
        return hunt_all(given.first, given.schedules, given.jobs, given.share)
    if given.seed is not None:
        if mutation is not None:
            plant(mutation)
        schedule = play(given.seed)
        violations = schedule.laws.violations
        print(*schedule.world.told(), *(violations or ["no violation"]), sep="\n")
        return 1 if violations else 0
    if mutation is not None:
        return hunt(mutation, given.first, given.schedules)
    return play_many(given.first, given.schedules, given.jobs, given.side)


def _share(text: str) -> tuple[int, int]:
    turn, turns = map(int, text.split("/"))
    if turns < 1:
        raise ValueError(text)
    return turn % turns, turns


if __name__ == "__main__":
    sys.exit(main())
