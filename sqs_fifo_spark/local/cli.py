"""The command `local-queue`: the strict local queue as a process of its own."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from types import FrameType
from typing import Any

from sqs_fifo_spark.local.faults import PROBABILITIES, Faults
from sqs_fifo_spark.local.model import IN_FLIGHT_CAP
from sqs_fifo_spark.local.planned import PlannedFault
from sqs_fifo_spark.local.policy import read_policies

DEFAULT_PORT = 9324
_USAGE, _REFUSED = 2, 3
"""Exit statuses, as of all commands: a wrong value; an address, a file or a package that cannot be had."""
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
    parser.add_argument(
        "--policy",
        action="append",
        default=[],
        metavar="KEY=FILE",
        help="let this access key do only what the IAM policy in this file allows; repeatable",
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
    faults.add_argument(
        "--calls-per-second",
        type=int,
        metavar="N",
        help="throttle what exceeds so many calls of an action in a second, for each queue without high throughput; "
        "SQS's quota is 300",
    )
    faults.add_argument("--fault-action", action="append", metavar="ACTION", help="fail only this action; repeatable")
    faults.add_argument("--fault-queue", action="append", metavar="QUEUE", help="fail only for this queue; repeatable")
    faults.add_argument(
        "--deny",
        action="append",
        default=[],
        metavar="ACTION",
        help="answer AccessDenied, also to the action's batch: DeleteMessage denies DeleteMessageBatch; repeatable",
    )
    faults.add_argument(
        "--plan",
        action="append",
        default=[],
        metavar="PLAN",
        help="fail one request for sure: FAULT:ACTION:NUMBER, or FAULT:ACTION:NUMBER:QUEUE, such as "
        "drop_answer:DeleteMessageBatch:3:bids.fifo; repeatable",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Serve as the command line says; return the exit status."""
    probabilities = {name: getattr(args, name) for name in PROBABILITIES}
    try:
        faults = faults_of(
            probabilities,
            seed=args.seed,
            delay_s=args.delay_s,
            calls_per_second=args.calls_per_second,
            actions=args.fault_action,
            queues=args.fault_queue,
            deny=args.deny,
            plans=args.plan,
        )
    except ValueError as error:
        return _cannot_start(error, _USAGE)
    return serve(
        host=args.host,
        port=args.port,
        queues=args.queue,
        region=args.region,
        in_flight_cap=args.in_flight_cap,
        faults=faults,
        policies=args.policy,
    )


def faults_of(
    probabilities: Mapping[str, Any],
    *,
    seed: int,
    delay_s: float,
    calls_per_second: int | None = None,
    actions: Iterable[str] | None,
    queues: Iterable[str] | None,
    deny: Iterable[str],
    plans: Iterable[str],
) -> Faults:
    """The faults that a command line asks for. Raises ValueError for a value that faults do not take."""
    return Faults(
        seed=seed,
        delay_s=delay_s,
        calls_per_second=calls_per_second,
        actions=None if actions is None else frozenset(actions),
        queues=None if queues is None else frozenset(queues),
        deny=frozenset(deny),
        planned=tuple(PlannedFault.from_text(plan) for plan in plans),
        **probabilities,
    )


def serve(
    *,
    host: str,
    port: int,
    queues: Iterable[str],
    region: str,
    in_flight_cap: int,
    faults: Faults,
    policies: Iterable[str] = (),
) -> int:
    """Serve until SIGINT or SIGTERM; return the exit status. `policies` are texts `KEY=FILE`.

    Prints the endpoint as one line on stdout as soon as requests are served, then one line for each queue's URL, then
    what to paste to use them.
    """
    try:
        from sqs_fifo_spark.local.server import LocalQueueServer
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "aiohttp":
            raise
        print("the local queue needs aiohttp: pip install '.[local]' in this package's sources", file=sys.stderr)
        return _REFUSED
    stopped = threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:
        stopped.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    names = list(dict.fromkeys(queues))
    try:
        server = LocalQueueServer(
            host=host,
            port=port,
            faults=faults,
            queues=names,
            policies=read_policies(policies),
            region=region,
            in_flight_cap=in_flight_cap,
        )
        with server:
            print(f"local SQS FIFO queue at {server.endpoint_url}", flush=True)
            urls = [server.queue_url(name) for name in names]
            for url in urls:
                print(f"queueUrl: {url}", flush=True)
            print(usage(server.endpoint_url, urls, region), flush=True)
            stopped.wait()
    except (ValueError, OverflowError) as error:
        return _cannot_start(error, _USAGE)
    except OSError as error:
        return _cannot_start(error, _REFUSED)
    return 0


def usage(endpoint_url: str, queue_urls: Sequence[str], region: str) -> str:
    """What to paste into a shell, and into Python, to use a local queue: the first one, if there are several."""
    text = _EXPORTS.format(endpoint_url=endpoint_url, region=region)
    if queue_urls:
        text += _SNIPPET.format(endpoint_url=endpoint_url, queue_url=queue_urls[0], region=region)
    return text


def _cannot_start(error: Exception, status: int) -> int:
    print(f"the local queue cannot start: {error}", file=sys.stderr)
    return status


# AWS SDKs and the connector refuse to call without credentials; this queue does not look at them.
_EXPORTS = """
# Any credentials will do. In the shell, before Python or Spark starts:
export AWS_ACCESS_KEY_ID=any AWS_SECRET_ACCESS_KEY=any
export AWS_DEFAULT_REGION={region}
export AWS_ENDPOINT_URL_SQS={endpoint_url}
"""

_SNIPPET = """
# Then, in Python: send a message, and read the queue with PySpark.
import tempfile
import uuid

import boto3
from pyspark.sql import SparkSession

import sqs_fifo_spark

queue_url = "{queue_url}"
sqs = boto3.client("sqs", endpoint_url="{endpoint_url}", region_name="{region}")
sent = sqs.send_message(
    QueueUrl=queue_url, MessageBody="100", MessageGroupId="auction-1", MessageDeduplicationId=str(uuid.uuid4())
)
spark = SparkSession.builder.master("local[2]").getOrCreate()
sqs_fifo_spark.register(spark)
bids = (
    spark.readStream.format("sqsfifo")
    .option("queueUrl", queue_url)
    .option("journalLocation", tempfile.mkdtemp())
    .load()
)
query = bids.select("messageGroupId", "sequenceNumber", "body").writeStream.format("console").start()
query.awaitTermination()
"""
