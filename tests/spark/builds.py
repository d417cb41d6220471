"""Builds for users: a wheel, a jar in a Maven repository, and environments with and without the package."""

from __future__ import annotations

import shutil
import site
import subprocess
import sys
import tarfile
import venv
from dataclasses import dataclass
from importlib.metadata import Distribution, PathDistribution, distribution
from pathlib import Path

from packaging.requirements import Requirement

from sqs_fifo_spark import __version__
from tests.spark.setups import environment
from tests.spark.support import ROOT

COORDINATES = f"sqs-fifo-spark:sqs-fifo-spark:{__version__}"

_SITE = Path("lib", f"python{sys.version_info.major}.{sys.version_info.minor}", "site-packages")


def make_wheel(home: Path) -> Path:
    """Make a source distribution of this checkout, and the wheel from that; return the wheel."""
    sources = home / "sources"
    built = ("build", "dist", "artifacts", "*.egg-info", "__pycache__", ".*", "tests")
    shutil.copytree(ROOT, sources, ignore=shutil.ignore_patterns(*built))
    archive = home / _build("sdist", sources, home)
    with tarfile.open(archive) as packed:
        packed.extractall(home, filter="data")
    return home / _build("wheel", home / archive.name.removesuffix(".tar.gz"), home)


def _build(kind: str, sources: Path, into: Path) -> str:
    """Do what `pip` and `build` do, without an environment for it; return the name of the file."""
    code = "import sys; from setuptools import build_meta as b; print(getattr(b, 'build_' + sys.argv[1])(sys.argv[2]))"
    command = [sys.executable, "-c", code, kind, str(into)]
    done = subprocess.run(command, cwd=sources, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout.splitlines()[-1]


def make_environment(home: Path, *, dependencies: bool = True, wheel: Path | None = None) -> Path:
    """Make an environment with what this package depends on, or bare; with the package from `wheel`, or without.

    Return its interpreter.
    """
    venv.create(home, with_pip=False, symlinks=True)
    if dependencies:
        # Path files in the folders that are named here are not read, so a link to a checkout does not count.
        (home / _SITE / "dependencies.pth").write_text("\n".join(site.getsitepackages()) + "\n")
    if wheel is not None:
        _pip_install(home, wheel)
    return home / "bin" / "python"


def make_archive(home: Path, wheel: Path) -> Path:
    """Pack an environment with the package and all that it needs but PySpark, as `venv-pack` does; return the archive.

    The packages are those of the tests' environment, as many as the wheel asks for.
    """
    made = home / "packed"
    venv.create(made, with_pip=False, symlinks=True)
    _pip_install(made, wheel)
    package = PathDistribution(next((made / _SITE).glob("sqs_fifo_spark-*.dist-info")))
    for needed in _needed_by(package):
        for file in needed.files or ():
            if ".." not in file.parts:  # a script in `bin`
                (made / _SITE / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(str(needed.locate_file(file)), made / _SITE / file)
    archive = home / "env.tar.gz"  # Spark cannot unpack the links in a mere .tar
    options = ["--quiet", "--compress-level", "0", "--prefix", str(made), "--output", str(archive)]
    done = subprocess.run([sys.executable, "-m", "venv_pack", *options], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    return archive


def _pip_install(home: Path, wheel: Path) -> None:
    options = ["--quiet", "--no-deps", "--no-index", "--ignore-installed", "--prefix", str(home)]
    command = [sys.executable, "-m", "pip", "install", *options, str(wheel)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]


def _needed_by(package: Distribution) -> list[Distribution]:
    """Return the distributions that `package` requires, and those that they require, and so on."""
    found: dict[str, Distribution] = {}
    waiting = [package]
    while waiting:
        for text in waiting.pop().requires or ():
            requirement = Requirement(text)
            wanted = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
            if wanted and requirement.name not in found:
                found[requirement.name] = distribution(requirement.name)
                waiting.append(found[requirement.name])
    return list(found.values())


def imports(python: Path, *modules: str) -> dict[str, bool]:
    """Return which of `modules` the interpreter can import, where Spark would start it."""
    outcome = {}
    for module in modules:
        command = [str(python), "-c", f"import {module}"]
        done = subprocess.run(command, capture_output=True, env=environment(), cwd=python.parent)
        outcome[module] = done.returncode == 0
    return outcome


@dataclass(frozen=True)
class Repository:
    """A Maven repository in a folder, with the jar of this checkout."""

    home: Path
    jar: Path

    @property
    def options(self) -> list[str]:
        """Options for `spark-submit`."""
        return ["--packages", COORDINATES, "--repositories", self.home.as_uri()]


def make_repository(home: Path) -> Repository:
    """Make the jar as `make jar` does."""
    subprocess.run([sys.executable, str(ROOT / ".ci" / "jar.py"), str(home)], check=True, capture_output=True)
    return Repository(home, next(home.rglob("*.jar")))
