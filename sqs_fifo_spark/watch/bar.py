"""`show_progress`: a bar for each queue that a query reads, in the application's terminal or notebook."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING

from sqs_fifo_spark.errors import MissingPackageError
from sqs_fifo_spark.stopping import signals
from sqs_fifo_spark.watch.listener import Samples, warn_of_old_spark

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


def show_progress(query: StreamingQuery, *, every_s: float = 0.5) -> None:
    """Show how far `query` is until it ends, and raise its error if it fails, as `awaitTermination` does.

    Runs in the application, and asks Spark alone, each `every_s` seconds: a bar moves with each micro-batch. It shows
    rows read, of all that were there, and is full while a query that goes on is idle. Before Spark 4.2 there are no
    bars, which the log says.

    Raises KeyboardInterrupt after SIGINT, and the query goes on; and MissingPackageError without rich.
    """
    try:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
    except ImportError:
        raise MissingPackageError(
            "a progress bar needs rich in the application's own Python. Install it: pip install rich"
        ) from None
    warn_of_old_spark()
    samples, bars, shown_at, has_ended = Samples(), dict[str, TaskID](), "", False
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[rate]}"))
    # Spark's own handler would raise inside of a call to its JVM, whose client then logs two traces.
    watched = (signal.SIGINT,) if threading.current_thread() is threading.main_thread() else ()
    with signals(*watched) as come, Progress(*columns, TimeRemainingColumn(), speed_estimate_period=120) as shown:
        while not has_ended:
            if come:
                raise KeyboardInterrupt
            has_ended = bool(query.awaitTermination(every_s))  # type: ignore[arg-type]  # it takes fractions, too
            for report in query.recentProgress:
                if report.timestamp <= shown_at:
                    continue
                shown_at = report.timestamp
                for sample in samples.of(report, has_run=True):
                    rows, new = sample.figures["rows"], sample.growth["rows"]
                    if sample.queue not in bars:
                        bars[sample.queue] = shown.add_task(sample.queue, total=None, rate="")
                    # The queue's counts were taken when this micro-batch was announced: its rows waited then.
                    total = max(rows, rows - new + sample.figures["waitingMessages"])
                    rate = f"{report.processedRowsPerSecond:,.0f} rows/s"
                    shown.update(bars[sample.queue], completed=int(rows), total=int(total), rate=rate)
