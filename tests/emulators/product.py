"""Source and sink on an emulator: messages for both, one kill of the driver in mid-run, a restart, and an audit."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from sqs_fifo_spark.clock import SYSTEM_CLOCK
from tests.crash.cluster import ROOT
from tests.crash.processes import begin, descendants, look
from tests.emulators.servers import KEYS, client
from tests.helpers import wait_until

MODES = ("commit", "journal")
GROUPS = 50
RUN_S = 1_200.0
UNFINISHED = "not at its end"
KILL_AFTER = 2
"""Micro-batches that have landed when the driver is killed."""
OPTIONS = {"visibilityTimeoutSeconds": "15", "waitTimeSeconds": "2"}


Messages = Sequence[tuple[str, str]]
"""Group and body of each message, in the order of the sends. The body is its number in its group."""


def interleaved(count: int) -> Messages:
    """Return messages of all groups in turn."""
    return [(f"g{number % GROUPS}", f"{number // GROUPS}") for number in range(count)]


def run(endpoint: str, home: Path, messages: Messages) -> list[dict[str, Any]]:
    """Return for each mode what came of the messages, and the errors of sink and source, empty if there was none."""
    homes = {home / mode: _prepare(endpoint, mode, home / mode, messages) for mode in MODES}
    (home / "messages.json").write_text(json.dumps(messages))
    began = SYSTEM_CLOCK.monotonic()
    application, sink = _start(home), ""

    def has_read() -> bool:
        return all(_is_done(each) or len(_landed(each)) >= KILL_AFTER for each in homes)

    try:
        _wait(application, has_read)
        if unsent := [each for each in homes if not (each / "sent").exists()]:
            sink = _error((home / "app.log").read_text(errors="replace"))
            for each in unsent:
                _send_plainly(endpoint, each, homes[each], messages)
        if not has_read():  # it has ended before its kill
            _kill(application)
            application = _start(home)
            _wait(application, has_read)
        _kill(application)
        application = _start(home)
        _wait(application, lambda: all(map(_is_done, homes)))
    finally:
        _kill(application)
    took_s = round(SYSTEM_CLOCK.monotonic() - began)
    return [
        {"mode": each.name, "took_s": took_s, "sink": sink, "source": _end(each), **audit(each, messages)}
        for each in homes
    ]


def _prepare(endpoint: str, name: str, home: Path, messages: Messages) -> dict[str, str]:
    """Make a queue and the folders of one mode, and return its source's options."""
    (home / "out").mkdir(parents=True)
    url = client(endpoint).create_queue(QueueName=f"{name}.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    options = {"queueUrl": url, "endpointUrl": endpoint, "deleteAfter": home.name, **OPTIONS}
    options["maxMessagesPerTrigger"] = str(len(messages) // 10)
    (home / "options.json").write_text(json.dumps(options))
    return options


def _send_plainly(endpoint: str, home: Path, options: Mapping[str, str], messages: Messages) -> None:
    """Send to the queue one by one; what the sink did send has the same deduplication ids."""
    sqs = client(endpoint)
    for group, body in messages:
        ids = {"MessageGroupId": group, "MessageDeduplicationId": f"{group}-{body}"}
        sqs.send_message(QueueUrl=options["queueUrl"], MessageBody=body, **ids)
    (home / "sent").touch()


def _is_done(home: Path) -> bool:
    return (home / "done").exists()


def _end(home: Path) -> str:
    if (home / "error").exists():
        return _error(text := (home / "error").read_text()) or text.splitlines()[0]
    return "" if _is_done(home) else f"{UNFINISHED} after {RUN_S:g} s"


def audit(home: Path, messages: Messages) -> dict[str, int]:
    """Judge the rows of a mode: a message is out of order if a later one of its group came before it.

    With `deleteAfter=journal` a group may stand in several partitions of a micro-batch, and its sequence numbers order
    it, so those rows are sorted by them; `unsorted` judges them as they stand.
    """
    landed = [json.loads(each.read_text()) for each in _landed(home)]
    by_number = [sorted(rows, key=lambda row: row[2]) for rows in landed] if home.name == "journal" else landed
    seen = Counter((group, number) for rows in landed for group, number, _ in rows)
    sent = {(group, int(body)) for group, body in messages}
    return {
        "sent": len(messages),
        "lost": len(sent - seen.keys()),
        "doubled": seen.total() - len(seen),
        "out_of_order": _out_of_order(by_number),
        "unsorted": _out_of_order(landed),
    }


def _out_of_order(batches: Iterable[Iterable[tuple[str, int, int]]]) -> int:
    newest: dict[str, int] = {}
    seen, count = set(), 0
    for group, number, _ in chain.from_iterable(batches):
        count += number < newest.get(group, -1) and (group, number) not in seen
        newest[group] = max(number, newest.get(group, -1))
        seen.add((group, number))
    return count


def _start(home: Path) -> subprocess.Popen[bytes]:
    for end in [*home.glob("*/error"), *home.glob("*/done")]:
        end.unlink()
    env = {**os.environ, **KEYS, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
    return begin([sys.executable, "-m", "tests.emulators.app", str(home)], home / "app.log", env=env)


def _wait(application: subprocess.Popen[bytes], condition: Any) -> None:
    """Return when the condition holds, the application has ended, or its time is over."""
    until = SYSTEM_CLOCK.monotonic() + RUN_S

    def is_over() -> bool:
        return condition() or application.poll() is not None or SYSTEM_CLOCK.monotonic() > until

    wait_until(is_over, RUN_S + 60, "the application has come so far", pause_s=0.1)


def _kill(application: subprocess.Popen[bytes]) -> None:
    """Kill the driver, then its JVM and workers, at once."""
    driver = look(application.pid)
    for each in [*([driver] if driver else []), *descendants(application.pid)]:
        each.kill()
    application.wait()


def _landed(home: Path) -> list[Path]:
    return sorted((home / "out").glob("*.json"))


def _error(text: str) -> str:
    """Return the last line that is an error's, ours or anybody's, without its frames."""
    lines = [line.strip() for line in text.splitlines()]
    return next((line for line in reversed(lines) if re.match(r"[\w.]*Error: ", line)), "")
