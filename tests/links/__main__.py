"""`python -m tests.links`: drain large messages over a slow link that eight tasks share, and audit what arrived.

As it stands, four runs of four to ten minutes each: the journal on a path and on S3, both values of deleteAfter.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

from tests.conftest import pytest_configure
from tests.helpers import spark_builder
from tests.links.drain import Load, drain
from tests.spark.support import MODES, ROOT

JOURNALS = ("path", "s3")
TASKS = 8


def main() -> int:
    """Return 0 if each message came once, in order, and was received twice at most, in each run."""
    parser = argparse.ArgumentParser(prog="python -m tests.links", description=__doc__)
    parser.add_argument("--messages", type=int, default=200, help="default: %(default)s")
    parser.add_argument("--body-bytes", type=int, default=1 << 20, help="default: %(default)s")
    parser.add_argument("--groups", type=int, default=40, help="default: %(default)s")
    parser.add_argument("--bandwidth", type=float, default=1e6, help="bytes/s, each way (default: %(default)s)")
    parser.add_argument("--delay-ms", type=float, default=300, help="of each request (default: %(default)s)")
    parser.add_argument("--journal", choices=(*JOURNALS, "both"), default="both", help="default: %(default)s")
    parser.add_argument("--mode", choices=(*MODES, "both"), default="both", help="deleteAfter (default: %(default)s)")
    parser.add_argument("--timeout", type=float, help="seconds for each run (default: by its size)")
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE", help="an option of the source")
    given = parser.parse_args()
    pytest_configure()
    os.environ["PYTHONPATH"] = str(ROOT)
    options: dict[str, object] = dict(each.split("=", 1) for each in given.option)

    with tempfile.TemporaryDirectory(prefix="sqs-fifo-links-") as directory:
        home = Path(directory)
        spark = spark_builder(f"local[{TASKS}]", home).config("spark.log.level", "OFF").getOrCreate()
        is_clean = True
        for journal in JOURNALS if given.journal == "both" else [given.journal]:
            for mode in MODES if given.mode == "both" else [given.mode]:
                load = Load(
                    messages=given.messages,
                    body_bytes=given.body_bytes,
                    groups=given.groups,
                    bytes_per_s=given.bandwidth,
                    delay_s=given.delay_ms / 1000,
                    journal=journal,
                    delete_after=mode,
                )
                timeout_s = given.timeout or 60 + 5 * load.fastest_s
                print(f"journal on {journal:4}  deleteAfter={mode:7}", end="  ", flush=True)
                try:
                    print(drain(spark, home / f"{journal}-{mode}", load, timeout_s=timeout_s, options=options))
                except AssertionError as error:
                    is_clean = False
                    print(f"VIOLATION: {error}")
        spark.stop()
    return 0 if is_clean else 1


if __name__ == "__main__":
    sys.exit(main())
