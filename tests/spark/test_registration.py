"""The format is found once the package is installed; `register` helps where it is not, and does no harm elsewhere."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import SparkFiles

from sqs_fifo_spark import MissingPackageError, register, registration
from tests.spark.builds import make_environment
from tests.spark.setups import environment
from tests.spark.support import ROOT, Rig


def test_the_format_is_found_in_an_environment_with_an_editable_install(tmp_path: Path) -> None:
    """The path file that `pip install -e` writes is enough: Spark imports all modules whose names begin so."""
    python = make_environment(tmp_path / "environment")
    (packages,) = tmp_path.glob("environment/lib/*/site-packages")
    packages.joinpath("__editable__.sqs_fifo_spark.pth").write_text(f"{ROOT}\n")
    look = "import pkgutil; print(*(each.name for each in pkgutil.iter_modules() if each.name.startswith('pyspark_')))"
    command = [str(python), "-c", f"{look}; import pyspark_sqsfifo; print(pyspark_sqsfifo.DefaultSource.name())"]
    done = subprocess.run(command, env=environment(), cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["pyspark_sqsfifo", "sqsfifo"], done.stderr[-4000:]


def test_register_is_harmless_where_the_format_is_found(rig: Rig) -> None:
    """It may be called twice, and in each session; the interpreter that is named stays."""
    named = rig.spark.sparkContext.pythonExec
    for session in (rig.spark, rig.spark, rig.spark.newSession()):
        register(session)
        assert len(session.readStream.format("sqsfifo").options(**rig.options()).load().columns) == 12
    assert rig.spark.sparkContext.pythonExec == named == sys.executable


def test_register_leads_the_streaming_runner_to_shipped_files(rig: Rig) -> None:
    """Spark looks for them in a folder that it does not make: there they are now."""
    register(rig.spark)
    shipped = Path(SparkFiles.getRootDirectory())
    assert (shipped / "streaming_job").samefile(shipped)


def test_register_says_in_one_line_which_packages_the_workers_python_lacks(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line names Python, packages and remedy, not "Timed out while waiting for the Python worker"."""
    python = make_environment(tmp_path / "environment", dependencies=False)
    packages = tmp_path / "packages"
    for name in ("sqs_fifo_spark", "boto3", "tenacity"):
        (packages / name).mkdir(parents=True)
        (packages / name / "__init__.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(packages))
    monkeypatch.setattr(rig.spark.sparkContext, "pythonExec", str(python))
    with pytest.raises(ImportError) as raised:
        register(rig.spark)
    said = str(raised.value)
    assert isinstance(raised.value, MissingPackageError)
    assert said.startswith(f"'{python}', with which Spark runs its Python workers, has no pyarrow, obstore: ")
    assert "PYSPARK_PYTHON" in said
    assert "\n" not in said


def test_register_leaves_an_interpreter_that_does_not_run_to_spark(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nothing can be learned, nothing is claimed: Spark says what it could not start."""
    with monkeypatch.context() as patched:
        patched.setattr(rig.spark.sparkContext, "pythonExec", str(tmp_path / "nothing"))
        try:
            register(rig.spark)
        finally:
            patched.undo()
            register(rig.spark)  # a session keeps the interpreter that it was told with the format


@pytest.mark.parametrize(
    ("variable", "setting", "of_jvm", "lacking", "expected"),
    [
        ("named", "set", "jvm", "", "named"),
        ("", "set", "jvm", "python3", "set"),
        ("", "", "jvm", "python3", "jvm"),
        ("", "", "", "", "python3"),
        ("", "", "", "python3", sys.executable),
        ("python3", "", "", "python3", sys.executable),
    ],
)
def test_interpreter_is_chosen_only_where_nothing_that_works_is_named(
    monkeypatch: pytest.MonkeyPatch, variable: str, setting: str, of_jvm: str, lacking: str, expected: str
) -> None:
    """PYSPARK_PYTHON rules, then the setting, then spark-env.sh, then python3, and the driver's own is the last."""
    if variable:
        monkeypatch.setenv("PYSPARK_PYTHON", variable)
    else:
        monkeypatch.delenv("PYSPARK_PYTHON")
    conf = {"spark.pyspark.python": setting} if setting else {}
    context: Any = SimpleNamespace(getConf=lambda: conf, pythonExec=variable or "python3")
    monkeypatch.setattr(registration, "_environment_of_jvm", lambda context, name: of_jvm or None)
    monkeypatch.setattr(
        registration, "_missing_packages", lambda context, python: ["pyarrow"] if python == lacking else []
    )
    registration._choose_python(context)
    assert context.pythonExec == expected


def test_interpreter_of_another_version_lacks_that_version(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's workers run the driver's version of Python or not at all."""
    monkeypatch.setattr(rig.spark.sparkContext, "pythonVer", "3.9")
    assert registration._missing_packages(rig.spark.sparkContext, sys.executable) == ["Python 3.9"]


def test_variable_of_the_jvms_environment_is_read(rig: Rig) -> None:
    """There stands what only conf/spark-env.sh names."""
    assert registration._environment_of_jvm(rig.spark.sparkContext, "PYSPARK_PYTHON") == sys.executable
    assert registration._environment_of_jvm(rig.spark.sparkContext, "NO_SUCH_VARIABLE") is None
