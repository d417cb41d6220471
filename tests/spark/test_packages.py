"""`spark-submit --packages`: driver and workers have the dependencies, and the package comes in a jar."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sqs_fifo_spark.local import LocalQueueServer
from tests.spark.setups import (
    SUBMIT,
    Repository,
    app,
    cluster,
    environment,
    fill,
    imports,
    make_environment,
    make_repository,
    run_to_end,
    settings,
)
from tests.spark.sink import assert_each_once_in_order, expected, take_all

pytestmark = pytest.mark.long

COUNT, GROUPS = 1_000, 100
QUEUES = ("from.fifo", "into.fifo")


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    return make_repository(tmp_path_factory.mktemp("repository"))


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter that has all that the package needs, and not the package."""
    made = make_environment(tmp_path_factory.mktemp("environment") / "dependencies")
    needed = dict.fromkeys(("pyspark", "pyarrow", "boto3", "obstore", "tenacity"), True)
    absent = {"sqs_fifo_spark": False, "pyspark_sqsfifo": False}
    assert imports(made, *needed, *absent) == {**needed, **absent}
    return made


def test_packages_move_1000_messages_once_and_in_order_in_local_mode(
    repository: Repository, python: Path, tmp_path: Path
) -> None:
    """Source and sink work from the jar, which Spark took from the repository's folder, with `register` alone."""
    with LocalQueueServer(queues=QUEUES) as server:
        origin = moved(server, repository, python, tmp_path, settings(tmp_path))
    assert origin.is_relative_to(tmp_path / "local")


def test_packages_move_1000_messages_once_and_in_order_on_a_cluster(
    repository: Repository, python: Path, tmp_path: Path
) -> None:
    """A worker has its jar from the driver over the network: it imports the copy in its own work folder."""
    driver = tmp_path / "driver"
    driver.mkdir()
    with LocalQueueServer(queues=QUEUES) as server, cluster(tmp_path / "cluster") as master:
        origin = moved(server, repository, python, driver, settings(driver, master=master))
    assert origin.is_relative_to(tmp_path / "cluster" / "work")


def moved(server: LocalQueueServer, repository: Repository, python: Path, home: Path, conf: Path) -> Path:
    """Move messages from queue to queue; return the file of the package that a worker imported."""
    url, into = map(server.queue_url, QUEUES)
    fill(server, url, COUNT, GROUPS)
    variables = environment(SPARK_CONF_DIR=conf, PYSPARK_PYTHON=python)
    printed = run_to_end([SUBMIT, *repository.options, app("move.py"), home, url, into], home, variables)
    assert "found sqs-fifo-spark#sqs-fifo-spark" in printed
    assert_each_once_in_order(take_all(server, into), expected(COUNT, GROUPS))
    (origin,) = json.loads((home / "origins.json").read_text())
    assert Path(origin).parts[-3].endswith(".jar")
    return Path(origin)
