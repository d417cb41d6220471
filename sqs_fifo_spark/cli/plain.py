"""`local-queue` and `demo`, whose arguments argparse reads: they work without click."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from sqs_fifo_spark import __version__
from sqs_fifo_spark.demo import cli as demo
from sqs_fifo_spark.local import cli as local_queue

_OTHERS = "doctor, journal, send and peek need click and rich: pip install '.[cli]' in this package's sources"


def run(arguments: Sequence[str]) -> int:
    """Run the command that stands first in `arguments`, and return its exit status. Exits with 2 for wrong ones."""
    parser = argparse.ArgumentParser(prog="sqs-fifo-spark", epilog=_OTHERS)
    parser.add_argument(
        "--version",
        action="version",
        version=f"%(prog)s, version {__version__}",
        help="print the version and exit",
    )
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND")
    local_queue.add_arguments(subparsers)
    demo.add_arguments(subparsers)
    if arguments and not arguments[0].startswith("-") and arguments[0] not in subparsers.choices:
        print(f"error: there is no command '{arguments[0]}' here. {_OTHERS}", file=sys.stderr)
        return 2
    args = parser.parse_args(arguments)
    status: int = args.run(args)
    return status
