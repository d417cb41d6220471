"""A Python worker's garbage collection, made shorter for later tasks.

After each task a worker collects garbage, which looks at every object there is. Nearly all of them have come with
imports and clients and stay: boto3's, Spark's and pandas' alone take some 60 ms, as much as receiving 1,000 messages.
"""

from __future__ import annotations

import functools
import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager


@functools.cache
def exempt_from_collection() -> None:
    """Let collections pass over the objects of this process; once for each process, at the end of its first task.

    Unused objects are freed as before, unless they refer to themselves: then they stay. Runs on executors; does nothing
    in a process that ends with its task.
    """
    if os.environ.get("SPARK_REUSE_WORKER"):
        gc.collect()
        gc.freeze()


@contextmanager
def without_collection() -> Iterator[None]:
    """Collect no garbage inside, where thousands of objects are made that all stay: each pass looks at them in vain."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


os.register_at_fork(after_in_child=exempt_from_collection.cache_clear)
