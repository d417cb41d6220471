"""`python -m tests.emulators`: what SQS does, and source and sink, on each emulator; with all of them, the page."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.emulators import page, product
from tests.emulators.servers import EMULATORS, KEYS

PARTS = "facts", "product"


def facts(endpoint: str, home: Path) -> list[dict[str, Any]]:
    """Return what `conformance` finds at the endpoint: a verdict on each fact."""
    home.mkdir()
    report = home / "facts.json"
    command = [sys.executable, "-m", "sqs_fifo_spark", "conformance", "--endpoint-url", endpoint, "--json", str(report)]
    env = {**os.environ, **KEYS}
    subprocess.run([*command, "--max-seconds", "30"], cwd=home, env=env, check=False, stdout=subprocess.DEVNULL)
    cases: list[dict[str, Any]] = json.loads(report.read_text())["cases"]
    print(f"{len(cases)} facts, of which {sum(case['verdict'] == 'holds' for case in cases)} hold", flush=True)
    return cases


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.emulators", description=__doc__)
    names = [each.name for each in EMULATORS]
    parser.add_argument("--only", choices=names, action="append", help="one emulator; may be repeated")
    parser.add_argument("--part", choices=PARTS, action="append", help="one part; may be repeated")
    parser.add_argument("--json", type=Path, help="a file that keeps results, those of earlier runs, too")
    parser.add_argument("--home", type=Path, help="a folder that keeps the installed packages and the logs")
    given = parser.parse_args()
    results = json.loads(given.json.read_text()) if given.json and given.json.exists() else {}
    with tempfile.TemporaryDirectory() as temporary:
        home = given.home or Path(temporary)
        home.mkdir(exist_ok=True)
        for emulator in EMULATORS:
            if emulator.name not in (given.only or names):
                continue
            place = home / emulator.name.replace(" ", "-")
            emulator.install(place)
            runs = Path(tempfile.mkdtemp(prefix="run-", dir=home))
            result = results.setdefault(emulator.name, {}) | {"version": emulator.version}
            with emulator.serve(place) as endpoint:
                if "facts" in (given.part or PARTS):
                    result["facts"] = facts(endpoint, runs / "facts")
                if "product" in (given.part or PARTS):
                    result["product"] = product.run(endpoint, runs / "product", product.interleaved(emulator.messages))
            print(emulator.version, *result.get("product", ()), sep="\n", flush=True)
            results[emulator.name] = result
            if given.json:
                given.json.write_text(json.dumps(results, indent=1))
    if all(set(PARTS) <= results.get(name, {}).keys() for name in names):
        page.write(results)


if __name__ == "__main__":
    main()
