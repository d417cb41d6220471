"""The offset that Spark writes to its offset log for a source over several queues: the offset of each of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sqs_fifo_spark.errors import DataLossError
from sqs_fifo_spark.options import queue_key
from sqs_fifo_spark.source.offset import Offset


class Offsets:
    """The place of each queue, by the queue's key: two ways to write the URL of a queue have one. Immutable."""

    def __init__(self, places: Mapping[str, Offset] | None = None) -> None:
        """`places` are offsets by the URL of their queue."""
        self._places = {queue_key(url): (url, offset) for url, offset in (places or {}).items()}

    def __repr__(self) -> str:
        return f"<Offsets {', '.join(f'{key}={offset.name}' for key, (_, offset) in sorted(self._places.items()))}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Offsets) and self._by_key() == other._by_key()

    def __hash__(self) -> int:
        return hash(frozenset(self._by_key().items()))

    def __iter__(self) -> Iterator[tuple[str, str, Offset]]:
        """Yield key, URL and offset of each queue, by key."""
        for key, (url, offset) in sorted(self._places.items()):
            yield key, url, offset

    def _by_key(self) -> dict[str, Offset]:
        return {key: offset for key, (_, offset) in self._places.items()}

    def of(self, key: str) -> Offset | None:
        """Return the place of one queue; None if it has none yet."""
        _, offset = self._places.get(key, (None, None))
        return offset

    def moved(self, places: Mapping[str, Offset], without: frozenset[str] = frozenset()) -> Offsets:
        """Return these offsets with other `places`, by URL, and without the queues of those keys."""
        kept = {url: offset for key, (url, offset) in self._places.items() if key not in without}
        keys = {queue_key(url) for url in places}
        return Offsets({**{url: each for url, each in kept.items() if queue_key(url) not in keys}, **places})

    def to_json(self) -> dict[str, Any]:
        """Return the dict for Spark, in a fixed order, because Spark compares the JSON texts."""
        return {"queues": {url: offset.to_json() for _, url, offset in self}}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Offsets:
        """Return the offsets that Spark handed back. Raises DataLossError for a checkpoint not written by us."""
        queues = value.get("queues") if isinstance(value, Mapping) else None
        if not isinstance(queues, Mapping) or not all(isinstance(each, str) and "/" in each for each in queues):
            raise DataLossError(
                "the checkpoint is none of a source over several queues: a query that read one queue, with queueUrl, "
                "cannot go on with queueUrls or queueNamePrefix. Let that one read its queue empty, with "
                "trigger(availableNow=True), and begin with a new checkpoint and a new journal location."
            )
        return cls({url: Offset.from_json(offset) for url, offset in queues.items()})
