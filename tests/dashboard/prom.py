"""Prometheus beside an exporter, and its answers to the queries of the dashboard."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode

import yaml

from tests.crash.processes import begin, end
from tests.dashboard.picture import ROOT
from tests.helpers import wait_until

MONITORING = ROOT / "sqs_fifo_spark" / "project" / "monitoring"
SCRAPE_S = 5
"""As `prometheus.yaml` has it, and Grafana's data source."""


class Prom:
    """Debian's Prometheus, which scrapes one exporter and has our alert rules."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"

    def ask(self, path: str, **query: object) -> Any:
        with urllib.request.urlopen(f"{self._url}/api/v1/{path}?{urlencode(query)}", timeout=30) as answer:
            return json.load(answer)["data"]

    def is_ready(self) -> bool:
        with contextlib.suppress(OSError):
            return bool(urllib.request.urlopen(f"{self._url}/-/ready", timeout=5).status == 200)
        return False


@contextlib.contextmanager
def prometheus(home: Path, exporter_port: int) -> Iterator[Prom]:
    """Run it with the project's own configuration, but for whom it scrapes."""
    config = yaml.safe_load((MONITORING / "prometheus.yaml").read_text(encoding="utf-8"))
    assert config["global"]["scrape_interval"] == f"{SCRAPE_S}s"
    config["scrape_configs"][0]["static_configs"][0]["targets"] = [f"127.0.0.1:{exporter_port}"]
    shutil.copy(MONITORING / "alerts.yaml", home)
    (home / "prometheus.yaml").write_text(yaml.safe_dump(config))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = ["prometheus", f"--config.file={home}/prometheus.yaml", f"--storage.tsdb.path={home}/data"]
    log = home / "prometheus.log"
    process = begin([*command, f"--web.listen-address=127.0.0.1:{port}"], log)
    try:
        prom = Prom(port)
        wait_until(prom.is_ready, 60, f"Prometheus is ready; its log is {log}")
        yield prom
    finally:
        end(process)


def answers(prom: Prom, shown: dict[str, Any], begin: float, end: float) -> dict[int, list[dict[str, Any]]]:
    """Return what each panel's queries find, by the panel's id; SystemExit if one is refused or finds nothing."""
    filled = {f"${each['name']}": each["allValue"] for each in shown["templating"]["list"] if "allValue" in each}
    # As Grafana has it where a point is as long as a scrape.
    filled["$__rate_interval"] = f"{4 * SCRAPE_S}s"
    found: dict[int, list[dict[str, Any]]] = {}
    for panel in shown["panels"]:
        for target in panel["targets"]:
            expr = re.sub(r"\$\w+", lambda name: filled[name[0]], target["expr"])
            name = f"panel '{panel['title']}', query {target['refId']}"
            try:
                series = prom.ask("query_range", query=expr, start=begin, end=end, step=SCRAPE_S)["result"]
            except HTTPError as error:
                raise SystemExit(f"{name} is refused: {json.load(error)['error']}") from None
            if not series:
                raise SystemExit(f"{name} finds nothing: {expr}")
            for each in series:
                legend = target["legendFormat"]
                for label, text in each["metric"].items():
                    legend = legend.replace(f"{{{{{label}}}}}", text)
                values = [(at, float(value)) for at, value in each["values"] if value != "NaN"]
                found.setdefault(panel["id"], []).append({"name": legend, "values": values})
                print(f"{name}: {legend}: {len(values)} values, up to {max(value for _, value in values):g}")
    return found
