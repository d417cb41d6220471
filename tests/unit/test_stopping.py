"""`await_termination` without Spark: its signals, and a micro-batch that does not end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest

from sqs_fifo_spark import await_termination


class Query:
    """A query as Spark Connect has it. Signals come when it is waited for, or asked for its status."""

    name, id = "bids", "0"

    def __init__(self, status: str = "", *signals: signal.Signals, batches: int = 0) -> None:
        self._status = status
        self._signals = list(signals)
        self._batches = batches
        self._looks = 0
        self.is_stopped = False

    def awaitTermination(self, timeout: float | None = None) -> bool:
        self._raise_signal()
        return self.is_stopped or not self._status

    @property
    def status(self) -> dict[str, Any]:
        self._raise_signal()
        return {"isTriggerActive": self._status.startswith("Processing"), "message": self._status}

    @property
    def lastProgress(self) -> dict[str, int]:
        self._looks += 1
        return {"batchId": min(self._looks, self._batches)}

    def stop(self) -> None:
        self.is_stopped = True

    def _raise_signal(self) -> None:
        if self._signals:
            os.kill(os.getpid(), self._signals.pop(0))


ENDED = "the query bids has ended between two micro-batches"
CUT = "the query bids was stopped in a micro-batch, which will run again"
INT, TERM = signal.SIGINT, signal.SIGTERM


@pytest.mark.parametrize(
    ("query", "timeout_s", "line"),
    [
        (Query(), 60, ""),
        (Query("Waiting for data to arrive", TERM), 60, f"SIGTERM: {ENDED}"),
        (Query("Processing new data", INT, batches=2), 60, f"SIGINT: {ENDED}"),
        (Query("Processing new data", INT, INT), 60, f"SIGINT: {CUT}"),
        (Query("Processing new data", INT), 0.1, f"SIGINT: {CUT}"),
    ],
    ids=["ends by itself", "idle", "in a batch that ends", "a second signal", "too long"],
)
def test_a_signal_stops_a_query_and_says_where(
    query: Query, timeout_s: float, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """At once when it is idle, else after the micro-batch, unless time or patience ends; handlers are put back."""
    handlers = [signal.getsignal(number) for number in (INT, TERM)]
    await_termination(cast(Any, query), timeout_s)
    assert capsys.readouterr().err == (f"{line}\n" if line else "")
    assert query.is_stopped == bool(line)
    assert [signal.getsignal(number) for number in (INT, TERM)] == handlers


def test_a_query_that_another_thread_stops_is_waited_for_to_the_end_of_its_batch(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Spark says "terminated" as soon as stop() is called: what the caller does next would meet a batch at work."""

    class Stopped(Query):
        def awaitTermination(self, timeout: float | None = None) -> bool:
            return True

        @property
        def status(self) -> dict[str, Any]:
            self._looks += 1
            return {"isTriggerActive": self._looks < 3, "message": "Processing new data"}

    query = Stopped()
    await_termination(cast(Any, query))
    assert (query._looks, query.is_stopped, capsys.readouterr().err) == (3, False, "")


def test_another_thread_than_the_main_one_is_refused() -> None:
    """Before it waits for anything: Python calls handlers in the main thread alone."""
    with ThreadPoolExecutor(1) as pool, pytest.raises(ValueError, match="main thread"):
        pool.submit(await_termination, cast(Any, Query("Processing new data"))).result()


_SOURCE = """
import os, signal, sys, time
from importlib.util import find_spec
from sqs_fifo_spark.datasource import SqsFifoDataSource
from sqs_fifo_spark.schema import SCHEMA

sys.modules["__main__"].__spec__ = find_spec("pyspark.sql.streaming.python_streaming_source_runner")
signal.signal(signal.SIGINT, signal.default_int_handler)
url = "https://sqs.eu-west-1.amazonaws.com/123456789012/bids.fifo"
SqsFifoDataSource({"queueUrl": url, "journalLocation": "/journal"}).streamReader(SCHEMA).reportLatestOffset()
signal.raise_signal(signal.SIGINT)
time.sleep(1)
print("it goes on", flush=True)
os.getppid = lambda: 1
time.sleep(60)
"""


def test_ctrl_c_ends_the_source_s_own_process_only_with_the_jvm() -> None:
    """Below spark-submit it gets the signal, too; its end in the middle of a call would be the query's error."""
    done = subprocess.run([sys.executable, "-c", _SOURCE], capture_output=True, text=True, timeout=50, check=False)
    assert (done.returncode, done.stdout) == (1, "it goes on\n"), done.stderr
