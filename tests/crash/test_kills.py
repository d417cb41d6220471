"""Whatever dies when, each message comes once and in order: the short form of `make kill`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.cluster import Cluster
from tests.crash.harness import Run
from tests.crash.postgres import PostgresServer, programs

pytestmark = pytest.mark.long

KILLS = 5


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster") / "spark") as running:
        yield running


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    if programs() is None and not os.environ.get("CI"):
        pytest.skip("PostgreSQL is not installed: install your system's package 'postgresql', or run `make postgres`")
    with PostgresServer() as server:
        yield server


@pytest.mark.parametrize(
    ("sink", "delete_after", "queues"),
    [
        ("parquet", "commit", 1),
        ("parquet", "journal", 1),
        ("postgres", "commit", 1),
        ("delta", "commit", 1),
        ("iceberg", "journal", 1),
        ("parquet", "commit", 2),
    ],
)
def test_what_a_killed_query_has_written_holds_each_message_once(
    cluster: Cluster, request: pytest.FixtureRequest, tmp_path: Path, sink: str, delete_after: str, queues: int
) -> None:
    """Driver, reader, executor and Python worker die at named points.

    Spark writes files, `foreachBatch` PostgreSQL in one transaction with the batch id, `once` a lake's table. Several
    queues have the same groups, and each message stands with its own queue.
    """
    address = request.getfixturevalue("postgres").address if sink == "postgres" else ""
    home = tmp_path / "run"
    result = Run(
        cluster,
        home,
        sink=sink,
        delete_after=delete_after,
        address=address,
        count=KILLS,
        seed=1,
        say=print,
        queues=queues,
    )()
    assert result.is_clean, f"{result}\nlogs, journal, checkpoint and sink: {home}"
