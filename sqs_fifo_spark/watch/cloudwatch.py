"""Figures for CloudWatch: as lines that its agent understands, or by calls of PutMetricData.

Totals go there as their growth, so that CloudWatch's `Sum` over a time is the growth in it.
"""

from __future__ import annotations

import json
import math
import sys
from dataclasses import KW_ONLY, dataclass
from datetime import datetime, timezone
from typing import Any, TextIO

from sqs_fifo_spark.aws.client import cloudwatch_client
from sqs_fifo_spark.aws.codes import STALE
from sqs_fifo_spark.aws.credentials import safe_text
from sqs_fifo_spark.aws.sdk_logs import without_sdk_logs
from sqs_fifo_spark.watch.sample import METRICS, Sample

NAMESPACE = "SqsFifoSpark"
_UNITS = {"seconds": "Seconds"}
_MOST_DATA = 1_000
"""Of one PutMetricData."""
_MOST_KEPT = 20_000
"""Data that wait for CloudWatch to answer again; the oldest are dropped."""
_MOST_REFUSALS = 40
"""Calls, refused in one go, that are made again in parts: three data among 1,000 are found with so many."""
_REFUSALS = frozenset(
    {
        "InvalidFormat",
        "InvalidParameterCombination",
        "InvalidParameterValue",
        "MissingParameter",
        "MissingRequiredParameter",
        "Validation",
        "ValidationError",
    }
)
"""The codes of errors about a call's content, some of which also come with an `Exception` at their end."""
_TOO_LARGE = 413
"""The HTTP status of a call that is too long."""
_LONGEST_DIMENSION = 1_024


def _values(sample: Sample) -> dict[str, tuple[float, str]]:
    """Return value and unit of each metric, by its name in CloudWatch."""
    return {
        each.camel_name: (
            sample.growth[each.figure] if each.is_total else sample.figures[each.figure],
            _UNITS.get(each.unit, "Count"),
        )
        for each in METRICS
        if each.figure in sample.figures
    }


def _dimensions(sample: Sample) -> dict[str, str]:
    """Return the metrics' dimensions. A value of one is ASCII, not empty, and not longer than CloudWatch takes."""
    return {
        name: "".join(each if " " <= each <= "~" else "?" for each in value)[:_LONGEST_DIMENSION].strip() or "-"
        for name, value in (("Query", sample.query), ("Queue", sample.queue))
    }


class NotSentError(Exception):
    """CloudWatch has not taken figures. The text is the kind of error: AWS's own may quote credentials."""


@dataclass(eq=False)
class EmbeddedMetrics:
    """Writes each sample as a line of CloudWatch's embedded metric format, to the driver's standard output.

    Where that goes to CloudWatch Logs, CloudWatch makes metrics of it. No call, no permission.
    """

    stream: TextIO | None = None
    _: KW_ONLY
    namespace: str = NAMESPACE

    def export(self, sample: Sample) -> None:
        values, dimensions = _values(sample), _dimensions(sample)
        line: dict[str, Any] = {
            "_aws": {
                "Timestamp": int(sample.at_s * 1_000),
                "CloudWatchMetrics": [
                    {
                        "Namespace": self.namespace,
                        "Dimensions": [list(dimensions)],
                        "Metrics": [{"Name": name, "Unit": unit} for name, (_, unit) in values.items()],
                    }
                ],
            },
            **dimensions,
            **{name: value for name, (value, _) in values.items()},
        }
        stream = self.stream or sys.stdout
        stream.write(json.dumps(line, separators=(",", ":")) + "\n")  # at once, so that nobody writes in between
        stream.flush()

    def end(self, run_id: str) -> None:
        """Do nothing: each line was written at once."""


@dataclass(eq=False, kw_only=True)
class CloudWatch:
    """Sends samples by PutMetricData, up to 1,000 figures in a call, and no more often than every `every_s` seconds.

    With credentials of the AWS chain, which need `cloudwatch:PutMetricData`. Raises NotSentError where CloudWatch does
    not answer or refuses a call. It is tried again `every_s` later. Figures refused for their content are dropped, and
    no more than those: a refused call is made again in parts.
    """

    namespace: str = NAMESPACE
    region: str | None = None
    endpoint_url: str | None = None
    every_s: float = 60.0

    def __post_init__(self) -> None:
        self._client: Any = None
        self._data: list[dict[str, Any]] = []
        self._next_at = -math.inf
        """Time of the next call, by the times of samples."""

    def export(self, sample: Sample) -> None:
        at = datetime.fromtimestamp(sample.at_s, timezone.utc)
        dimensions = [{"Name": name, "Value": value} for name, value in _dimensions(sample).items()]
        self._data += (
            {"MetricName": name, "Dimensions": dimensions, "Timestamp": at, "Value": value, "Unit": unit}
            for name, (value, unit) in _values(sample).items()
        )
        if sample.at_s >= self._next_at:
            self._next_at = sample.at_s + self.every_s
            self._send()

    def end(self, run_id: str) -> None:
        """Send all that is left."""
        self._send()

    def _send(self) -> None:
        del self._data[:-_MOST_KEPT]
        count, refusals, dropped, why = _MOST_DATA, 0, 0, ""
        while self._data:
            part = self._data[:count]
            try:
                with without_sdk_logs():
                    self._client = self._client or cloudwatch_client(self.region, self.endpoint_url)
                    self._client.put_metric_data(Namespace=self.namespace, MetricData=part)
            except Exception as error:
                response = getattr(error, "response", None) or {}
                code = str(response.get("Error", {}).get("Code", ""))
                status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
                if code.removesuffix("Exception") not in _REFUSALS and status != _TOO_LARGE:
                    if not code or code in STALE:
                        self._client = None  # a new one finds credentials that were renewed
                    raise NotSentError(safe_text(error)) from None
                refusals, why = refusals + 1, safe_text(error)
                if len(part) > 1 and refusals <= _MOST_REFUSALS:
                    count = len(part) // 2
                    continue
                dropped += len(part)  # it would be refused each time, and all later ones would wait for it
            del self._data[: len(part)]
            count = min(2 * count, _MOST_DATA) if refusals <= _MOST_REFUSALS else _MOST_DATA
        if dropped:
            raise NotSentError(f"{dropped} of them are refused, and dropped: {why}")
