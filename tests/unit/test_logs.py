"""What a log line of a Spark process tells, and who decides that."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

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


def logged(level: str | None = None, setup: str = "") -> list[str]:
    """Return the lines that a process of its own writes."""
    environment = {} if level is None else {"SQS_FIFO_SPARK_LOG_LEVEL": level}
    ran = subprocess.run(
        [sys.executable, "-c", LOG.format(setup=setup)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env={"PATH": "", **environment},
    )
    assert not ran.stdout
    return ran.stderr.splitlines()


def test_a_line_tells_time_level_logger_and_what_it_is_about() -> None:
    """Only what is known of that."""
    first, second = logged()
    assert re.fullmatch(rf"{STAMP} WARNING sqs_fifo_spark\.source\.lease \[orders\.fifo\] a warning", first)
    assert second.endswith(" WARNING sqs_fifo_spark.source.lease [orders.fifo query q1 epoch 7] another")


@pytest.mark.parametrize(
    ("level", "count"), [("INFO", 3), (" debug ", 3), ("WARNING", 2), ("ERROR", 0), ("", 2), ("nonsense", 3)]
)
def test_the_environment_sets_the_level(level: str, count: int) -> None:
    """Without regard to case; what is no level changes nothing, and is told of."""
    assert len(logged(level)) == count


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
