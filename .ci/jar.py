"""Make the jar for `spark-submit --packages`, and its POM, in the layout of a Maven repository.

`python .ci/jar.py [DIRECTORY]` prints the options of spark-submit, and where the jar is. The same sources give the
same bytes.
"""

from __future__ import annotations

import re
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "sqs_fifo_spark"
GROUP, ARTIFACT = "sqs-fifo-spark", "sqs-fifo-spark"
EPOCH = (1980, 1, 1, 0, 0, 0)
"""The earliest time that a zip file can tell."""

# No dependencies: what the package needs is installed with pip, because it does not load from a jar.
POM = """\
<?xml version="1.0" encoding="UTF-8"?>
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>{group}</groupId>
  <artifactId>{artifact}</artifactId>
  <version>{version}</version>
  <packaging>jar</packaging>
  <name>sqs-fifo-spark</name>
  <description>A Spark Structured Streaming source and sink for Amazon SQS FIFO queues, in Python</description>
  <licenses>
    <license>
      <name>Apache-2.0</name>
      <url>https://www.apache.org/licenses/LICENSE-2.0</url>
    </license>
  </licenses>
</project>
"""


def version() -> str:
    """Return the package's version, as `setup.py` reads it."""
    text = (ROOT / PACKAGE / "__init__.py").read_text(encoding="utf-8")
    found = re.search(r'^__version__ = "(.+)"$', text, re.MULTILINE)
    assert found is not None
    return found[1]


def contents() -> Iterator[tuple[str, Path]]:
    """Yield each file of the jar, by its name there: what `setup.py` installs, and the licence."""
    yield "META-INF/LICENSE", ROOT / "LICENSE"
    yield "pyspark_sqsfifo.py", ROOT / "pyspark_sqsfifo.py"
    for path in sorted((ROOT / PACKAGE).rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            yield path.relative_to(ROOT).as_posix(), path


def make(repository: Path) -> Path:
    """Write jar and POM into the Maven repository at `repository`, and return the jar's path."""
    folder = repository.joinpath(*GROUP.split("."), ARTIFACT, version())
    folder.mkdir(parents=True, exist_ok=True)
    jar = folder / f"{ARTIFACT}-{version()}.jar"
    # Not compressed: the bytes would hang on the machine's zlib.
    with zipfile.ZipFile(jar, "w", zipfile.ZIP_STORED) as archive:
        for name, path in contents():
            entry = zipfile.ZipInfo(name, EPOCH)
            entry.external_attr = 0o644 << 16
            entry.create_system = 3  # Unix, on whatever machine
            archive.writestr(entry, path.read_bytes())
    pom = POM.format(group=GROUP, artifact=ARTIFACT, version=version())
    jar.with_suffix(".pom").write_text(pom, encoding="utf-8", newline="\n")
    return jar


def main(arguments: list[str]) -> int:
    repository = Path(arguments[0]).absolute() if arguments else ROOT / "dist" / "maven"
    jar = make(repository)
    print(f"--repositories {repository.as_uri()} --packages {GROUP}:{ARTIFACT}:{version()}")
    print(jar)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
