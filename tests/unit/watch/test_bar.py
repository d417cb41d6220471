"""`show_progress`: a bar for each queue, until the query ends."""

from __future__ import annotations

import re
import signal
import sys
from typing import Any

import pytest

import sqs_fifo_spark
from sqs_fifo_spark.errors import MissingPackageError
from tests.unit.watch.test_listener import FIGURES, progress


class EndedError(Exception):
    """Stands for Spark's own error."""


class Query:
    """A query that makes one report in each wait, and ends with the last; perhaps it fails then."""

    def __init__(self, *reports: Any, error: Exception | None = None) -> None:
        self.recentProgress: list[Any] = []
        self._reports = list(reports)
        self._error = error

    def awaitTermination(self, timeout: float) -> bool:
        if self._reports:
            self.recentProgress = [*self.recentProgress, self._reports.pop(0)][-2:]
        if not self._reports and self._error is not None:
            raise self._error
        return not self._reports


def reports(*told: tuple[int, int]) -> list[Any]:
    """Return reports of micro-batches: the rows of each, and the messages that waited when it was announced."""
    found = [progress({**FIGURES, "waitingMessages": waiting}, rows=rows).progress for rows, waiting in told]
    for second, report in enumerate(found):
        report["timestamp"] = f"2026-01-01T00:00:{second:02}.000Z"
    return found


def test_a_bar_counts_each_report_once_and_what_waited_as_what_is_to_come(capsys: pytest.CaptureFixture[str]) -> None:
    """The whole is what was read before a micro-batch, and what waited when it was announced."""
    sqs_fifo_spark.show_progress(Query(*reports((10, 40), (10, 30), (15, 20))), every_s=0.01)  # type: ignore[arg-type]
    assert re.search(r"^orders\.fifo .*35/40 0 rows/s", capsys.readouterr().out)


def test_the_querys_own_error_is_raised(capsys: pytest.CaptureFixture[str]) -> None:
    """Below the bar as it was."""
    with pytest.raises(EndedError, match="why"):
        sqs_fifo_spark.show_progress(Query(*reports((10, 40), (10, 30)), error=EndedError("why")))  # type: ignore[arg-type]
    assert "10/40" in capsys.readouterr().out


def test_an_interrupt_ends_the_bar_and_cuts_no_call_to_spark() -> None:
    """The call that it comes in returns first, and the handler of before is back."""
    returned = []

    class Interrupted(Query):
        def awaitTermination(self, timeout: float) -> bool:
            signal.raise_signal(signal.SIGINT)
            returned.append(timeout)
            return super().awaitTermination(timeout)

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        sqs_fifo_spark.show_progress(Interrupted(*reports((10, 40), (10, 30))))  # type: ignore[arg-type]
    assert returned == [0.5]
    assert signal.getsignal(signal.SIGINT) == before


def test_without_rich_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rich comes with the extra `cli`, and Spark needs none."""
    monkeypatch.setitem(sys.modules, "rich.progress", None)
    with pytest.raises(MissingPackageError, match="pip install rich"):
        sqs_fifo_spark.show_progress(Query(*reports((10, 40))))  # type: ignore[arg-type]
