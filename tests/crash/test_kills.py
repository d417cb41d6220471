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


def run(
    cluster: Cluster, home: Path, *, sink: str, address: str = "", delete_after: str = "commit", queues: int = 1
) -> None:
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


@pytest.mark.parametrize("delete_after", ["commit", "journal"])
def test_files_of_a_killed_query_hold_each_message_once(cluster: Cluster, tmp_path: Path, delete_after: str) -> None:
    """Driver, reader, executor and Python worker die at named points, and the file sink has every message."""
    run(cluster, tmp_path / "run", sink="parquet", delete_after=delete_after)


def test_a_table_written_by_a_killed_query_holds_each_message_once(
    cluster: Cluster, postgres: PostgresServer, tmp_path: Path
) -> None:
    """The same into PostgreSQL, written by foreachBatch in one transaction with the batch id."""
    run(cluster, tmp_path / "run", sink="postgres", address=postgres.address)


@pytest.mark.parametrize(("sink", "delete_after"), [("delta", "commit"), ("iceberg", "journal")])
def test_a_lake_s_table_written_by_a_killed_query_holds_each_message_once(
    cluster: Cluster, tmp_path: Path, sink: str, delete_after: str
) -> None:
    """The same into Delta and Iceberg, written by `once`."""
    run(cluster, tmp_path / "run", sink=sink, delete_after=delete_after)


def test_files_of_a_killed_query_over_two_queues_hold_each_message_once(cluster: Cluster, tmp_path: Path) -> None:
    """Both queues have the same groups, and each message stands with its own queue."""
    run(cluster, tmp_path / "run", sink="parquet", queues=2)
