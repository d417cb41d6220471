"""Draw the dashboard: a real query's figures, scraped by Prometheus, in panels that are Grafana's own components.

`python -m tests.dashboard` needs Prometheus, Chromium and npm, and takes about five minutes. It writes
`sqs_fifo_spark/docs/dashboard.png`, and fails if a query of the dashboard is refused or finds nothing.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path

from sqs_fifo_spark.clock import SYSTEM_CLOCK
from tests.dashboard.load import LAST, play
from tests.dashboard.picture import GRAFANA, PICTURE, ROOT, draw
from tests.dashboard.prom import MONITORING, answers, prometheus
from tests.helpers import wait_until


def main() -> int:
    missing = [name for name in ("prometheus", "chromium", "npm") if shutil.which(name) is None]
    if missing:
        raise SystemExit(f"missing: {', '.join(missing)}. As root on Debian: apt-get install {' '.join(missing)}")
    shown = json.loads((MONITORING / "dashboard.json").read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory(prefix="sqs-fifo-dashboard-") as directory:
        home = Path(directory)
        with play(home) as (exporter_port, load), prometheus(home, exporter_port) as prom:
            begin = SYSTEM_CLOCK.now()
            load.run()
            last = load.figure(LAST)
            query = f"sqs_fifo_{LAST} >= {last}"
            wait_until(lambda: prom.ask("query", query=query)["result"], 60, "Prometheus has the last report")
            found = answers(prom, shown, begin, SYSTEM_CLOCK.now())
            rules = prom.ask("rules")["groups"][0]["rules"]
            version = prom.ask("status/buildinfo")["version"]
    for rule in rules:
        print(f"alert {rule['name']}: {rule['health']}, {rule['state']}")
    at = [at for each in found.values() for series in each for at, _ in series["values"]]
    draw({"dashboard": shown, "answers": found, "from": min(at) * 1000, "to": max(at) * 1000})
    size = f"{PICTURE.stat().st_size:,} bytes"
    print(f"{PICTURE.relative_to(ROOT)}: {size}, by Prometheus {version} and Grafana's components {GRAFANA}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
