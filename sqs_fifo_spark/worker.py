"""What Spark's Python workers are spared.

After each task a worker collects garbage, which looks at every object there is. Nearly all of them have come with
imports and clients and stay: boto3's, Spark's and pandas' alone take some 60 ms, as much as receiving 1,000 messages.
"""

from __future__ import annotations

import functools
import gc
import os


@functools.cache
def exempt_from_collection() -> None:
    """Let collections pass over what this process has by now; once for each process, at the end of its first task.

    What is no longer used is freed as before, unless it refers to itself: then it stays. Runs on executors; does
    nothing in a process that ends with its task.
    """
    if os.environ.get("SPARK_REUSE_WORKER"):
        gc.collect()
        gc.freeze()


os.register_at_fork(after_in_child=exempt_from_collection.cache_clear)
