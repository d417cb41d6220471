"""The laws have numbers: each is found in the tests, in the simulation's checks and among its planted bugs."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.guarantees import LAWS, MODULES, numbers
from tests.simulation.mutations import MUTATIONS
from tests.simulation.sink_mutations import SINK_MUTATIONS

ROOT = Path(__file__).resolve().parents[2]
GUARANTEES = ROOT / "sqs_fifo_spark" / "docs" / "guarantees.md"
PLANTED = {
    "source": {mutation.name for mutation in MUTATIONS},
    "sink": {mutation.name for mutation in SINK_MUTATIONS},
}

each_law = pytest.mark.parametrize("number", LAWS)
each_side = pytest.mark.parametrize("side", MODULES)


@functools.cache
def checks(side: str) -> frozenset[str]:
    """Return the words before the colon of each violation that the simulation may find on this side."""
    found = set()
    for name in MODULES[side]:
        for node in ast.walk(ast.parse((ROOT / "tests" / "simulation" / f"{name}.py").read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in ("violate", "_violate"):
                text = node.args[0]
                start = text.values[0] if isinstance(text, ast.JoinedStr) else text
                assert isinstance(start, ast.Constant), ast.unparse(node)
                found.add(str(start.value).partition(":")[0])
    return frozenset(found)


def marks(node: ast.AST) -> Iterator[ast.expr]:
    """Yield the marks of a file (`pytestmark`) or of a test (its decorators)."""
    if isinstance(node, ast.FunctionDef):
        yield from node.decorator_list
    for statement in getattr(node, "body", ()) if isinstance(node, ast.Module) else ():
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "pytestmark":
            yield from statement.value.elts if isinstance(statement.value, ast.List) else [statement.value]


def shown(text: str) -> set[str]:
    """Return the laws with which tests of this file are marked that run each time."""
    module = ast.parse(text)
    tests = [each for each in module.body if isinstance(each, ast.FunctionDef) and each.name.startswith("test_")]
    found: set[str] = set()
    for test in tests:
        given = [*marks(module), *marks(test)]
        if not any(ast.unparse(each).startswith("pytest.mark.long") for each in given):
            found.update(
                str(ast.literal_eval(argument))
                for each in given
                if isinstance(each, ast.Call) and ast.unparse(each.func) == "pytest.mark.law"
                for argument in each.args
            )
    return found


@functools.cache
def shown_by_unit_tests() -> frozenset[str]:
    files = (ROOT / "tests" / "unit").rglob("test_*.py")
    return frozenset().union(*(shown(path.read_text(encoding="utf-8")) for path in files))


def test_the_laws_are_those_of_the_page() -> None:
    """A number means the same wherever it stands."""
    text = GUARANTEES.read_text(encoding="utf-8")
    titles = re.findall(r"^### ((?:source|sink)-\d+): (.+)$", text, re.MULTILINE)
    assert titles == [(number, law.title) for number, law in LAWS.items()]


@each_law
def test_each_law_has_a_unit_test_a_check_and_a_planted_bug(number: str) -> None:
    """None of them rests on reading alone."""
    side = number.partition("-")[0]
    assert number in shown_by_unit_tests(), f"no test of tests/unit is marked law('{number}')"
    assert checks(side).intersection(LAWS[number].checks)
    assert PLANTED[side].intersection(LAWS[number].planted)


@each_law
def test_what_is_named_of_the_simulation_is_there_once(number: str) -> None:
    """A check or a planted bug does not outlive its name."""
    side, law = number.partition("-")[0], LAWS[number]
    assert set(law.checks) <= checks(side)
    assert set(law.planted) <= PLANTED[side]
    assert len(set(law.checks)) == len(law.checks)
    assert len(set(law.planted)) == len(law.planted)


@each_side
def test_each_check_and_each_planted_bug_belongs_to_a_law(side: str) -> None:
    """A new one says which law it is for."""
    laws = [law for number, law in LAWS.items() if number.startswith(f"{side}-")]
    assert checks(side) == {name for law in laws for name in law.checks}
    assert PLANTED[side] == {name for law in laws for name in law.planted}


def test_the_simulation_has_no_check_elsewhere() -> None:
    """Else nobody would ask for its law."""
    known = {name for names in MODULES.values() for name in names}
    for path in (ROOT / "tests" / "simulation").glob("*.py"):
        if path.stem not in known:
            assert "violate(" not in path.read_text(encoding="utf-8"), path.name


def test_a_mark_may_name_several_laws() -> None:
    """Of its file and of the test itself, all count."""
    given = [pytest.mark.law("source-1", "source-4").mark, pytest.mark.law("sink-2").mark]
    assert numbers(given) == {"source-1", "source-4", "sink-2"}


@pytest.mark.parametrize(
    ("mark", "said"),
    [
        (pytest.mark.law("source-8"), "law('source-8')"),
        (pytest.mark.law("source-1", "sink-0"), "law('source-1', 'sink-0')"),
        (pytest.mark.law(number="source-1"), "law(number='source-1')"),
        (pytest.mark.law(), "law()"),
    ],
    ids=["no such law", "one of two", "a keyword", "none"],
)
def test_a_mark_that_names_no_law_is_an_error(mark: pytest.MarkDecorator, said: str) -> None:
    """A slip of the pen would hide a test from its law."""
    with pytest.raises(ValueError, match=re.escape(f"{said} must name laws of docs/guarantees.md: source-1, ")):
        numbers([mark.mark])


def test_the_laws_of_a_file_are_read_from_its_text() -> None:
    """Those of a long test do not count, for it does not run each time."""
    text = (
        "pytestmark = [pytest.mark.usefixtures('a'), pytest.mark.law('source-1')]\n"
        "@pytest.mark.law('source-2', 'source-3')\ndef test_a(): ...\n"
        "@pytest.mark.long\n@pytest.mark.law('source-4')\ndef test_b(): ...\n"
        "@pytest.mark.law('source-5')\ndef helper(): ...\n"
    )
    assert shown(text) == {"source-1", "source-2", "source-3"}
    assert not shown(f"{text}pytestmark = [pytest.mark.long]\n")
