"""`make jar`: a Maven repository with all that pip would install, and nothing else, the same bytes each time."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path
from xml.etree import ElementTree

import pytest

from sqs_fifo_spark import __version__

ROOT = Path(__file__).resolve().parents[2]
NAME = f"sqs-fifo-spark-{__version__}"


def make(repository: Path) -> Path:
    """Make the jar, and return the folder that has it."""
    command = [sys.executable, str(ROOT / ".ci" / "jar.py"), str(repository)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert f"--packages sqs-fifo-spark:sqs-fifo-spark:{__version__}" in done.stdout
    return repository / "sqs-fifo-spark" / "sqs-fifo-spark" / __version__


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("repository"))


def test_repository_has_jar_and_pom_of_the_packages_version(folder: Path) -> None:
    """The version is the package's own, in path and names."""
    assert sorted(path.name for path in folder.iterdir()) == [f"{NAME}.jar", f"{NAME}.pom"]


def test_jar_holds_what_is_installed_and_nothing_else(folder: Path) -> None:
    """Both names stand at its root; sources, types and documents are there; no compiled file is."""
    with zipfile.ZipFile(folder / f"{NAME}.jar") as jar:
        names = jar.namelist()
    sources = [path.relative_to(ROOT).as_posix() for path in (ROOT / "sqs_fifo_spark").rglob("*.py")]
    data = [
        "sqs_fifo_spark/py.typed",
        *(f"sqs_fifo_spark/docs/{path.name}" for path in (ROOT / "sqs_fifo_spark/docs").glob("*.md")),
    ]
    assert sorted(names) == sorted(["META-INF/LICENSE", "pyspark_sqsfifo.py", *sources, *data])


def test_package_imports_from_the_jar(folder: Path, tmp_path: Path) -> None:
    """Python takes it from the jar when that is first on its path."""
    script = "import sqs_fifo_spark, pyspark_sqsfifo as p; print(sqs_fifo_spark.__file__, p.DefaultSource.name())"
    jar = folder / f"{NAME}.jar"
    environment = {**os.environ, "PYTHONPATH": str(jar)}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [f"{jar}/sqs_fifo_spark/__init__.py", "sqsfifo"]


def test_jar_is_the_same_bytes_each_time(folder: Path, tmp_path: Path) -> None:
    """Neither the time nor the place is in it."""
    assert (make(tmp_path) / f"{NAME}.jar").read_bytes() == (folder / f"{NAME}.jar").read_bytes()


def test_pom_names_the_jar_and_no_dependencies(folder: Path) -> None:
    """Spark resolves nothing else: what the package needs is installed with pip."""
    project = ElementTree.parse(folder / f"{NAME}.pom").getroot()
    found = {element.tag.rpartition("}")[2]: (element.text or "").strip() for element in project}
    coordinates = {key: found[key] for key in ("groupId", "artifactId", "version", "packaging")}
    assert coordinates == {
        "groupId": "sqs-fifo-spark",
        "artifactId": "sqs-fifo-spark",
        "version": __version__,
        "packaging": "jar",
    }
    assert "dependencies" not in found
