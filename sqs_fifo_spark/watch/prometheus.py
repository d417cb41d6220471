"""Figures for Prometheus, by its own client, which serves or pushes them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from sqs_fifo_spark.errors import MissingPackageError
from sqs_fifo_spark.watch.sample import SHOWN, LastSamples, Metric

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
    from prometheus_client.core import Metric as Family


class Prometheus(LastSamples):
    """A collector: `sqs_fifo_waiting_messages{query="…",queue="…"}`, `sqs_fifo_rows_total` and so on.

    It stands in `registry` or the client's own, which takes one such collector. To serve the figures, call
    `prometheus_client.start_http_server(port)` on the driver, or push them to a gateway. Raises MissingPackageError
    where `prometheus-client` is not installed.
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        try:
            from prometheus_client import REGISTRY
        except ImportError:
            raise MissingPackageError(
                "figures for Prometheus need its client on the driver. Install it: pip install prometheus-client"
            ) from None
        super().__init__()
        (registry or REGISTRY).register(self)

    def describe(self) -> Iterable[Family]:
        """Yield the names, so that a registry refuses a second collector of them."""
        for metric in SHOWN:
            yield _family(metric)

    def collect(self) -> Iterable[Family]:
        """Yield the figures of each query's last sample."""
        samples = self.last()
        for metric in SHOWN:
            family = _family(metric)
            for sample in samples:
                if metric.figure in sample.figures:
                    family.add_metric((sample.query, sample.queue), sample.figures[metric.figure])
            yield family


def _family(metric: Metric) -> CounterMetricFamily | GaugeMetricFamily:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    make = CounterMetricFamily if metric.is_total else GaugeMetricFamily
    return make(f"sqs_fifo_{metric.snake_name}", metric.meaning, labels=("query", "queue"))
