"""The forms of samples that CloudWatch, Prometheus and OpenTelemetry read."""

from __future__ import annotations

import builtins
import io
import itertools
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError, ReadTimeoutError
from moto import mock_aws
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry, generate_latest

from sqs_fifo_spark.errors import MissingPackageError
from sqs_fifo_spark.watch import METRICS, CloudWatch, EmbeddedMetrics, OpenTelemetry, Prometheus, Sample
from sqs_fifo_spark.watch import cloudwatch as module
from sqs_fifo_spark.watch.cloudwatch import NotSentError

FIGURES = {each.figure: float(number) for number, each in enumerate(METRICS, start=1)}
GROWTH = {each.figure: 100.0 + number for number, each in enumerate(METRICS) if each.is_total}
SAMPLE = Sample("orders", "orders.fifo", "run", 1_800_000_000.25, FIGURES, GROWTH)
LABELS = {"query": "orders", "queue": "orders.fifo"}
SENT = {each.camel_name: GROWTH.get(each.figure, FIGURES[each.figure]) for each in METRICS}
"""Values for CloudWatch: of a total, its growth."""


def test_embedded_metrics_are_one_line_that_names_its_metrics() -> None:
    """As CloudWatch's format wants it: each metric is declared, and stands beside the dimensions."""
    stream = io.StringIO()
    EmbeddedMetrics(stream, namespace="Mine").export(SAMPLE)
    (line,) = stream.getvalue().splitlines()
    told = json.loads(line)
    declared = told.pop("_aws")
    (directive,) = declared["CloudWatchMetrics"]
    assert declared["Timestamp"] == 1_800_000_000_250
    assert (directive["Namespace"], directive["Dimensions"]) == ("Mine", [["Query", "Queue"]])
    assert {each["Name"] for each in directive["Metrics"]} == SENT.keys()
    assert {each["Unit"] for each in directive["Metrics"]} == {"Count", "Seconds"}
    assert told == {"Query": "orders", "Queue": "orders.fifo", **SENT}


def test_a_figure_that_is_not_known_is_left_out() -> None:
    """Rather than sent as 0."""
    stream = io.StringIO()
    figures = {name: value for name, value in FIGURES.items() if name != "oldestMessageAgeSeconds"}
    EmbeddedMetrics(stream).export(replace(SAMPLE, figures=figures))
    assert json.loads(stream.getvalue()).keys() == {"_aws", "Query", "Queue", *SENT} - {"OldestMessageAgeSeconds"}


def test_embedded_metrics_go_to_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever that is by then."""
    EmbeddedMetrics().export(SAMPLE)
    assert json.loads(capsys.readouterr().out)["Queue"] == "orders.fifo"


def export_each_second(exporter: CloudWatch, seconds: int) -> None:
    for second in range(seconds):
        with suppress(NotSentError):
            exporter.export(replace(SAMPLE, at_s=SAMPLE.at_s + second))


class Client:
    """A client that raises what `judge` returns for a call's values, and else keeps the data."""

    def __init__(self, judge: Callable[[set[float]], Exception | None] = lambda values: None) -> None:
        self.judge = judge
        self.sent: list[list[dict[str, Any]]] = []
        self.calls = 0

    @property
    def data(self) -> list[dict[str, Any]]:
        return [each for call in self.sent for each in call]

    def put_metric_data(self, *, Namespace: str, MetricData: list[dict[str, Any]]) -> None:
        self.calls += 1
        if error := self.judge({each["Value"] for each in MetricData}):
            raise error
        self.sent.append(MetricData)


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Client]:
    """Let an exporter get one of these clients after the other, the last one for ever; return the first."""

    def make(*clients: Client) -> Client:
        found = itertools.chain(clients, itertools.repeat(clients[-1]))
        monkeypatch.setattr(module, "cloudwatch_client", lambda *_: next(found))
        return clients[0]

    return make


@mock_aws
def test_cloudwatch_has_what_was_sent() -> None:
    """By query and queue."""
    CloudWatch(namespace="Mine", region="eu-west-1").export(SAMPLE)
    there = boto3.client("cloudwatch", region_name="eu-west-1").get_paginator("list_metrics").paginate(Namespace="Mine")
    found = [metric for page in there for metric in page["Metrics"]]
    assert {metric["MetricName"] for metric in found} == SENT.keys()
    assert all(
        metric["Dimensions"] == [{"Name": "Query", "Value": "orders"}, {"Name": "Queue", "Value": "orders.fifo"}]
        for metric in found
    )


def test_cloudwatch_is_called_once_a_minute_and_at_the_end(use: Callable[..., Client]) -> None:
    """A micro-batch each second costs no call each second."""
    client, exporter = use(Client()), CloudWatch()
    export_each_second(exporter, 150)
    assert client.calls == 3, "at the start, and after each minute"
    assert {each["MetricName"]: each["Value"] for each in client.sent[0]} == SENT
    exporter.end("run")
    assert sum(map(len, client.sent)) == 150 * len(METRICS)


def test_cloudwatch_gets_no_more_than_it_takes_at_once(use: Callable[..., Client]) -> None:
    """A thousand figures."""
    client, exporter = use(Client()), CloudWatch(every_s=1_000)
    export_each_second(exporter, 301)
    exporter.end("run")
    assert [*map(len, client.sent)] == [9, 1_000, 1_000, 700]


@pytest.mark.parametrize(
    ("name", "sent"), [("заказы 1", "?????? 1"), (" ", "-"), ("", "-"), ("x" * 2_000, "x" * 1_024), ("a\tb", "a?b")]
)
def test_a_name_that_cloudwatch_does_not_take_is_made_to_fit(name: str, sent: str, use: Callable[..., Client]) -> None:
    """Else it would refuse each call, and all that it has of other queries."""
    client = use(Client())
    CloudWatch().export(replace(SAMPLE, query=name))
    assert client.sent[0][0]["Dimensions"][0] == {"Name": "Query", "Value": sent}


def test_what_cloudwatch_did_not_take_is_sent_later(use: Callable[..., Client]) -> None:
    """Once a minute, with its own times; but not what is very old by then."""
    client = use(Client(lambda values: OSError("no route")))
    exporter = CloudWatch()
    count = 3 + 20_000 // len(METRICS)
    export_each_second(exporter, count)
    assert client.calls == -(-count // 60)
    client.judge = lambda values: None
    exporter.end("run")
    assert len(client.data) == 20_000
    assert client.data[-1]["Timestamp"].timestamp() == SAMPLE.at_s + count - 1
    exporter.end("run")
    assert len(client.data) == 20_000


SECRET = "the-session-token"


def refusal(code: str, status: int = 400) -> ClientError:
    """Return an error whose text quotes a credential, as that of a signature may."""
    said = {"Error": {"Code": code, "Message": f"no\n{SECRET}"}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(said, "PutMetricData")


@pytest.mark.parametrize(
    ("error", "is_kept"),
    [
        (refusal("InvalidParameterValue"), False),
        (refusal("InvalidParameterCombinationException"), False),
        (refusal("ValidationException"), False),
        (refusal("RequestEntityTooLarge", 413), False),
        (refusal("Throttling"), True),
        (refusal("AccessDenied"), True),
        (refusal("InvalidClientTokenId"), True),
        (refusal("InvalidSignatureException"), True),
        (refusal("MissingAuthenticationToken"), True),
        (OSError(SECRET), True),
        (ReadTimeoutError(endpoint_url=SECRET), True),  # which has a `response`, but none
    ],
)
def test_only_what_can_never_be_taken_is_dropped(error: Exception, is_kept: bool, use: Callable[..., Client]) -> None:
    """It would be refused each time, and keep what follows from being sent. No error quotes what it may quote."""
    client = use(Client(lambda values: error))
    exporter = CloudWatch()
    with pytest.raises(NotSentError) as told:
        exporter.export(SAMPLE)
    assert SECRET not in str(told.value)
    assert told.value.__cause__ is None
    client.judge = lambda values: None
    exporter.end("run")
    assert bool(client.data) is is_kept


@pytest.mark.parametrize(
    ("bad", "dropped", "calls"),
    [({450.0}, 1, 32), ({0.0, 999.0, 1_500.0}, 3, 81), (set(map(float, range(2_000))), 2_000, 44)],
)
def test_a_refused_figure_costs_no_other(bad: set[float], dropped: int, calls: int, use: Callable[..., Client]) -> None:
    """It is told in one line, and takes a bounded number of calls, even if nothing at all is taken."""
    client = use(Client(lambda values: refusal("InvalidParameterValue") if bad & values else None))
    exporter = CloudWatch()
    exporter._data = [{"MetricName": "Rows", "Value": float(number)} for number in range(2_000)]
    with pytest.raises(NotSentError, match=rf"^{dropped} of them are refused, and dropped: "):
        exporter.end("run")
    assert [each["Value"] for each in client.data] == [each for each in map(float, range(2_000)) if each not in bad]
    assert client.calls <= calls
    exporter.end("run")
    assert client.calls <= calls


@pytest.mark.parametrize("code", ["ExpiredToken", "UnrecognizedClientException"])
def test_credentials_that_were_renewed_are_found(code: str, use: Callable[..., Client]) -> None:
    """A client keeps those that it was made with."""
    new = Client()
    use(Client(lambda values: refusal(code)), new)
    exporter = CloudWatch()
    with pytest.raises(NotSentError):
        exporter.export(SAMPLE)
    exporter.end("run")
    assert len(new.data) == len(METRICS)


def test_a_client_that_cannot_be_made_is_told_without_what_its_error_says(
    monkeypatch: pytest.MonkeyPatch, use: Callable[..., Client]
) -> None:
    """A process that finds credentials may have printed them; the next call tries again."""

    def fail(*_: object) -> Client:
        raise RuntimeError(SECRET)

    monkeypatch.setattr(module, "cloudwatch_client", fail)
    exporter = CloudWatch()
    with pytest.raises(NotSentError, match="RuntimeError") as told:
        exporter.export(SAMPLE)
    assert SECRET not in str(told.value)
    client = use(Client())
    exporter.end("run")
    assert len(client.data) == len(METRICS)


def test_prometheus_shows_the_last_sample_of_each_query() -> None:
    """Gauges as they are, totals as counters, and when it reported."""
    registry = CollectorRegistry()
    exporter = Prometheus(registry)
    exporter.export(replace(SAMPLE, figures=dict.fromkeys(FIGURES, 0.0), growth=dict.fromkeys(GROWTH, 1.0)))
    exporter.export(SAMPLE)
    for metric in METRICS:
        name = f"sqs_fifo_{metric.snake_name}{'_total' if metric.is_total else ''}"
        expected = 1 + GROWTH[metric.figure] if metric.is_total else FIGURES[metric.figure]
        assert registry.get_sample_value(name, LABELS) == expected
    assert registry.get_sample_value("sqs_fifo_last_report_timestamp_seconds", LABELS) == SAMPLE.at_s
    shown = generate_latest(registry).decode()
    assert 'sqs_fifo_waiting_messages{query="orders",queue="orders.fifo"} 1.0' in shown
    assert "sqs_fifo_receives_total" in shown


def test_a_run_that_is_over_leaves_its_totals_and_when_it_last_reported() -> None:
    """The last figures of the queue go with it; those of another run of the query stay."""
    registry, reader = CollectorRegistry(), InMemoryMetricReader()
    exporters = Prometheus(registry), OpenTelemetry(MeterProvider([reader]).get_meter("test"))
    for exporter in exporters:
        exporter.export(SAMPLE)
        exporter.export(replace(SAMPLE, query="restarted", run_id="another"))
        exporter.end("run")
    totals = {f"{each.snake_name}_total" for each in METRICS if each.is_total}
    expected = {*totals, "last_report_timestamp_seconds"}
    samples = [each for family in registry.collect() for each in family.samples]
    left = {each.name.removeprefix("sqs_fifo_") for each in samples if each.labels["query"] == "orders"}
    assert left == expected
    assert len([each for each in samples if each.labels["query"] == "restarted"]) == len(METRICS) + 1
    observed = observations(reader)
    assert {name for name, query in observed if query == "orders"} == {name.removesuffix("_total") for name in expected}


UNITS = {"seconds": "s", "messages": "{message}", "rows": "{row}", "calls": "{call}"}


def observations(reader: InMemoryMetricReader) -> dict[tuple[str, str], tuple[float, str]]:
    """Return value and unit of all that OpenTelemetry has observed, by name and query."""
    data = reader.get_metrics_data()
    assert data is not None
    found = {}
    for metric in (each for of in data.resource_metrics for scope in of.scope_metrics for each in scope.metrics):
        for point in metric.data.data_points:
            attributes: dict[str, Any] = dict(point.attributes or {})
            assert attributes.pop("queue") == "orders.fifo"
            name = metric.name.removeprefix("sqs_fifo.")
            found[name, attributes.pop("query")] = getattr(point, "value", 0.0), metric.unit or ""
            assert not attributes
    return found


def test_open_telemetry_observes_the_last_sample_of_each_query() -> None:
    """With its units, and query and queue as attributes."""
    reader = InMemoryMetricReader()
    exporter = OpenTelemetry(MeterProvider([reader]).get_meter("test"))
    exporter.export(SAMPLE)
    assert observations(reader) == {
        **{(each.snake_name, "orders"): (SENT[each.camel_name], UNITS[each.unit]) for each in METRICS},
        ("last_report_timestamp_seconds", "orders"): (SAMPLE.at_s, "s"),
    }


@pytest.mark.parametrize(
    ("make", "package"), [(Prometheus, "prometheus_client"), (OpenTelemetry, "opentelemetry.metrics")]
)
def test_a_client_that_is_not_installed_is_told_in_one_line(
    make: Callable[[], Any], package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what to install."""
    find = builtins.__import__

    def without(name: str, *rest: Any, **named: Any) -> Any:
        if name == package:
            raise ImportError(name)
        return find(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingPackageError, match=r"pip install \S+$") as told:
        make()
    assert "\n" not in str(told.value)
