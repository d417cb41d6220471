"""`python -m tests.crash`: kill a query's processes again and again, and audit what reached its sinks."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from tests.conftest import pytest_configure
from tests.crash.cluster import Cluster
from tests.crash.harness import Run
from tests.crash.plan import SINKS, Road
from tests.crash.postgres import PostgresServer
from tests.spark.support import MODES


def main() -> int:
    """Return 0 if all kills took effect and no law was broken. What a failed run leaves is kept, and named."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description=__doc__)
    parser.add_argument("--kills", type=int, default=50, help="kills for each sink in each mode (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="decides kinds, points and times (default: %(default)s)")
    parser.add_argument("--sink", choices=SINKS, action="append", help="only this sink (default: all)")
    parser.add_argument("--mode", choices=MODES, action="append", help="only this deleteAfter (default: both)")
    parser.add_argument(
        "--link",
        type=Road.parse,
        help="put a link between query and queue, such as 2m,50ms: bytes per second and delay of a request; it is "
        "slower at times, and loses, cuts and resets",
    )
    parser.add_argument(
        "--queues", type=int, default=1, help="of one source, with the same groups (default: %(default)s)"
    )
    parser.add_argument("--keep", action="store_true", help="keep logs, journal, checkpoint and sink in any case")
    given = parser.parse_args()
    pytest_configure()
    # Ended from outside, it still ends all that it has started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    home = Path(tempfile.mkdtemp(prefix="sqsfifo-kill-"))
    is_clean = False
    try:
        with PostgresServer() as postgres, Cluster(home / "cluster") as cluster:
            results = [
                Run(
                    cluster,
                    home / f"{sink}-{mode}",
                    sink=sink,
                    delete_after=mode,
                    address=postgres.address,
                    count=given.kills,
                    seed=given.seed,
                    say=lambda line: print(line, flush=True),
                    road=given.link,
                    queues=given.queues,
                )()
                for mode in given.mode or MODES
                for sink in given.sink or SINKS
            ]
        is_clean = all(result.is_clean for result in results)
    finally:
        if is_clean and not given.keep:
            shutil.rmtree(home)
        else:
            print(f"logs, journal, checkpoint and sink: {home}", file=sys.stderr)
    return 0 if is_clean else 1


if __name__ == "__main__":
    sys.exit(main())
