"""The source distribution is enough to build the wheel, and the wheel is what the tree is."""

from __future__ import annotations

import tarfile
import zipfile
from email import message_from_string
from pathlib import Path

import pytest

from sqs_fifo_spark import __version__
from tests.spark.builds import make_wheel

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel; beside it lies the source distribution from which it was made."""
    return make_wheel(tmp_path_factory.mktemp("distributions"))


def test_wheel_from_the_source_distribution_holds_the_tree(wheel: Path) -> None:
    """Every module, `py.typed` and the documents, byte for byte, and nothing else."""
    tree = ROOT / "sqs_fifo_spark"
    data = [tree / "py.typed", *(tree / "docs").glob("*.md")]
    files = [ROOT / "pyspark_sqsfifo.py", *tree.rglob("*.py"), *data]
    with zipfile.ZipFile(wheel) as archive:
        held = {name: archive.read(name) for name in archive.namelist() if ".dist-info/" not in name}
    assert held == {path.relative_to(ROOT).as_posix(): path.read_bytes() for path in files}


def test_wheel_tells_what_it_is(wheel: Path) -> None:
    """Its metadata have version, licence, README and the Python that it needs."""
    folder = f"sqs_fifo_spark-{__version__}.dist-info"
    with zipfile.ZipFile(wheel) as archive:
        told = message_from_string(archive.read(f"{folder}/METADATA").decode())
        licence = archive.read(f"{folder}/licenses/LICENSE")
    assert (told["Name"], told["Version"], told["Requires-Python"]) == ("sqs-fifo-spark", __version__, ">=3.10")
    assert licence == (ROOT / "LICENSE").read_bytes()
    headings = [line for line in (ROOT / "README.md").read_text(encoding="utf-8").splitlines() if line.startswith("#")]
    assert [line for line in str(told.get_payload()).splitlines() if line.startswith("#")] == headings


def test_the_extra_demo_brings_the_local_queue_and_spark(wheel: Path) -> None:
    """What `make demo` installs."""
    with zipfile.ZipFile(wheel) as archive:
        told = message_from_string(archive.read(f"sqs_fifo_spark-{__version__}.dist-info/METADATA").decode())
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
