"""Spark's daemon for Python workers, with what tasks import imported before it forks them, so that they share it.

    spark.python.daemon.module  sqs_fifo_spark.daemon

Spark then starts this module instead of `pyspark.daemon`, once on each executor, for the workers of tasks. Its own
imports nothing, so as to have no thread when it forks, and each worker imports all by itself. Here two kinds of threads
run by then, and do no harm: jemalloc's, which comes with Arrow, and OpenBLAS's, which come with NumPy. Both libraries
prepare for a fork. Arrow's own threads begin with its work, of which there is none here.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys


def _import_spark() -> None:
    import pyspark.sql.worker.plan_data_source_read
    import pyspark.sql.worker.write_into_data_source
    import pyspark.worker  # noqa: F401


def _import_source() -> None:
    import pyarrow.compute  # noqa: F401  Arrow itself imports it, to take rows at given places

    import sqs_fifo_spark.source.reader
    import sqs_fifo_spark.source.task.partition  # noqa: F401


def _import_sink() -> None:
    import sqs_fifo_spark.datasource
    import sqs_fifo_spark.sink.writer  # noqa: F401


def _read_sdk_data() -> None:
    from sqs_fifo_spark.aws.client import read_sdk_data

    read_sdk_data()


_PRELOADS = {
    "Spark": _import_spark,
    "the source": _import_source,
    "the sink": _import_sink,
    "botocore's data": _read_sdk_data,
}
"""Between them, these import all that tasks of a source or a sink do, and all that their clients are made of."""


def preload() -> None:
    """Import what tasks need, and exempt it from garbage collection, which would copy it into each worker.

    What cannot be imported is left to the workers, whose error Spark shows; a line in the executor's log says so.
    """
    # Arrow's other pools keep more memory in each worker.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    for name, do_import in _PRELOADS.items():
        try:
            with contextlib.redirect_stdout(sys.stderr):  # Spark reads the daemon's output, not as text
                do_import()
        except Exception as error:
            print(f"sqs_fifo_spark.daemon: workers import {name} themselves, for here: {error!r}", file=sys.stderr)
    os.register_at_fork(after_in_child=_seed_numpy)
    gc.collect()
    gc.freeze()


def _seed_numpy() -> None:
    """Give a worker random numbers of its own: NumPy before 2 seeds its generator as it is imported."""
    random = sys.modules.get("numpy.random")
    if random is not None:
        random.seed()


def main() -> None:
    """Run Spark's daemon, unchanged, after the imports."""
    preload()
    # Last, for it begins what tests read: a worker has imported after the fork what follows it in `sys.modules`.
    from pyspark import daemon

    daemon.manager()


if __name__ == "__main__":
    main()
