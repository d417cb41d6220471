"""The command `local-queue`: the strict local queue as a process of its own."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Sequence
from errno import EADDRINUSE
from importlib.util import find_spec
from typing import Any

import click

from sqs_fifo_spark.local.faults import Faults
from sqs_fifo_spark.local.model import IN_FLIGHT_CAP
from sqs_fifo_spark.local.planned import KINDS, PlannedFault
from sqs_fifo_spark.local.policy import read_policies

_FAULTS = {
    "throttle": "Answer ThrottlingException, without effect.",
    "server_error": "Answer HTTP 500 or 503, without effect.",
    "reset": "Reset the connection, before any effect.",
    "drop_answer": "Do what the request asks, and close the connection without an answer.",
    "fail_entry": "Fail an entry of a batch with InternalError; the dice are thrown for each entry.",
    "short_answer": "Let a receive return fewer messages than there are, perhaps none.",
}


def _probabilities(command: Callable[..., int]) -> Callable[..., int]:
    for name in reversed(KINDS):
        flag = f"--{name.replace('_', '-')}"
        command = click.option(flag, type=float, default=0.0, metavar="P", help=_FAULTS[name])(command)
    return command


def _each(flag: str, name: str, metavar: str, help: str) -> Callable[[Callable[..., int]], Callable[..., int]]:
    return click.option(flag, name, multiple=True, metavar=metavar, help=f"{help} Repeatable.")


@click.command(short_help="Run a strict local SQS FIFO queue for tests.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=int, default=9324, show_default=True, help="Port; 0 lets the system choose.")
@_each("--queue", "queues", "NAME.fifo", "Create this queue.")
@_each("--policy", "policies", "KEY=FILE", "Let this access key do only what the IAM policy in this file allows.")
@click.option("--region", default="us-east-1", show_default=True, help="Region in queue ARNs.")
@click.option(
    "--in-flight-cap",
    type=int,
    default=IN_FLIGHT_CAP,
    show_default=True,
    help="Messages in flight per queue above which receives come back empty.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the dice.")
@_probabilities
@click.option("--delay-s", type=float, default=0.0, help="Seconds that every request waits first.")
@click.option(
    "--calls-per-second",
    type=int,
    metavar="N",
    help="Throttle what exceeds so many calls of an action in a second, for each queue without high throughput; SQS's "
    "quota is 300.",
)
@_each("--fault-action", "actions", "ACTION", "Fail only this action.")
@_each("--fault-queue", "fault_queues", "QUEUE", "Fail only for this queue.")
@_each(
    "--deny",
    "deny",
    "ACTION",
    "Answer AccessDenied, also to the action's batch: DeleteMessage denies DeleteMessageBatch.",
)
@_each(
    "--plan",
    "plans",
    "PLAN",
    "Fail one request for sure: FAULT:ACTION:NUMBER, or FAULT:ACTION:NUMBER:QUEUE, such as "
    "drop_answer:DeleteMessageBatch:3:bids.fifo.",
)
def local_queue(
    host: str,
    port: int,
    queues: Sequence[str],
    policies: Sequence[str],
    region: str,
    in_flight_cap: int,
    actions: Sequence[str],
    fault_queues: Sequence[str],
    deny: Sequence[str],
    plans: Sequence[str],
    **faults: Any,
) -> int:
    """Run a strict local SQS FIFO queue to test consumers against, until SIGINT or SIGTERM.

    It prints its endpoint as soon as it serves, then the URL of each queue, its page, and what to paste to use them.
    Many flags let it fail on purpose: P is a probability, from 0 to 1.
    """
    if find_spec("aiohttp") is None:
        raise click.ClickException("the local queue needs aiohttp: pip install '.[local]' in this package's sources")
    from sqs_fifo_spark.local.server import LocalQueueServer

    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    names = list(dict.fromkeys(queues))
    try:
        server = LocalQueueServer(
            host=host,
            port=port,
            faults=Faults(
                actions=frozenset(actions) or None,
                queues=frozenset(fault_queues) or None,
                deny=frozenset(deny),
                planned=tuple(map(PlannedFault.from_text, plans)),
                **faults,
            ),
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
            print(f"page for a browser: {server.endpoint_url}/", flush=True)
            print(usage(server.endpoint_url, urls, region), flush=True)
            stopped.wait()
    except (ValueError, OverflowError) as error:
        raise click.UsageError(f"the local queue cannot start: {str(error).rstrip('.')}.") from None
    except OSError as error:
        reason = f"{error}. Give another --port, such as 0 for a free one" if error.errno == EADDRINUSE else error
        raise click.ClickException(f"the local queue cannot start: {reason}") from None
    return 0


def usage(endpoint_url: str, queue_urls: Sequence[str], region: str) -> str:
    """The text to paste into a shell, and into Python, to use a local queue: the first one, if there are several."""
    text = _EXPORTS.format(endpoint_url=endpoint_url, region=region)
    if queue_urls:
        text += _SNIPPET.format(endpoint_url=endpoint_url, queue_url=queue_urls[0], region=region)
    return text


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
