"""Settings for all tests, and Spark for those that ask. Nothing here starts a JVM until a test asks for `spark`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.guarantees import LAWS, numbers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.workers import Scheduling

# Before any client or JVM exists, because Spark's Python workers inherit it from the JVM: dummy credentials,
# nothing of the developer's own AWS settings, and no proxy between a test and this machine.
_ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "NO_PROXY": "127.0.0.1,localhost",
    "no_proxy": "127.0.0.1,localhost",
    "PYSPARK_PYTHON": sys.executable,
    "PYSPARK_DRIVER_PYTHON": sys.executable,
}
_UNWANTED = (
    "AWS_PROFILE",
    "AWS_SESSION_TOKEN",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_SQS",
    "AWS_ENDPOINT_URL_S3",
)


def pytest_configure() -> None:
    os.environ.update(_ENVIRONMENT)
    for name in _UNWANTED:
        os.environ.pop(name, None)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--law", choices=LAWS, metavar="NUMBER", help="run only what shows this law, such as source-4")
    parser.addoption("--long-share", metavar="K/N", help="of the long tests run only each Nth file's, from file K on")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Refuse marks that name no law."""
    try:
        numbers(metafunc.definition.iter_markers("law"))
    except ValueError as error:
        raise pytest.Collector.CollectError(str(error)) from None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Scheduling | None:
    """With `--dist loadfile`, as the Makefile has it."""
    from tests.workers import Scheduling

    return Scheduling(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of the law and the share that were asked for; for xdist's workers, put the costly files first."""
    kept = items
    if asked := config.getoption("--law", default=None):
        kept = [item for item in kept if asked in numbers(item.iter_markers("law"))]
    if share := config.getoption("--long-share", default=None):
        from tests.workers import of_share

        kept = of_share(kept, share)
    config.hook.pytest_deselected(items=list(set(items) - set(kept)))
    if hasattr(config, "workerinput"):
        from tests.workers import costly_first

        kept = costly_first(kept)
    items[:] = kept


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One Spark for all tests, with two cores and everything on this machine."""
    from tests.helpers import spark_builder

    home = tmp_path_factory.mktemp("spark")
    builder = (
        spark_builder("local[2]", home)
        .appName("sqs-fifo-spark tests")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(home / "warehouse"))
        .config("spark.log.level", "ERROR")
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_HOME", str(home_without_zip(home)))
        session = builder.getOrCreate()
    yield session
    session.stop()


def home_without_zip(place: Path) -> Path:
    """Return a home of Spark without `pyspark.zip`, which each of its Python processes would compile as it starts.

    So they start in a third of the time: see findings/spark-workers-import-from-a-zip.sh.
    """
    import pyspark

    for name in ("bin", "jars"):
        (place / name).symlink_to(Path(pyspark.__file__).parent / name)
    return place
