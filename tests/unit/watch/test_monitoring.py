"""The dashboard and the alert rules that `init` writes: on the exporter's figures, and read by promtool."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry

from sqs_fifo_spark.watch import METRICS, Prometheus, Sample
from tests.dashboard.picture import PICTURE, mark

ROOT = Path(__file__).resolve().parents[3]
MONITORING = ROOT / "sqs_fifo_spark" / "project" / "monitoring"
ALERTS = MONITORING / "alerts.yaml"
DASHBOARD = json.loads((MONITORING / "dashboard.json").read_text(encoding="utf-8"))
RULES: dict[str, str] = {
    rule["alert"]: rule["expr"] for rule in yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"][0]["rules"]
}
PANELS: list[str] = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is missing: as root on Debian, apt-get install prometheus"
)


def exposed() -> set[str]:
    """Return the names that the exporter shows to Prometheus."""
    registry = CollectorRegistry()
    figures = {each.figure: 1.0 for each in METRICS}
    growth = {each.figure: 1.0 for each in METRICS if each.is_total}
    Prometheus(registry).export(Sample("bids", "bids.fifo", "run", 1.0, figures, growth))
    return {sample.name for family in registry.collect() for sample in family.samples}


def named(*expressions: str) -> set[str]:
    return {name for expression in expressions for name in re.findall(r"sqs_fifo_\w+", expression)}


def test_dashboard_shows_each_figure_and_no_other() -> None:
    """And chooses by labels that they have."""
    variables = DASHBOARD["templating"]["list"]
    queries = [each["query"]["query"] for each in variables if each["type"] == "query"]
    assert named(*PANELS) == exposed()
    assert named(*queries) <= exposed()
    assert [re.findall(r", (\w+)\)", query) for query in queries] == [["query"], ["queue"]]
    used = {name for expression in PANELS for name in re.findall(r"\$(\w+)", expression)}
    assert used <= {each["name"] for each in variables} | {"__rate_interval"}


def test_picture_in_the_documents_is_of_these_panels() -> None:
    is_drawn = mark(DASHBOARD["panels"]) in PICTURE.read_bytes()
    assert is_drawn, "the panels have changed since the picture was drawn; draw it anew: make dashboard"


def test_rules_name_only_figures_that_the_exporter_shows() -> None:
    assert named(*RULES.values()) <= exposed()


def test_rules_have_the_thresholds_of_the_alarms_in_cloudwatch() -> None:
    """`conf/cloudformation.yaml` has the same two, with these defaults."""
    template = (ROOT / "conf" / "cloudformation.yaml").read_text(encoding="utf-8")
    for parameter in ("OldestMessage", "WaitingMessages"):
        default = re.search(rf"^  {parameter}(?:Seconds)?:\n(?:    .+\n)*?    Default: (\d+)$", template, re.MULTILINE)
        assert default is not None
        assert RULES[f"SqsFifo{parameter}"].endswith(f"> {default[1]}")


def promtool(*arguments: str) -> None:
    done = subprocess.run(["promtool", *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def promtool_tests(folder: Path, series: dict[str, str], **expected: Any) -> None:
    """Let promtool compare `expected` with what Prometheus finds in these series, which have a value each minute."""
    labels = '{query="bids",queue="bids.fifo"}'
    given = [{"series": name + labels, "values": values} for name, values in series.items()]
    test = {"interval": "1m", "input_series": given, **expected}
    file = folder / "test.yaml"
    file.write_text(json.dumps({"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": [test]}))
    promtool("test", "rules", str(file))


@needs_promtool
def test_promtool_takes_the_rules_and_the_projects_configuration() -> None:
    promtool("check", "rules", str(ALERTS))
    promtool("check", "config", str(MONITORING / "prometheus.yaml"))


HEALTHY = dict.fromkeys(exposed(), "0x60") | {
    "sqs_fifo_waiting_messages": "500x60",
    "sqs_fifo_rows_total": "0+100x60",
    "sqs_fifo_unconfirmed_deletes": "7x60",
    "sqs_fifo_last_report_timestamp_seconds": "0+60x60",
}
ILL = {
    "sqs_fifo_oldest_message_age_seconds": "901x60",
    "sqs_fifo_waiting_messages": "100001x60",
    "sqs_fifo_rows_total": "5x60",
    "sqs_fifo_lost_leases_total": "0x20 3x40",
    "sqs_fifo_unconfirmed_deletes": "0x20 4x40",
    "sqs_fifo_last_report_timestamp_seconds": "0x60",
}


@needs_promtool
@pytest.mark.parametrize(
    ("series", "ringing"),
    [(HEALTHY, set()), (ILL, set(RULES)), ({}, {"SqsFifoNoReport"})],
    ids=["healthy", "ill", "down"],
)
def test_an_alert_rings_for_what_it_is_there_for(tmp_path: Path, series: dict[str, str], ringing: set[str]) -> None:
    found = [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in sorted(ringing)]
    query = 'count by (alertname) (ALERTS{alertstate="firing"})'
    promtool_tests(tmp_path, series, promql_expr_test=[{"expr": query, "eval_time": "30m", "exp_samples": found}])


@needs_promtool
def test_each_query_of_the_dashboard_has_an_answer(tmp_path: Path) -> None:
    """With the variables as Grafana fills them in."""
    filled = [
        each.replace("$__rate_interval", "5m").replace("$query", "bids").replace("$queue", ".*") for each in PANELS
    ]
    one = [{"labels": "{}", "value": 1}]
    tests = [{"expr": f"count({each})", "eval_time": "30m", "exp_samples": one} for each in filled]
    promtool_tests(tmp_path, HEALTHY, promql_expr_test=tests)
