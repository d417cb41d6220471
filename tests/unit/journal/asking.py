"""The calls of a store, and what they say when they fail."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sqs_fifo_spark.errors import JournalUnavailableError
from sqs_fifo_spark.journal.store import Store

Call = Callable[[], object]


def line(call: Call, *shown: str) -> str:
    """Return what the failing `call` says, which is one line that shows all this."""
    with pytest.raises(JournalUnavailableError) as told:
        call()
    said = str(told.value)
    assert "\n" not in said
    for each in shown:
        assert each in said
    return said


def calls(store: Store, name: str = "a/x") -> dict[str, Call]:
    """Return every call, of this object where it is of one."""
    return {
        "put": lambda: store.put_if_absent(name, b"1"),
        "get": lambda: store.get(name),
        "get_range": lambda: store.get_range(name, 0, 1),
        "list": lambda: store.list("a"),
        "delete": lambda: store.delete([name]),
    }
