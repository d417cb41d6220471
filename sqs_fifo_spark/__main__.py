"""`python -m sqs_fifo_spark COMMAND`."""

from __future__ import annotations

import argparse
import sys

from sqs_fifo_spark.demo import cli as demo
from sqs_fifo_spark.local import cli as local_queue


def main() -> int:
    """Run the command that the command line names, and return its exit status."""
    parser = argparse.ArgumentParser(prog="sqs_fifo_spark")
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND")
    local_queue.add_arguments(subparsers)
    demo.add_arguments(subparsers)
    args = parser.parse_args()
    status: int = args.run(args)
    return status


if __name__ == "__main__":
    sys.exit(main())
