"""What Spark's Python workers are spared, in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

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
    """What its later tasks make is collected as ever."""
    environment = {**os.environ, "SPARK_REUSE_WORKER": reused}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == told
