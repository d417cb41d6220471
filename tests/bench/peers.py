"""Peers of the connector outside of Spark: bare loops, a consumer for Node, a bare sender."""

from __future__ import annotations

import importlib.util
import itertools
import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.bench.measure import Way, Window
from tests.bench.model import Bench, Job
from tests.bench.team import python, team

NODE_PACKAGES = ("sqs-consumer@14", "@aws-sdk/client-sqs@3")
SENDERS = 2
_CONSUMER = Path(__file__).with_name("sqs_consumer.mjs")
_numbers = itertools.count(1)


def _loops(module: str, *, is_alone: bool = False, is_durable: bool = False) -> Way:
    """Return loops that receive ten and delete ten, in one process, or in as many as there are cores.

    A durable one puts each ten on disk before it deletes them, as the laws force.
    """

    def drain(bench: Bench, job: Job, window: Window) -> None:
        journal = {"journal": str(bench.home / f"loop-{next(_numbers)}")} if is_durable else {}
        command = python(module, _task(bench, job, **journal))
        _drain(bench, [command] * (1 if is_alone else bench.cores), job, window)

    return drain


def node_consumers(bench: Bench, job: Job, window: Window) -> None:
    """sqs-consumer for Node, in as many processes as there are cores."""
    assert bench.node is not None
    command = ["node", "--no-warnings", str(bench.node / _CONSUMER.name), json.dumps(_task(bench, job))]
    _drain(bench, [command] * bench.cores, job, window)


def senders(bench: Bench, job: Job, window: Window) -> None:
    """Send ten in a call by boto3, in two processes."""
    each = {"messages": job.messages // SENDERS, "groups": max(job.groups // SENDERS, 1), "size": job.size}
    tasks = [_task(bench, job, **each) | {"task": "send", "worker": number} for number in range(SENDERS)]
    with team([python("boto3_worker", task) for task in tasks]) as ready:
        window.open()
        ready.go()
        window.close(max(result["finished"] for result in ready.results()))
    check_sent(bench, job)


def check_sent(bench: Bench, job: Job) -> None:
    """Empty the queue. RuntimeError unless it held each message once, and each group in order."""
    bench.queue.delay(0)
    bench.queue.release(job.url)
    last: dict[str, int] = {}
    count = 0
    for message in bench.queue.take_all(job.url):
        group, number = message["Attributes"]["MessageGroupId"], int(message["Body"].partition(" ")[0])
        if number <= last.get(group, -1):
            raise RuntimeError(f"group {group} is not in order, or has a message twice")
        last[group] = number
        count += 1
    if count != job.messages:
        raise RuntimeError(f"{count} messages in the queue, of {job.messages}")


def _task(bench: Bench, job: Job, **more: Any) -> dict[str, Any]:
    return {"task": "drain", "endpoint": bench.queue.endpoint_url, "url": job.url, **more}


def _drain(bench: Bench, commands: Sequence[Sequence[str]], job: Job, window: Window) -> None:
    with team(commands) as ready:
        window.open()
        bench.queue.release(job.url)
        ready.go()
        results = ready.results()
        window.close(max(result["finished"] for result in results))
    handled = sum(result["count"] for result in results)
    if handled != job.messages:
        raise RuntimeError(f"{handled} messages handled, of {job.messages}")


PEERS: dict[str, Way] = {
    "boto3": _loops("boto3_worker"),
    "bare": _loops("boto3_worker", is_alone=True),
    "loop": _loops("boto3_worker", is_alone=True, is_durable=True),
    "awscrt": _loops("awscrt_worker"),
    "node": node_consumers,
    "sender": senders,
}


def has_awscrt() -> bool:
    """Return whether `awscrt`, of the extra `bench`, is installed."""
    return importlib.util.find_spec("awscrt") is not None


def install_node_packages(home: Path) -> str:
    """Install the packages into `home`, once, beside the script that needs them. Return why not, or ""."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        return "there is no node, or no npm"
    home.mkdir(parents=True, exist_ok=True)
    shutil.copy(_CONSUMER, home)
    if not (home / "node_modules" / "sqs-consumer").exists():
        command = ["npm", "install", "--no-audit", "--no-fund", "--loglevel=error", "--prefix", str(home)]
        done = subprocess.run([*command, *NODE_PACKAGES], capture_output=True, text=True)
        if done.returncode:
            return f"npm failed: {(done.stderr.strip() or '?').splitlines()[-1]}"
    return ""
