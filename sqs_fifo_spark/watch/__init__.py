"""Figures of running queries, sent to where you watch them. One line on the driver, before the queries start:

    spark.streams.addListener(SqsFifoListener(Prometheus()))

Needs Spark 4.2 or later: before that, Spark asks sources for no figures.
"""

from sqs_fifo_spark.watch.cloudwatch import CloudWatch, EmbeddedMetrics
from sqs_fifo_spark.watch.listener import SqsFifoListener
from sqs_fifo_spark.watch.open_telemetry import OpenTelemetry
from sqs_fifo_spark.watch.prometheus import Prometheus
from sqs_fifo_spark.watch.sample import METRICS, Exporter, Metric, Sample

__all__ = [
    "METRICS",
    "CloudWatch",
    "EmbeddedMetrics",
    "Exporter",
    "Metric",
    "OpenTelemetry",
    "Prometheus",
    "Sample",
    "SqsFifoListener",
]
