"""The JSON objects of a journal: bytes of a dictionary, and one error for damaged ones."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sqs_fifo_spark.errors import JournalCorruptError


def to_json(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content).encode()


def parse_json(data: bytes, name: str) -> dict[str, Any]:
    """Return the content that `to_json` wrote. Raises JournalCorruptError, naming the object `name`."""
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise damaged(name)
    return content


def texts(value: Any) -> tuple[str, ...]:
    """Return the texts of a JSON list. Raises ValueError for anything else."""
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise ValueError(value)
    return tuple(value)


def damaged(name: str) -> JournalCorruptError:
    return JournalCorruptError(
        f"'{name}' in the journal is damaged or not of this format, so the query stops. With deleteAfter=commit, "
        "messages that are not committed are still in the queue. Restore the object."
    )
