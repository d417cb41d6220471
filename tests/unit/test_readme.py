"""The README and the pages beside it: what they say is current, and what they point to is there."""

from __future__ import annotations

import re
import runpy
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sqs_fifo_spark.option_rules import JOURNAL_SCHEMES
from sqs_fifo_spark.options import SINK, SOURCE
from tests.option_pages import table_of, table_of_hints

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
DOCS = ROOT / "sqs_fifo_spark" / "docs"
PAGES = [README, *sorted(DOCS.glob("*.md"))]
MOST_LINES, MOST_CHARACTERS, MOST_WORDS = 150, 120, 2500

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"^(?: {4}|\t).*$", re.MULTILINE)
_CODE = re.compile(r"`[^`]*`")
_LINK = re.compile(r"\[[^]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def prose(page: Path) -> str:
    """Return the page without its blocks of code."""
    return _INDENTED.sub("", _FENCE.sub("", page.read_text(encoding="utf-8")))


def links(page: Path) -> list[str]:
    """Return where the page's links lead, other than those to the web."""
    targets = _LINK.findall(_CODE.sub("code", prose(page)))
    return [target for target in targets if not target.startswith(("https://", "http://"))]


def anchors(page: Path) -> set[str]:
    """Return the anchors that a renderer gives the page's headings; one that comes again gets a number."""
    seen: Counter[str] = Counter()
    found = set()
    for heading in _HEADING.findall(prose(page)):
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return found


def snippets(page: Path) -> Iterator[str]:
    """Yield the page's blocks of Python."""
    for language, code in _FENCE.findall(page.read_text(encoding="utf-8")):
        if language == "python":
            yield code


@pytest.mark.parametrize(
    ("page", "table"),
    [("options", table_of(SOURCE)), ("options-sink", table_of(SINK)), ("other-sources", table_of_hints())],
    ids=["options", "options-sink", "other-sources"],
)
def test_tables_of_options_are_current(page: str, table: str) -> None:
    """Between the markers stands the table itself, and nothing else."""
    begin, end = "<!-- options:begin -->", "<!-- options:end -->"
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    assert text.count(begin) == text.count(end) == 1
    between = text.partition(begin)[2].partition(end)[0]
    assert between.strip() == table


def test_each_kind_of_journal_location_is_in_the_pages() -> None:
    """And none that is refused; what the tables name first is what error texts and README name."""
    text = (DOCS / "options.md").read_text(encoding="utf-8")
    where = text.partition("### Where the journal may be")[2].partition("###")[0]
    assert set(re.findall(r"`(\w+)://", where)) == set(JOURNAL_SCHEMES)
    others = {f"{scheme}://" for scheme in JOURNAL_SCHEMES} - {"s3://", "gs://", "abfss://"}
    assert [scheme for scheme in others if scheme in SOURCE["journalLocation"].meaning] == []


@each_page
def test_every_link_leads_somewhere(page: Path) -> None:
    """To a file that is there and, if it names one, to a heading in it."""
    assert [target for target in links(page) if not _is_there(page, target)] == []


def _is_there(page: Path, target: str) -> bool:
    name, _, anchor = target.partition("#")
    file = (page.parent / name).resolve() if name else page
    return file.is_file() and (not anchor or anchor in anchors(file))


def test_links_are_found_where_they_stand(tmp_path: Path) -> None:
    """The tests above would pass if no link or anchor were ever found."""
    page = tmp_path / "page.md"
    page.write_text(
        "# What `x` does?\n\n[a\nb](c.md#d) and `[e](f)`\n\n    [g](h)\n\n```python\n[i](j)\n```\n\n## Why\n\n## Why\n"
    )
    assert links(page) == ["c.md#d"]
    assert anchors(page) == {"what-x-does", "why", "why-1"}
    assert list(snippets(page)) == ["[i](j)\n"]


@pytest.mark.parametrize("page", PAGES[1:], ids=lambda page: page.name)
def test_pages_link_to_pages_beside_them(page: Path) -> None:
    """The package brings these, and not the README."""
    assert [target for target in links(page) if "/" in target] == []


def test_readme_leads_to_the_index_and_that_to_every_page() -> None:
    """No page is known only to those who list the directory."""
    index = DOCS / "index.md"
    assert "sqs_fifo_spark/docs/index.md" in links(README)
    assert set(PAGES[1:]) - {index} == {(DOCS / target.partition("#")[0]).resolve() for target in links(index)}


@pytest.mark.parametrize("page", PAGES[1:], ids=lambda page: page.name)
def test_pages_can_be_read_at_a_sitting_too(page: Path) -> None:
    """A longer one is two."""
    assert len(page.read_text(encoding="utf-8").split()) <= MOST_WORDS


def test_readme_can_be_read_at_a_sitting() -> None:
    """Long texts stand in the pages."""
    lines = README.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= MOST_LINES
    assert [line for line in lines if len(line) > MOST_CHARACTERS] == []


@pytest.mark.parametrize("wing", ["source", "source/driver", "source/task", "sink", "journal"])
def test_every_module_of_the_wings_answers_a_question_in_the_protocol(wing: str) -> None:
    """Readers find the place of a decision; no row names a module that is gone."""
    text = (DOCS / "protocol.md").read_text(encoding="utf-8")
    parts = re.split(r"^\| question \| module of `([\w/]+)/` \|$", text, flags=re.MULTILINE)
    tables = [table.partition("\n\n")[0] for name, table in zip(parts[1::2], parts[2::2], strict=True) if name == wing]
    answers = re.findall(r"\? \| (.+) \|$", "\n".join(tables), re.MULTILINE)
    named = {module for answer in answers for module in re.findall(r"`(\w+)`", answer)}
    assert named == {path.stem for path in (ROOT / "sqs_fifo_spark" / wing).glob("*.py")} - {"__init__"}


@pytest.mark.parametrize("page", ["failures-source", "failures-journal", "guarantees-sink"])
def test_each_failure_has_symptom_cause_and_remedy(page: str) -> None:
    """In short lines, and in this order."""
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    assert [line for line in text.splitlines() if len(line) > MOST_CHARACTERS] == []
    chapter = text.partition("\n## Failures\n")[2].partition("\n## ")[0]
    failures = chapter.split("\n### ")[1:] or text.split("\n## ")[1:]
    assert len(failures) > 10
    parts = ["Symptom", "Cause", "Do"]
    assert [each for each in failures if re.findall(r"^- \*\*(\w+)\*\*: ", each, re.MULTILINE) != parts] == []


@each_page
def test_python_in_pages_compiles(page: Path) -> None:
    """A snippet can be pasted."""
    for code in snippets(page):
        compile(code, page.name, "exec")


def test_description_for_pypi_has_no_relative_link(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyPI shows the README alone: its links are absolute, or there is only their text."""
    setuptools = pytest.importorskip("setuptools")
    given: dict[str, Any] = {}
    monkeypatch.setattr(setuptools, "setup", lambda **arguments: given.update(arguments))
    names = runpy.run_path(str(ROOT / "setup.py"))
    home = "https://example.org/project/"
    assert given["long_description"] == names["long_description"](names["HOME"])
    assert _relative(names["long_description"]("")) == []
    assert _relative(names["long_description"](home)) == []
    absolute = set(_LINK.findall(names["long_description"](home)))
    assert {f"{home}{target}" for target in links(README)} <= absolute


def _relative(text: str) -> list[str]:
    return [target for target in _LINK.findall(text) if not target.startswith("https://")]
