"""Nothing that an option or the journal says leads elsewhere, or is ever run."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import sqs_fifo_spark
from sqs_fifo_spark.errors import OptionError
from sqs_fifo_spark.journal.file_store import FileStore
from sqs_fifo_spark.options import parse_source_options


@pytest.mark.parametrize(
    "location",
    [
        *["journal", "./journal", "../journal", "~/journal", "/data/../etc", "/data/./journal", "/data/.."],
        *("/data/jour\x00nal", "/data/jour\nnal", "s3://bucket/a\x00b"),
        *["file:///data/../etc", "file:///data/%2e%2e/etc", "file:///data/jour%00nal", "file://host/data"],
        *["file://localhost/data", "file:/data", "file://data"],
        *["s3://bucket/a/../b", "s3://bucket/a/%2E%2E/b", "s3:///a", "s3://", "http://host/journal"],
    ],
)
def test_a_location_that_may_lead_elsewhere_is_refused(location: str) -> None:
    """Before anything is opened, in one line that shows no control character."""
    with pytest.raises(OptionError, match="journalLocation") as told:
        parse_source_options({"queueUrl": "https://h/1/q.fifo", "journalLocation": location})
    assert str(told.value).isprintable()


def test_a_tilde_inside_a_path_is_a_name_like_any_other(tmp_path: Path) -> None:
    """Nothing is expanded: neither a home, nor a variable, nor a pattern."""
    for name in ("~root", "$HOME", "*", "a b;ls"):
        given = str(tmp_path / name)
        options = parse_source_options({"queueUrl": "https://h/1/q.fifo", "journalLocation": given})
        assert options.journal_location == given
        FileStore(Path(given)).put_if_absent("a/x", b"1")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["~root", "$HOME", "*", "a b;ls"])


def test_nothing_that_is_read_is_ever_run() -> None:
    """No module of the source unpickles, evaluates, or starts anything; Spark alone pickles between its processes."""
    package = Path(sqs_fifo_spark.__file__).parent
    # `interpreter` asks another Python what it has, before any query, and `doctor` starts a Spark, the demo a query of
    # its own; they read nothing of the journal or the queue. `commands` and the package itself import the package's own
    # modules, `credentials` the one that an option names; `init` looks up where the package is installed.
    others = {"__init__.py", "__main__.py", "interpreter.py", "cli/__init__.py", "cli/python_checks.py"}
    others |= {"cli/commands.py", "cli/init.py", "aws/credentials.py", "demo/query.py"}
    modules = [
        path
        for path in package.rglob("*.py")
        if path.relative_to(package).as_posix() not in others and path.parent.name != "local"
    ]
    assert len(modules) > 20
    imported, called = set(), set()
    for path in modules:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported.add((node.module or "").partition(".")[0])
            elif isinstance(node, ast.Call):
                called.add(ast.unparse(node.func))
    assert not imported & {"pickle", "cloudpickle", "marshal", "shelve", "subprocess", "ctypes", "yaml", "importlib"}
    runs = {"eval", "exec", "compile", "__import__", "os.system", "os.popen", "os.execv", "os.path.expanduser"}
    assert not called & runs
