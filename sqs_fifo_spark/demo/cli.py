"""The arguments of the command `demo`. What plays it is imported when it is played: Arrow, boto3 and Spark."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

DEFAULT_MESSAGES = 4000
DEFAULT_AUCTIONS = 40


def add_arguments(subparsers: Any) -> None:
    """Add the command `demo` to what `ArgumentParser.add_subparsers` returned."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "demo", help="play an auction through a local queue and Spark, and audit what arrived"
    )
    parser.add_argument(
        "--messages",
        type=_positive,
        default=DEFAULT_MESSAGES,
        metavar="N",
        help="bids (default: %(default)s)",
    )
    parser.add_argument(
        "--auctions",
        type=_positive,
        default=DEFAULT_AUCTIONS,
        metavar="N",
        help="auctions, each a message group (default: %(default)s)",
    )
    parser.add_argument(
        "--keep",
        type=Path,
        metavar="DIR",
        help="work in this new or empty directory and leave Parquet, checkpoint and Spark's log there",
    )
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    from sqs_fifo_spark.demo.play import run

    return run(args)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not above 0")
    return number
