"""`init`: writes a small project that reads a queue, with the package itself as a wheel."""

from __future__ import annotations

import base64
import hashlib
import shutil
import zipfile
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import click

import sqs_fifo_spark
from sqs_fifo_spark.cli.output import print_line

_HOME = Path(sqs_fifo_spark.__file__).parent
_TEMPLATE = _HOME / "project"
_EXTRAS = "spark,local,prometheus"


@click.command(short_help="Write a small project to begin with.")
@click.argument("directory", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
def init(directory: Path) -> None:
    """Write a small project into DIR, which must be new or empty.

    It has a query from a local queue to Parquet, a test of it, and a Compose file with Prometheus and Grafana. Its
    README.md says how to run them.
    """
    try:
        told = distribution("sqs-fifo-spark")
        if directory.exists() and any(directory.iterdir()):
            raise click.UsageError(f"'{directory}' is not empty, and was left as it is. Name a new directory.")
        wheels = directory / "wheels"
        wheels.mkdir(parents=True)
        wheel = _write_wheel(told, wheels)
        shutil.copytree(_TEMPLATE, directory, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
        (directory / "requirements.txt").write_text(f"./wheels/{wheel}[{_EXTRAS}]\n", encoding="utf-8")
    except PackageNotFoundError:
        raise click.ClickException("'init' needs this package to be installed: pip install '.[cli]'.") from None
    except OSError as error:
        raise click.ClickException(f"cannot write '{directory}': {error.strerror or error}.") from None
    print_line(f"a project is in '{directory}'; its README.md says how to run it")


def _write_wheel(told: Distribution, folder: Path) -> str:
    """Write this package as a wheel into `folder`, and return its name.

    It is on no index of packages, and an image does not see the place from which it was installed.
    """
    name = f"sqs_fifo_spark-{told.version}"
    info = f"{name}.dist-info"
    sources = [_HOME.with_name("pyspark_sqsfifo.py"), *sorted(_HOME.rglob("*"))]
    files = {
        path.relative_to(_HOME.parent).as_posix(): path.read_bytes()
        for path in sources
        if path.is_file() and "__pycache__" not in path.parts
    }
    # In an editable installation's folder, METADATA is called PKG-INFO, and there is neither WHEEL nor licence.
    texts = {"METADATA": told.read_text("METADATA") or told.read_text("PKG-INFO")}
    texts |= {file: told.read_text(file) for file in ("entry_points.txt", "licenses/LICENSE")}
    texts["WHEEL"] = "Wheel-Version: 1.0\nGenerator: sqs-fifo-spark\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files |= {f"{info}/{file}": text.encode() for file, text in texts.items() if text}
    record = [f"{path},sha256={_digest(content)},{len(content)}" for path, content in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,", ""]).encode()
    with zipfile.ZipFile(folder / f"{name}-py3-none-any.whl", "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in files.items():
            archive.writestr(path, content)
    return f"{name}-py3-none-any.whl"


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
