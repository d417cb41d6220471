"""The tables of `docs/emulators.md`, between their markers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tests.crash.cluster import ROOT
from tests.emulators.product import MODES, UNFINISHED

PAGE = ROOT / "sqs_fifo_spark" / "docs" / "emulators.md"
SHOWN = "locks", "receipts", "deduplication", "redrive", "sequence"
"""Grounds of facts that tests of an ordered consumer rest on; of the others the page has the numbers alone."""
_MARKS = {"holds": "", "differs": "no", "not supported": "lacks", "not decided": "?"}


def write(results: Mapping[str, Mapping[str, Any]]) -> None:
    text = PAGE.read_text()
    for name, table in (("product", _product(results)), ("facts", _facts(results)), ("counts", _counts(results))):
        before, begin, rest = text.partition(f"<!-- {name}:begin -->\n")
        _, end, after = rest.partition(f"<!-- {name}:end -->")
        text = f"{before}{begin}{table}{end}{after}"
    PAGE.write_text(text)


def _product(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a row for each emulator: what came of the messages in each mode."""
    rows = [
        (result["version"], *map(_outcome, result["product"])) for result in results.values() if "product" in result
    ]
    return _table(("emulator", *(f"`deleteAfter={mode}`: lost, doubled, out of order" for mode in MODES)), rows)


def _outcome(found: Mapping[str, Any]) -> str:
    if found["source"]:
        return "not at its end in time" if found["source"].startswith(UNFINISHED) else "the source stopped"
    counts = ", ".join(f"{found[name]:,}" for name in ("lost", "doubled", "out_of_order"))
    if found["out_of_order"]:
        counts += f" ({found['unsorted']:,} as received)"
    return counts + ("; the sink stopped, and plain sends went on" if found["sink"] else "")


def _facts(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a row for each fact of the shown grounds where an emulator does otherwise, or lacks the call.

    Those on which no query came to its end are left out.
    """
    marks: dict[tuple[str, str], dict[str, str]] = {}
    for name, result in results.items():
        if all(mode["source"] for mode in result["product"]):
            continue
        for case in result["facts"]:
            if case["id"].split(".")[0] in SHOWN and (mark := _MARKS[case["verdict"]]):
                marks.setdefault((case["id"], case["fact"]), {})[name] = mark
    names = [name for name in results if any(name in found for found in marks.values())]
    rows = [
        (f"`{key}` {fact}", *(found.get(name, "") for name in names))
        for (key, fact), found in sorted(marks.items())
        if {"no", "lacks"} & set(found.values())
    ]
    return _table(("fact", *names), rows)


def _counts(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Return for each ground how many facts it has, and how many of them hold."""
    holds: dict[str, dict[str, list[bool]]] = {}
    for name, result in results.items():
        for case in result["facts"]:
            holds.setdefault(case["id"].split(".")[0], {}).setdefault(name, []).append(case["verdict"] == "holds")
    rows = [
        (ground, f"{max(map(len, found.values()))}", *(f"{sum(found.get(name, []))}" for name in results))
        for ground, found in sorted(holds.items())
    ]
    return _table(("facts on", "all", *results), rows)


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [list(head), *([each.replace("|", "\\|") for each in row] for row in rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
