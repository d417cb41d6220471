"""The command `local-queue`: the strict local queue as a process of its own."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from types import FrameType
from typing import Any

from sqs_fifo_spark.local.errors import SqsError
from sqs_fifo_spark.local.faults import PROBABILITIES, Faults
from sqs_fifo_spark.local.model import IN_FLIGHT_CAP

DEFAULT_PORT = 9324
_FAULTS = {
    "throttle": "answer ThrottlingException, without effect",
    "server_error": "answer HTTP 500 or 503, without effect",
    "reset": "reset the connection, before any effect",
    "drop_answer": "do what the request asks, and close the connection without an answer",
    "fail_entry": "fail an entry of a batch with InternalError; the dice are thrown for each entry",
    "short_answer": "let a receive return fewer messages than there are, perhaps none",
}


def add_arguments(subparsers: Any) -> None:
    """Add the command `local-queue` to what `ArgumentParser.add_subparsers` returned."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "local-queue", help="run a strict local SQS FIFO queue to test consumers against"
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument(
        "--port", type=int, default=DEFAULT_PORT, help="port; 0 lets the system choose (default: %(default)s)"
    )
    parser.add_argument(
        "--queue", action="append", default=[], metavar="NAME.fifo", help="create this queue; repeatable"
    )
    parser.add_argument("--region", default="us-east-1", help="region in queue ARNs (default: %(default)s)")
    parser.add_argument(
        "--in-flight-cap",
        type=int,
        default=IN_FLIGHT_CAP,
        help="messages in flight per queue above which receives come back empty (default: %(default)s)",
    )
    faults = parser.add_argument_group("failing on purpose; probabilities from 0 to 1")
    faults.add_argument("--seed", type=int, default=0, help="seed of the dice (default: %(default)s)")
    for name in PROBABILITIES:
        faults.add_argument(f"--{name.replace('_', '-')}", type=float, default=0.0, metavar="P", help=_FAULTS[name])
    faults.add_argument("--delay-s", type=float, default=0.0, help="seconds that every request waits first")
    faults.add_argument("--fault-action", action="append", metavar="ACTION", help="fail only this action; repeatable")
    faults.add_argument("--deny", action="append", default=[], metavar="ACTION", help="answer AccessDenied; repeatable")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Serve until SIGINT or SIGTERM; return the exit status.

    Prints the endpoint as one line on stdout as soon as requests are served, then one line for each queue's URL.
    """
    try:
        from sqs_fifo_spark.local.server import LocalQueueServer
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "aiohttp":
            raise
        print("the local queue needs aiohttp: pip install '.[local]' in this package's sources", file=sys.stderr)
        return 1
    stopped = threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:
        stopped.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    try:
        server = LocalQueueServer(
            host=args.host,
            port=args.port,
            faults=_faults(args),
            queues=args.queue,
            region=args.region,
            in_flight_cap=args.in_flight_cap,
        )
        with server:
            print(f"local SQS FIFO queue at {server.endpoint_url}", flush=True)
            for name in dict.fromkeys(args.queue):
                print(f"queueUrl: {server.queue_url(name)}", flush=True)
            stopped.wait()
    except (OSError, SqsError, ValueError) as error:
        print(f"the local queue cannot start: {error}", file=sys.stderr)
        return 1
    return 0


def _faults(args: argparse.Namespace) -> Faults:
    return Faults(
        seed=args.seed,
        delay_s=args.delay_s,
        actions=None if args.fault_action is None else frozenset(args.fault_action),
        deny=frozenset(args.deny),
        **{name: getattr(args, name) for name in PROBABILITIES},
    )
