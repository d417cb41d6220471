"""The package is installed in an environment of its own: what each way of naming the interpreter needs.

`python3` on the PATH is one without anything, so only what is named can work.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.spark.builds import imports, make_environment, make_wheel
from tests.spark.setups import SUBMIT, environment, move, settings
from tests.spark.support import ROOT

pytestmark = pytest.mark.long

COUNT, GROUPS = 20, 4
EXAMPLE = ROOT / "conf" / "spark-defaults.conf.example"
PLACE = "/opt/sqs-fifo-spark"
"""Where the example of the settings takes the environment to be."""


@dataclass(frozen=True)
class Machine:
    """A machine with the package in one environment, and a `python3` that has nothing."""

    home: Path
    python: Path
    path: str
    """The PATH."""


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    home = tmp_path_factory.mktemp("machine")
    python = make_environment(home / "environment", wheel=make_wheel(home))
    bare = make_environment(home / "bare", dependencies=False)
    assert imports(python, "pyspark_sqsfifo") == {"pyspark_sqsfifo": True}
    assert imports(bare, "sqs_fifo_spark", "pyspark") == {"sqs_fifo_spark": False, "pyspark": False}
    return Machine(home, python, f"{bare.parent}:{environment()['PATH']}")


def moves(
    machine: Machine, home: Path, found: str, command: object, text: str = "", names: Mapping[str, object] | None = None
) -> None:
    """Run the application, started by `command`, with the settings `text`: it moves messages from queue to queue."""
    variables = environment(PATH=machine.path, SPARK_CONF_DIR=settings(home, text), **(names or {}))
    move([command], home, found, variables, count=COUNT, groups=GROUPS)


def test_the_drivers_variable_names_the_interpreter_and_nothing_is_registered(machine: Machine, tmp_path: Path) -> None:
    """Spark looks the format up, and runs source and sink, with the interpreter that PYSPARK_DRIVER_PYTHON names.

    Functions of the application's own run with `python3` all the same. `test_ways_to_install` names PYSPARK_PYTHON.
    """
    names = {"PYSPARK_DRIVER_PYTHON": machine.python, "WITHOUT_UDF": "1"}
    moves(machine, tmp_path, "plain", SUBMIT, names=names)


def test_the_settings_of_the_example_need_register(machine: Machine, tmp_path: Path) -> None:
    """`conf/spark-defaults.conf.example` as it stands, but for the place of the environment."""
    text = EXAMPLE.read_text(encoding="utf-8")
    assert text.count(f" {PLACE}/bin/python\n") == 2
    moves(machine, tmp_path, "registered", SUBMIT, text.replace(PLACE, str(machine.python.parents[1])))


def test_the_lines_of_spark_env_in_the_example_need_nothing(machine: Machine, tmp_path: Path) -> None:
    """The line that the example has for `conf/spark-env.sh` makes the format known without `register`."""
    (line,) = (line for line in EXAMPLE.read_text(encoding="utf-8").splitlines() if "export PYSPARK_PYTHON=" in line)
    assert line == f"#     export PYSPARK_PYTHON={PLACE}/bin/python"
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-env.sh").write_text(line.lstrip("# ").replace(PLACE, str(machine.python.parents[1])))
    moves(machine, tmp_path, "plain", SUBMIT)


def test_an_application_that_its_own_interpreter_starts_needs_register(machine: Machine, tmp_path: Path) -> None:
    """`venv/bin/python app.py`, nothing in the environment, and no setting."""
    moves(machine, tmp_path, "registered", machine.python)


def test_a_driver_python_that_is_a_wrapper_needs_register(machine: Machine, tmp_path: Path) -> None:
    """As with Jupyter: what PYSPARK_DRIVER_PYTHON names runs no modules, so Spark cannot look anything up with it.

    The launcher `pyspark` names `python3` where its user names nothing.
    """
    jupyter = tmp_path / "jupyter"
    jupyter.write_text("#!/bin/sh\nexit 2\n")
    jupyter.chmod(0o755)
    names = {"PYSPARK_DRIVER_PYTHON": jupyter, "PYSPARK_PYTHON": "python3"}
    moves(machine, tmp_path, "registered", machine.python, names=names)
