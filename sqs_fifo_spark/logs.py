"""This package's log lines in Spark's Python processes: time, level, queue, query and epoch.

All loggers lie below `sqs_fifo_spark`, whose level the environment variable SQS_FIFO_SPARK_LOG_LEVEL sets. Without it,
warnings are shown, and the few lines of `PROGRESS`. Where a process has set logging up itself, its handlers are left as
they are, and nothing is added.
"""

from __future__ import annotations

import functools
import logging
import os

LEVEL_VARIABLE = "SQS_FIFO_SPARK_LOG_LEVEL"
_FORMAT = "%(asctime)s %(levelname)s %(name)s [%(where)s] %(message)s"
_logger = logging.getLogger("sqs_fifo_spark")
PROGRESS = logging.getLogger("sqs_fifo_spark.progress")
"""Says how a query begins and gets on, for somebody who has set nothing."""
_where = "-"
"""The subject of this process's lines: it does one thing at a time."""


class _Where(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        record.where = _where
        return not logging.getLogger().handlers  # else they write the line, too, since somebody has set them up


def set_subject(queue_name: str, **of: object) -> None:
    """Let the lines of this process name a queue, and `of` an epoch or others that are not None, from now on.

    Called in the reader process and in Python workers.
    """
    global _where
    _where = " ".join([queue_name, *(f"{name} {value}" for name, value in of.items() if value is not None)])
    set_up()


@functools.cache
def set_up() -> None:
    """Set the level, and add a handler that writes to standard error if nobody has added any. Once in a process."""
    is_ours = not _logger.handlers and not logging.getLogger().handlers
    if is_ours:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter(_FORMAT))
        handler.addFilter(_Where())
        _logger.addHandler(handler)
    given = os.environ.get(LEVEL_VARIABLE, "").strip()
    level = logging.getLevelName(given.upper())
    if isinstance(level, int):
        _logger.setLevel(level)
        return
    if is_ours:
        PROGRESS.setLevel(logging.INFO)
    if given:
        _logger.warning("%s is %r; it must be DEBUG, INFO, WARNING or ERROR.", LEVEL_VARIABLE, given)
