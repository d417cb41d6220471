"""Fixtures for tests with real queries: each test has a queue server, a queue and a directory of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.streaming.query import StreamingQuery

from sqs_fifo_spark.local import LocalQueueServer
from tests.spark.setups import SMALL_JVM
from tests.spark.support import ROOT, SPARK_VERSION, Rig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Before the JVM exists. Its Python workers find the package and these tests wherever pytest was started.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
os.environ["SPARK_SUBMIT_OPTS"] = SMALL_JVM


def pytest_itemcollected(item: pytest.Item) -> None:
    """Before 4.2, PySpark's `collect` leaves its socket to the garbage collector, which says so."""
    if SPARK_VERSION < (4, 2) and item.path.is_relative_to(Path(__file__).parent):
        item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))


@pytest.fixture
def rig(spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Rig]:
    """A queue that nobody else asks anything, and Spark to read it. All queries end with the test.

    With a parameter, a value of `deleteAfter`: see `in_both_modes`.
    """
    with LocalQueueServer() as server:
        made = Rig(spark, server, tmp_path, delete_after=getattr(request, "param", "commit"))
        try:
            yield made
        finally:
            for query in spark.streams.active:
                query.stop()


@pytest.fixture
def ends_when_drained(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a program of a page, whose last line waits for ever, end once the rig's queue is empty."""

    def drain(query: StreamingQuery, timeout: float | None = None) -> bool:
        rig.drain(query)
        query.stop()
        return True

    monkeypatch.setattr(StreamingQuery, "awaitTermination", drain)
