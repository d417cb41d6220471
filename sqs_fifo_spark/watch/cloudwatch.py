"""Figures for CloudWatch: as lines that its agent understands, or by calls of PutMetricData.

Totals go there as what they have grown by, so that CloudWatch's `Sum` over a time is what happened in it.
"""

from __future__ import annotations

import json
import math
import sys
from datetime import datetime, timezone
from typing import Any, TextIO

from sqs_fifo_spark.aws.client import cloudwatch_client
from sqs_fifo_spark.aws.credentials import ChainError, told
from sqs_fifo_spark.aws.sdk_logs import without_sdk_logs
from sqs_fifo_spark.watch.sample import METRICS, Sample

NAMESPACE = "SqsFifoSpark"
_UNITS = {"seconds": "Seconds"}
_MOST_DATA = 1_000
"""Of one PutMetricData."""
_MOST_KEPT = 20_000
"""Data that wait for CloudWatch to answer again; the oldest are dropped."""
_REFUSALS = ("Invalid", "Missing", "Validation")
"""How codes begin of errors about what a call says."""
_LONGEST_DIMENSION = 1_024


def _values(sample: Sample) -> dict[str, tuple[float, str]]:
    """Return value and unit of each metric, by its name in CloudWatch."""
    return {
        each.camel_name: (
            sample.growth[each.figure] if each.is_total else sample.figures[each.figure],
            _UNITS.get(each.unit, "Count"),
        )
        for each in METRICS
    }


class EmbeddedMetrics:
    """Writes each sample as a line of CloudWatch's embedded metric format, to the driver's standard output.

    Where that goes to CloudWatch Logs, CloudWatch makes metrics of it. No call, no permission.
    """

    def __init__(self, stream: TextIO | None = None, *, namespace: str = NAMESPACE) -> None:
        self._stream = stream
        self._namespace = namespace

    def export(self, sample: Sample) -> None:
        values = _values(sample)
        line: dict[str, Any] = {
            "_aws": {
                "Timestamp": int(sample.at_s * 1_000),
                "CloudWatchMetrics": [
                    {
                        "Namespace": self._namespace,
                        "Dimensions": [["Query", "Queue"]],
                        "Metrics": [{"Name": name, "Unit": unit} for name, (_, unit) in values.items()],
                    }
                ],
            },
            "Query": _dimension(sample.query),
            "Queue": _dimension(sample.queue),
            **{name: value for name, (value, _) in values.items()},
        }
        stream = self._stream or sys.stdout
        stream.write(json.dumps(line, separators=(",", ":")) + "\n")  # at once, so that nobody writes in between
        stream.flush()

    def end(self, run_id: str) -> None:
        """Do nothing: each line was written at once."""


class CloudWatch:
    """Sends samples by PutMetricData, up to 1,000 figures in a call, and no more often than every `every_s` seconds.

    With credentials of the AWS chain, which need `cloudwatch:PutMetricData`. Raises botocore's errors where CloudWatch
    does not answer or refuses a call. The first is tried again `every_s` later; what is refused for what it says is
    dropped.
    """

    def __init__(
        self,
        *,
        namespace: str = NAMESPACE,
        region: str | None = None,
        endpoint_url: str | None = None,
        every_s: float = 60.0,
    ) -> None:
        self._namespace = namespace
        self._region = region
        self._endpoint_url = endpoint_url
        self._every_s = every_s
        self._client: Any = None
        self._data: list[dict[str, Any]] = []
        self._next_at = -math.inf
        """When to send again, by the times of samples."""

    def export(self, sample: Sample) -> None:
        at = datetime.fromtimestamp(sample.at_s, timezone.utc)
        dimensions = [
            {"Name": "Query", "Value": _dimension(sample.query)},
            {"Name": "Queue", "Value": _dimension(sample.queue)},
        ]
        self._data += (
            {"MetricName": name, "Dimensions": dimensions, "Timestamp": at, "Value": value, "Unit": unit}
            for name, (value, unit) in _values(sample).items()
        )
        if sample.at_s >= self._next_at:
            self._next_at = sample.at_s + self._every_s
            self._send()

    def end(self, run_id: str) -> None:
        """Send all that is left."""
        self._send()

    def _send(self) -> None:
        if self._client is None:
            self._client = cloudwatch_client(self._region, self._endpoint_url)
        del self._data[:-_MOST_KEPT]
        while self._data:
            try:
                with without_sdk_logs():
                    self._client.put_metric_data(Namespace=self._namespace, MetricData=self._data[:_MOST_DATA])
            except Exception as error:
                code = str(getattr(error, "response", {}).get("Error", {}).get("Code", ""))
                if code.startswith(_REFUSALS):  # the same each time, and all that follows would wait for it
                    del self._data[:_MOST_DATA]
                if not code:  # its text may quote what a credential process has said
                    raise ChainError(told(error)) from None
                raise
            del self._data[:_MOST_DATA]


def _dimension(value: str) -> str:
    """Return what CloudWatch takes for the value of a dimension: ASCII, not empty, and not longer than it may be."""
    return "".join(each if " " <= each <= "~" else "?" for each in value)[:_LONGEST_DIMENSION].strip() or "-"
