"""Each way of installing: source and sink move messages, in local mode or on a standalone cluster.

Driver, workers and servers see nothing but what that way gives them: `python3` on their PATH is a bare one.
"""

from __future__ import annotations

import shutil
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.spark.builds import imports, make_archive, make_environment, make_repository, make_wheel
from tests.spark.setups import SUBMIT, cluster, connect_server, environment, move, settings
from tests.spark.support import ROOT

pytestmark = pytest.mark.long

COUNT, GROUPS = 100, 10
EXAMPLE = ROOT / "conf" / "spark-defaults.conf.example"
PLACE = "/opt/sqs-fifo-spark"
"""Where the example of the settings takes the environment to be."""

on_this_machine = pytest.mark.parametrize("place", ["local"], indirect=True)
on_a_cluster = pytest.mark.parametrize("place", ["standalone"], indirect=True)
on_either = pytest.mark.parametrize("place", ["local", "standalone"], indirect=True)


@dataclass(frozen=True)
class Machine:
    """The state of this machine before Spark starts."""

    home: Path
    wheel: Path
    python: Path
    """The interpreter of an environment into which pip has installed the wheel."""
    dependencies: Path
    """That of an environment with all that the package needs, and not the package."""
    path: str
    """The PATH, with a bare `python3`."""


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    home = tmp_path_factory.mktemp("machine")
    wheel = make_wheel(home)
    python = make_environment(home / "environment", wheel=wheel)
    dependencies = make_environment(home / "dependencies")
    bare = make_environment(home / "bare", dependencies=False)
    needed = dict.fromkeys(("pyspark", "pyarrow", "boto3", "obstore", "tenacity"), True)
    absent = {"sqs_fifo_spark": False, "pyspark_sqsfifo": False}
    assert imports(dependencies, *needed, *absent) == {**needed, **absent}
    assert imports(bare, "pyspark", "sqs_fifo_spark") == {"pyspark": False, "sqs_fifo_spark": False}
    yield Machine(home, wheel, python, dependencies, f"{bare.parent}:{environment()['PATH']}")
    shutil.rmtree(home)  # hundreds of MiB


@pytest.fixture(scope="module")
def standalone(machine: Machine) -> Iterator[str]:
    """The URL of a standalone cluster."""
    with cluster(machine.home / "cluster", machine.path) as url:
        yield url


@dataclass(frozen=True)
class Place:
    """Where an application runs, and the folder from which it is started."""

    home: Path
    conf: Path
    path: str
    shipped: Path
    """Where Spark puts, for a worker, the files that come with the application."""

    def moves(self, *command: object, found: str, remote: str | None = None, **names: object) -> Path:
        """Run the application there with the variables `names`; see `move`."""
        variables = environment(PATH=self.path, SPARK_CONF_DIR=self.conf, **names)
        return move(command, self.home, found, variables, count=COUNT, groups=GROUPS, remote=remote)


def here(machine: Machine, home: Path, text: str = "") -> Place:
    """Return the place for an application on this machine, with these settings of Spark."""
    return Place(home, settings(home, text), machine.path, home / "local")


def make_wrapper(home: Path) -> Path:
    """Make an interpreter, such as Jupyter, that runs no modules, so that Spark cannot look anything up with it."""
    wrapper = home / "jupyter"
    wrapper.write_text("#!/bin/sh\nexit 2\n")
    wrapper.chmod(0o755)
    return wrapper


@pytest.fixture
def place(request: pytest.FixtureRequest, machine: Machine, tmp_path: Path) -> Place:
    if request.param == "local":
        return here(machine, tmp_path)
    conf = settings(tmp_path, master=request.getfixturevalue("standalone"))
    return Place(tmp_path, conf, machine.path, machine.home / "cluster" / "work")


@on_this_machine
def test_pip(machine: Machine, place: Place) -> None:
    """The wheel, made from the source distribution, in an environment that PYSPARK_PYTHON names; nothing else."""
    origin = place.moves(SUBMIT, found="plain", PYSPARK_PYTHON=machine.python)
    assert origin.is_relative_to(machine.python.parents[1])


@on_either
def test_packages(machine: Machine, place: Place) -> None:
    """The jar from a Maven repository, and `register`: a worker imports the copy that the driver gave it."""
    options = make_repository(place.home / "repository").options
    origin = place.moves(SUBMIT, *options, found="registered", PYSPARK_PYTHON=machine.dependencies)
    assert origin.is_relative_to(place.shipped)
    assert origin.parts[-3].endswith(".jar")


@on_a_cluster
def test_py_files(machine: Machine, place: Place) -> None:
    """The wheel, renamed to what Spark takes for a package, and `register`."""
    shipped = place.home / "sqs_fifo_spark.zip"
    shutil.copyfile(machine.wheel, shipped)
    origin = place.moves(SUBMIT, "--py-files", shipped, found="registered", PYSPARK_PYTHON=machine.dependencies)
    assert origin.is_relative_to(place.shipped)
    assert origin.parts[-3] == shipped.name


@pytest.fixture(scope="module")
def archive(machine: Machine) -> Path:
    """An archive of `venv-pack`, unpacked beside itself, too."""
    made = make_archive(machine.home, machine.wheel)
    with tarfile.open(made) as packed:
        packed.extractall(machine.home / "unpacked")
    return made


@on_a_cluster
def test_archive(archive: Path, place: Place) -> None:
    """An environment that Spark carries to the workers; the driver finds it unpacked where it is started."""
    (place.home / "env").symlink_to(archive.with_name("unpacked"))
    origin = place.moves(SUBMIT, "--archives", f"{archive}#env", found="plain", PYSPARK_PYTHON="./env/bin/python")
    assert "env" in origin.parts
    assert origin.is_relative_to(place.shipped)


@on_this_machine
def test_connect(machine: Machine, place: Place) -> None:
    """A server that the package is installed for, and a client that only names the format."""
    server = place.home / "server"
    server.mkdir()
    with connect_server(server, place.conf, PATH=place.path, PYSPARK_PYTHON=machine.python) as remote:
        origin = place.moves(machine.python, found="plain", remote=remote)
    assert origin.is_relative_to(machine.python.parents[1])


@on_this_machine
def test_connect_where_the_client_registers(machine: Machine, place: Place) -> None:
    """The server's PYSPARK_DRIVER_PYTHON is a wrapper, so that it cannot look the format up."""
    server = place.home / "server"
    server.mkdir()
    names = {"PYSPARK_DRIVER_PYTHON": make_wrapper(place.home), "PYSPARK_PYTHON": machine.python}
    with connect_server(server, place.conf, PATH=place.path, **names) as remote:
        place.moves(machine.python, found="registered", remote=remote)


@on_this_machine
def test_connect_within_the_client(machine: Machine, place: Place) -> None:
    """`remote("local[2]")` starts a server that inherits the client's environment."""
    place.moves(machine.python, found="plain", remote="local[2]", PYSPARK_PYTHON=machine.python)


# The interpreter, and who names it


@on_this_machine
def test_the_drivers_variable_names_the_interpreter_and_nothing_is_registered(machine: Machine, place: Place) -> None:
    """Spark looks the format up, and runs source and sink, with the interpreter that PYSPARK_DRIVER_PYTHON names.

    Functions of the application's own run with `python3` all the same. `test_pip` names PYSPARK_PYTHON.
    """
    place.moves(SUBMIT, found="plain", PYSPARK_DRIVER_PYTHON=machine.python, WITHOUT_UDF=1)


def test_the_settings_of_the_example_need_register(machine: Machine, tmp_path: Path) -> None:
    """`conf/spark-defaults.conf.example` as it stands, but for the place of the environment."""
    text = EXAMPLE.read_text(encoding="utf-8")
    assert text.count(f" {PLACE}/bin/python\n") == 2
    here(machine, tmp_path, text.replace(PLACE, str(machine.python.parents[1]))).moves(SUBMIT, found="registered")


@on_this_machine
def test_the_lines_of_spark_env_in_the_example_need_nothing(machine: Machine, place: Place) -> None:
    """The line that the example has for `conf/spark-env.sh` makes the format known without `register`."""
    (line,) = (line for line in EXAMPLE.read_text(encoding="utf-8").splitlines() if "export PYSPARK_PYTHON=" in line)
    assert line == f"#     export PYSPARK_PYTHON={PLACE}/bin/python"
    (place.conf / "spark-env.sh").write_text(line.lstrip("# ").replace(PLACE, str(machine.python.parents[1])))
    place.moves(SUBMIT, found="plain")


@on_this_machine
def test_an_application_that_its_own_interpreter_starts_needs_register(machine: Machine, place: Place) -> None:
    """`venv/bin/python app.py`, nothing in the environment, and no setting."""
    place.moves(machine.python, found="registered")


@on_this_machine
def test_a_driver_python_that_is_a_wrapper_needs_register(machine: Machine, place: Place) -> None:
    """The launcher `pyspark` names `python3` where its user names nothing."""
    wrapper = make_wrapper(place.home)
    place.moves(machine.python, found="registered", PYSPARK_DRIVER_PYTHON=wrapper, PYSPARK_PYTHON="python3")
