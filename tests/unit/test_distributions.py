"""The distributions: `make jar`'s Maven repository, the source distribution, and the wheel built from it."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from email import message_from_string
from email.message import Message
from pathlib import Path
from xml.etree import ElementTree

import pytest

from sqs_fifo_spark import __version__
from tests.spark.builds import make_wheel

ROOT = Path(__file__).resolve().parents[2]
TREE = ROOT / "sqs_fifo_spark"
FILES = [path for path in TREE.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
SOURCES = [ROOT / "pyspark_sqsfifo.py", *FILES]
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


def test_jar_holds_what_is_installed_and_nothing_else(folder: Path) -> None:
    """Both names stand at its root; sources, types and documents are there; no compiled file is."""
    with zipfile.ZipFile(folder / f"{NAME}.jar") as jar:
        names = jar.namelist()
    assert sorted(names) == sorted(["META-INF/LICENSE", *(path.relative_to(ROOT).as_posix() for path in SOURCES)])


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


# Source distribution and wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel; beside it lies the source distribution from which it was made."""
    return make_wheel(tmp_path_factory.mktemp("distributions"))


@pytest.mark.slow
def test_wheel_from_the_source_distribution_holds_the_tree(wheel: Path) -> None:
    """Every module, `py.typed`, the documents and the project, byte for byte, and nothing else."""
    with zipfile.ZipFile(wheel) as archive:
        held = {name: archive.read(name) for name in archive.namelist() if ".dist-info/" not in name}
    assert held == {path.relative_to(ROOT).as_posix(): path.read_bytes() for path in SOURCES}


def dist_info(wheel: Path, name: str) -> bytes:
    with zipfile.ZipFile(wheel) as archive:
        return archive.read(f"sqs_fifo_spark-{__version__}.dist-info/{name}")


def metadata(wheel: Path) -> Message:
    return message_from_string(dist_info(wheel, "METADATA").decode())


def test_wheel_tells_what_it_is(wheel: Path) -> None:
    """Its metadata have version, licence, README and the Python that it needs."""
    told, licence = metadata(wheel), dist_info(wheel, "licenses/LICENSE")
    assert (told["Name"], told["Version"], told["Requires-Python"]) == ("sqs-fifo-spark", __version__, ">=3.10")
    assert licence == (ROOT / "LICENSE").read_bytes()
    headings = [line for line in (ROOT / "README.md").read_text(encoding="utf-8").splitlines() if line.startswith("#")]
    assert [line for line in str(told.get_payload()).splitlines() if line.startswith("#")] == headings


def test_the_extra_demo_brings_the_local_queue_and_spark(wheel: Path) -> None:
    """The extra for `make demo`."""
    told = metadata(wheel)
    wanted: dict[str, set[str]] = {"demo": set(), "local": set(), "spark": set()}
    for required in told.get_all("Requires-Dist", []):
        package, _, extra = required.partition("; extra == ")
        if (name := extra.strip("\"'")) in wanted:
            wanted[name].add(package)
    assert wanted["demo"] == wanted["local"] | wanted["spark"] != set()


def test_source_distribution_has_what_the_readme_speaks_of(wheel: Path) -> None:
    """The examples in `conf`, too, and the licence."""
    folder = f"sqs_fifo_spark-{__version__}"
    with tarfile.open(wheel.with_name(f"{folder}.tar.gz")) as archive:
        names = {name.removeprefix(f"{folder}/") for name in archive.getnames()}
    conf = [path for path in (ROOT / "conf").rglob("*") if path.is_file() and "dist" not in path.parts]
    wanted = {"README.md", "LICENSE", "setup.py", "pyproject.toml", *(p.relative_to(ROOT).as_posix() for p in conf)}
    assert wanted <= names
