"""Tests in processes of their own: a Python without PySpark, garbage collection in workers, and log lines."""

from __future__ import annotations

import gc
import re
import sys
from contextlib import suppress

import pytest

import sqs_fifo_spark
from sqs_fifo_spark.worker import without_collection
from tests.helpers import run_python

# A Python without PySpark, as that of an editor or of a machine that only runs the local queue

WITHOUT = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "pyspark":
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)

sys.meta_path.insert(0, Missing())
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "code",
    [
        "from sqs_fifo_spark import SqsFifoDataSource",
        "from sqs_fifo_spark import in_group_order",
        "import sqs_fifo_spark.datasource",
        "import sqs_fifo_spark.ordering",
        "import sqs_fifo_spark.watch",
        "from sqs_fifo_spark.watch import Prometheus",
        # Asked for by who has a session, so by another Python than this.
        "import sqs_fifo_spark; sqs_fifo_spark.register(None)",
    ],
)
def test_what_needs_spark_says_so_in_one_line(code: str) -> None:
    """An ImportError names the Python that lacks it, and the remedy."""
    ran = run_python(WITHOUT + code)
    assert ran.returncode == 1
    assert ran.stderr.splitlines()[-1] == (
        f"sqs_fifo_spark.errors.MissingPackageError: {sys.executable} has no PySpark 4.0 or later (No module named "
        "'pyspark'). Use the Python of your Spark platform, or install it: pip install 'pyspark>=4.0'"
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "code",
    [
        "import sqs_fifo_spark, sqs_fifo_spark.local",
        "import sqs_fifo_spark.options",
        "import pyspark_sqsfifo; assert not hasattr(pyspark_sqsfifo, 'DefaultSource')",
        "sys.modules.update(dict.fromkeys(('aiohttp', 'boto3', 'botocore'))); import sqs_fifo_spark.local.model",
        "sys.modules.update(dict.fromkeys(('aiohttp', 'boto3', 'botocore'))); import sqs_fifo_spark.local.faults",
        # The fixtures for other people's tests.
        "sys.modules.update(dict.fromkeys(('obstore', 'pyarrow')))\n"
        "from sqs_fifo_spark.local import LocalQueueServer\n"
        "from sqs_fifo_spark.local.pytest_plugin import LocalQueue\n"
        "with LocalQueueServer(queues=['a.fifo']) as server:\n"
        "    queue = LocalQueue(server, 'a.fifo')\n"
        "    queue.send('1')\n"
        "    assert queue.client.receive_message(QueueUrl=queue.url)['Messages'][0]['Body'] == '1'",
    ],
)
def test_the_rest_does_without(code: str) -> None:
    """Nothing is imported before it is used."""
    ran = run_python(WITHOUT + code)
    assert ran.returncode == 0, ran.stderr


def test_the_local_queue_needs_aiohttp_alone() -> None:
    """None of the package's own requirements: it can be installed without them."""
    ran = run_python(
        f"{WITHOUT}others = ('boto3', 'botocore', 'click', 'obstore', 'pyarrow', 'rich', 'tenacity')\n"
        "sys.modules.update(dict.fromkeys(others))\n"
        "from sqs_fifo_spark.local import LocalQueueServer\n"
        "with LocalQueueServer(queues=['q.fifo']) as server: print(server.messages())"
    )
    assert (ran.returncode, ran.stdout) == (0, "[]\n"), ran.stderr


MAIN = """
import sys
sys.modules.update(dict.fromkeys({missing}))
from sqs_fifo_spark.__main__ import main
sys.argv[1:] = {arguments}
sys.exit(main())
"""


@pytest.mark.parametrize(
    ("missing", "arguments", "status", "says"),
    [
        (["pyspark"], ["demo"], 3, "demo: pyspark is missing: pip install '.[demo]' in this package's sources"),
        (["aiohttp"], ["local-queue"], 3, "the local queue needs aiohttp: pip install '.[local]' in this package's"),
        (["click", "rich"], ["local-queue", "--help"], 3, "pip install '.[cli]'"),
        (["click", "rich"], ["doctor"], 3, "pip install '.[cli]'"),
        (["click", "rich"], ["--version"], 0, f"sqs-fifo-spark, version {sqs_fifo_spark.__version__}"),
    ],
)
def test_commands_say_what_they_need(missing: list[str], arguments: list[str], status: int, says: str) -> None:
    """In one line; without it, the version is told all the same."""
    ran = run_python(MAIN.format(missing=missing, arguments=arguments))
    (line,) = (ran.stdout + ran.stderr).splitlines()
    assert (ran.returncode, says in line) == (status, True), line


# Spark's Python workers

PROGRAM = """
import gc
from sqs_fifo_spark.worker import exempt_from_collection
exempt_from_collection()
first = gc.get_freeze_count()
kept = [[] for _ in range(100_000)]
exempt_from_collection()
print(first > 0, gc.get_freeze_count() == first)
"""


@pytest.mark.parametrize(("reused", "told"), [("1", "True True"), ("", "False True")])
def test_a_worker_that_goes_on_is_exempt_once(reused: str, told: str) -> None:
    """Objects of later tasks are collected as ever."""
    ran = run_python(PROGRAM, SPARK_REUSE_WORKER=reused)
    assert (ran.returncode, ran.stdout.strip()) == (0, told), ran.stderr


IMPORTED = """
import sys
from sqs_fifo_spark.datasource import SqsFifoDataSource, parse_source_options, schema_of
given = {"queueUrl": "https://sqs.eu-west-1.amazonaws.com/000000000000/bids.fifo", "journalLocation": "/journal"}
SqsFifoDataSource(given).streamReader(schema_of(parse_source_options(given)))
print(*{"botocore.session", "sqs_fifo_spark.source.driver", "sqs_fifo_spark.source.task"} & sys.modules.keys())
import sqs_fifo_spark.source.task.partition
print(*{"boto3", "obstore", "sqs_fifo_spark.source.driver"} & sys.modules.keys())
"""


def test_a_process_imports_its_own_side_alone() -> None:
    """Spark starts several for a query, some only to pickle a reader: each import delays the first rows."""
    ran = run_python(IMPORTED)
    assert (ran.returncode, ran.stdout) == (0, "\n\n"), ran.stderr


@pytest.mark.parametrize("was_enabled", [True, False])
def test_collection_goes_on_as_it_was_after_a_pause(was_enabled: bool) -> None:
    """Also after an error, and with one pause inside another."""
    (gc.enable if was_enabled else gc.disable)()
    try:
        with suppress(KeyError), without_collection():
            with without_collection():
                pass
            assert not gc.isenabled()
            raise KeyError
        assert gc.isenabled() is was_enabled
    finally:
        gc.enable()


# Log lines: what they tell, and who decides that

LOG = """
import logging
{setup}
from sqs_fifo_spark.logs import set_subject
log = logging.getLogger("sqs_fifo_spark.source.lease")
set_subject("orders.fifo")
log.warning("a warning")
set_subject("orders.fifo", query="q1", epoch=7, partition=None)
log.info("an info")
log.warning("another")
"""
STAMP = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}"


def logged(level: str | None = None, setup: str = "", more: str = "") -> list[str]:
    """Return the lines that a process of its own writes."""
    environment = {} if level is None else {"SQS_FIFO_SPARK_LOG_LEVEL": level}
    ran = run_python(LOG.format(setup=setup) + more, **environment)
    assert (ran.returncode, ran.stdout) == (0, "")
    return ran.stderr.splitlines()


def test_a_line_tells_time_level_logger_and_what_it_is_about() -> None:
    """Only what is known of that."""
    first, second = logged()
    assert re.fullmatch(rf"{STAMP} WARNING sqs_fifo_spark\.source\.lease \[orders\.fifo\] a warning", first)
    assert second.endswith(" WARNING sqs_fifo_spark.source.lease [orders.fifo query q1 epoch 7] another")


@pytest.mark.parametrize(
    ("level", "count", "is_shown"),
    [
        *((None, 2, True), ("", 2, True), ("nonsense", 3, True)),
        *(("INFO", 3, True), ("DEBUG", 3, True), ("WARNING", 2, False), (" error ", 0, False)),
    ],
)
def test_the_environment_sets_the_level(level: str | None, count: int, is_shown: bool) -> None:
    """Without regard to case; what is no level changes nothing, and is told of.

    How a query gets on is shown unless a level above is set: nobody who starts a first query has set one.
    """
    lines = logged(level, more='logging.getLogger("sqs_fifo_spark.progress").info("reading")')
    shown = [line for line in lines if " INFO sqs_fifo_spark.progress [orders.fifo " in line]
    assert (len(lines) - len(shown), len(shown)) == (count, is_shown)


@pytest.mark.parametrize(
    "setup",
    [
        'from sqs_fifo_spark.logs import set_up; set_up(); logging.basicConfig(format="mine: %(message)s")',
        'logging.basicConfig(format="mine: %(message)s")',
        'h = logging.StreamHandler(); h.setFormatter(logging.Formatter("mine: %(message)s"))\n'
        'logging.getLogger("sqs_fifo_spark").addHandler(h)',
    ],
)
def test_logging_that_the_user_has_set_up_is_left_alone(setup: str) -> None:
    """Each line once, in the user's form."""
    assert logged(setup=setup) == ["mine: a warning", "mine: another"]
