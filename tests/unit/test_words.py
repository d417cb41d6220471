"""The words of docstrings."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import sqs_fifo_spark

PACKAGE = Path(sqs_fifo_spark.__file__).parent
QUESTION = re.compile(r"\W*(what|how|whether|which|who|whose|where|when)\b", re.IGNORECASE)


def docstrings(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of each docstring, those of fields and constants included."""
    for node in ast.walk(ast.parse(source)):
        body = getattr(node, "body", None)
        for each in body if isinstance(body, list) else []:
            match each:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    yield each.lineno, text


def questions(source: str) -> list[int]:
    """Return the lines of the docstrings that begin with a question word."""
    return sorted(line for line, text in docstrings(source) if QUESTION.match(text))


@pytest.mark.parametrize(
    "planted",
    [
        '"""What a module does."""',
        'class A:\n    """Who calls."""',
        'class A:\n    field: int\n    """How many there are."""',
        'def f():\n    """\n    Whether it is so.\n    """',
        'async def f():\n    """which one"""',
        'LIMIT = 1\n"""When it is over."""',
        'LIMIT = 1\nr"""`Where` it is."""',
    ],
)
def test_docstring_that_begins_with_a_question_word_is_found(planted: str) -> None:
    """Each place of a docstring is looked at, in whatever case it begins."""
    assert len(questions(planted)) == 1


def test_docstring_that_begins_with_the_effect_is_fine() -> None:
    """Only the first word counts, and only as a whole."""
    assert not questions('"""Return what is left."""\nLIMIT = 1\n"""However long it takes."""\nname = "What?"')


def test_no_docstring_of_the_package_begins_with_a_question_word() -> None:
    """A reader looks for the effect or the noun, so that stands first."""
    files = list(PACKAGE.rglob("*.py"))
    assert len(files) > 100
    found = {path: questions(path.read_text(encoding="utf-8")) for path in files}
    assert not [f"{path.relative_to(PACKAGE)}:{line}" for path, lines in found.items() for line in lines]
