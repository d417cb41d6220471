"""Spark, one session at a time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.helpers import spark_builder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Sessions:
    """The session with the number of task slots that the last comparison asked for."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._session: SparkSession | None = None
        self._slots = 0
        self._warm: set[str] = set()

    @property
    def session(self) -> SparkSession:
        assert self._session is not None, "`use` comes first"
        return self._session

    def use(self, slots: int) -> None:
        """Go on with so many task slots; that begins a new session if the last one had another number."""
        if self._slots == slots:
            return
        self.stop()
        from sqs_fifo_spark import register
        from tests.bench.naive_source import EmptySource, NaiveSource

        self._session = (
            spark_builder(f"local[{slots}]", self._home)
            .appName("bench")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.sql.streaming.numRecentProgressUpdates", "100000")
            .config("spark.sql.warehouse.dir", str(self._home / "warehouse"))
            .config("spark.log.level", "ERROR")
            .getOrCreate()
        )
        register(self._session)
        self._session.dataSource.register(NaiveSource)
        self._session.dataSource.register(EmptySource)
        self._slots = slots

    def is_warm(self, entrant: str) -> bool:
        """Return False at the first call for an entrant in this session, then True."""
        was = entrant in self._warm
        self._warm.add(entrant)
        return was

    def stop(self) -> None:
        if self._session is not None:
            self._session.stop()
        self._session, self._slots = None, 0
        self._warm.clear()
