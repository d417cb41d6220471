"""The number of tasks of a write that Spark runs at once, from its settings: they share `maxCallsPerSecond`.

Spark copies a session's settings, those of the application among them, to the local properties of a write's tasks; seen
with 4.0.0 and 4.3.0, in streams and batch writes. It gives a task no number of the others.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable

from sqs_fifo_spark.errors import OptionError

_LOCAL = re.compile(r"local(?:\[(\d+|\*)(?:,\s*\d+)?\])?")
_LOCAL_CLUSTER = re.compile(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,\s*\d+\s*\]")
_DEFAULT_EXECUTORS, _DEFAULT_CORES = 2, 1
"""On YARN and Kubernetes, without dynamic allocation."""


def tasks_at_once(conf: Callable[[str], str | None]) -> int:
    """Return the most tasks for which Spark has room at once; `conf` returns a setting's value, or None.

    Raises OptionError if the settings do not say: with dynamic allocation they need not, nor on a standalone cluster,
    nor where somebody else starts the executors.
    """
    master, cpus = conf("spark.master") or "", _number(conf("spark.task.cpus")) or 1
    if local := _LOCAL.fullmatch(master):
        threads = len(os.sched_getaffinity(0)) if local[1] == "*" else int(local[1] or 1)
        return max(1, threads // cpus)
    if cluster := _LOCAL_CLUSTER.fullmatch(master):
        return int(cluster[1]) * max(1, int(cluster[2]) // cpus)
    if master.startswith("spark://") and (most := _number(conf("spark.cores.max"))):
        return max(1, most // cpus)
    executors, cores = _number(conf("spark.executor.instances")), _number(conf("spark.executor.cores"))
    has_defaults = master == "yarn" or master.startswith("k8s")
    if (conf("spark.dynamicAllocation.enabled") or "").strip().lower() == "true":
        executors = _number(conf("spark.dynamicAllocation.maxExecutors"))
    elif has_defaults:
        executors = executors or _DEFAULT_EXECUTORS
    if has_defaults:
        cores = cores or _DEFAULT_CORES
    if not executors or not cores:
        raise OptionError(
            "option 'maxCallsPerSecond' is given, but Spark's settings do not say how many tasks run at once, which "
            "share it. Set spark.executor.instances (with dynamic allocation spark.dynamicAllocation.maxExecutors) and "
            "spark.executor.cores when the application starts, or leave the option out."
        )
    return executors * max(1, cores // cpus)


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.strip().isdecimal() else None
