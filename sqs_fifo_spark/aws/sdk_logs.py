"""A filter on the AWS SDK's logs while it makes our calls: neither a message's body nor a credential may show."""

from __future__ import annotations

import logging
import threading
from contextlib import AbstractContextManager


class _Depth(threading.local):
    """Number of `without_sdk_logs` around this thread's code; a class, as it is made and left in each call."""

    calls = 0

    def __enter__(self) -> None:
        self.calls += 1

    def __exit__(self, *_: object) -> None:
        self.calls -= 1


class _InOurCalls(logging.Filter):
    """Drops the SDK's own DEBUG and INFO records while this thread makes one of our calls, and tracebacks of others.

    At DEBUG, botocore and urllib3 log whole requests and answers: bodies of messages, signatures and tokens. The
    traceback of credentials that were not renewed holds the output of a credential process.
    """

    depth = _Depth()

    def filter(self, record: logging.LogRecord) -> bool:
        if not self.depth.calls:
            return True
        if record.exc_info and record.exc_info[0]:
            record.msg = f"{record.msg} ({record.exc_info[0].__name__})"
        record.exc_info = record.exc_text = record.stack_info = None
        return record.levelno >= logging.WARNING


_FILTER = _InOurCalls()
_CHATTY = ("botocore", "boto3", "urllib3", "s3transfer")
_muted: set[str] = set()
"""Loggers that have been looked at. Two threads may add one twice, which is adding it once."""


def without_sdk_logs() -> AbstractContextManager[None]:
    """Keep message bodies and credentials out of all logs, at any level, during the calls made inside."""
    names = logging.root.manager.loggerDict
    if next(reversed(names), None) not in _muted:  # a new one stands at the end
        for name in names.keys() - _muted:
            if name.startswith(_CHATTY):
                logging.getLogger(name).addFilter(_FILTER)
            _muted.add(name)
    return _FILTER.depth
