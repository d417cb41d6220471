"""Figures for OpenTelemetry, by its own API: its set-up decides where they go."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import TYPE_CHECKING

from sqs_fifo_spark.errors import MissingPackageError
from sqs_fifo_spark.watch.sample import SHOWN, LastSamples, Metric

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Meter, Observation

_UNITS = {"seconds": "s", "messages": "{message}", "rows": "{row}", "calls": "{call}"}


class OpenTelemetry(LastSamples):
    """Observable instruments: `sqs_fifo.waiting_messages` and so on, with the attributes `query` and `queue`.

    They are made with `meter`, or one of the global provider. Raises MissingPackageError where `opentelemetry-api` is
    not installed.
    """

    def __init__(self, meter: Meter | None = None) -> None:
        try:
            from opentelemetry.metrics import get_meter
        except ImportError:
            raise MissingPackageError(
                "figures for OpenTelemetry need its API on the driver. Install it, and an SDK that sends them: "
                "pip install opentelemetry-sdk"
            ) from None
        super().__init__()
        meter = meter or get_meter("sqs_fifo_spark")
        for metric in SHOWN:
            create = meter.create_observable_counter if metric.is_total else meter.create_observable_gauge
            create(
                f"sqs_fifo.{metric.snake_name}",
                callbacks=[functools.partial(self._observe, metric)],
                unit=_UNITS[metric.unit],
                description=metric.meaning,
            )

    def _observe(self, metric: Metric, options: CallbackOptions) -> Iterable[Observation]:
        from opentelemetry.metrics import Observation

        return [
            Observation(each.figures[metric.figure], {"query": each.query, "queue": each.queue})
            for each in self.last()
            if metric.figure in each.figures
        ]
