"""`format("sqsfifo")` works once the package is installed, without a line of registration."""

from __future__ import annotations

import os
import site
import subprocess
import sys
import venv
from pathlib import Path

from tests.spark.support import ROOT, Rig


def test_the_format_is_found_without_registration(rig: Rig) -> None:
    """Also for a session that has never heard of it."""
    columns = rig.spark.newSession().readStream.format("sqsfifo").options(**rig.options()).load().columns
    assert columns[:4] == ["messageId", "body", "messageGroupId", "messageDeduplicationId"]


def test_the_format_is_found_in_an_environment_with_an_editable_install(rig: Rig, tmp_path: Path) -> None:
    """An environment whose only link to the package is the path file that `pip install -e` writes."""
    environment = tmp_path / "environment"
    venv.create(environment, with_pip=False, symlinks=True)
    python = environment / "bin" / "python"
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = environment / "lib" / version / "site-packages"
    packages.joinpath("__editable__.sqs_fifo_spark.pth").write_text(f"{ROOT}\n")
    packages.joinpath("dependencies.pth").write_text("\n".join(site.getsitepackages()) + "\n")
    script = (
        "from pyspark.sql import SparkSession\n"
        "spark = (SparkSession.builder.master('local[1]').config('spark.ui.enabled', 'false')"
        ".config('spark.driver.host', '127.0.0.1').config('spark.driver.bindAddress', '127.0.0.1').getOrCreate())\n"
        f"frame = spark.readStream.format('sqsfifo').options(**{rig.options()!r}).load()\n"
        "print('columns', len(frame.columns))\n"
    )
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(python), "-c", script],
        env={**inherited, "PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": str(python)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "columns 12" in done.stdout, done.stderr[-4000:]
