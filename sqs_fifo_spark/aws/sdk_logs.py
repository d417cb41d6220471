"""A filter on the AWS SDK's logs while it makes our calls: neither a message's body nor a credential may show."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class _InOurCalls(logging.Filter):
    """Drops the SDK's own DEBUG and INFO records while this thread makes one of our calls, and tracebacks of others.

    At DEBUG, botocore and urllib3 log whole requests and answers: bodies of messages, signatures and tokens. The
    traceback of credentials that were not renewed holds the output of a credential process.
    """

    active = threading.local()

    def filter(self, record: logging.LogRecord) -> bool:
        if not getattr(self.active, "depth", 0):
            return True
        if record.exc_info and record.exc_info[0]:
            record.msg = f"{record.msg} ({record.exc_info[0].__name__})"
        record.exc_info = record.exc_text = record.stack_info = None
        return record.levelno >= logging.WARNING


_FILTER = _InOurCalls()
_CHATTY = ("botocore", "boto3", "urllib3", "s3transfer")
_muted: set[str] = set()
"""Loggers that have been looked at. Two threads may add one twice, which is adding it once."""


@contextmanager
def without_sdk_logs() -> Iterator[None]:
    """Keep message bodies and credentials out of all logs, at any level, during the calls made inside."""
    names = logging.root.manager.loggerDict
    if not _muted.issuperset(names):
        for name in names.keys() - _muted:
            if name.startswith(_CHATTY):
                logging.getLogger(name).addFilter(_FILTER)
            _muted.add(name)
    _FILTER.active.depth = getattr(_FILTER.active, "depth", 0) + 1
    try:
        yield
    finally:
        _FILTER.active.depth -= 1
