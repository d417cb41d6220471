"""`init`: a project in a new or empty folder. `tests/spark/test_init.py` runs it."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from sqs_fifo_spark.cli.commands import commands
from sqs_fifo_spark.cli.output import Status
from tests.unit.cli.conftest import error_of, output_of


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project, in a folder that was not there."""
    folder = tmp_path_factory.mktemp("home") / "new" / "bids"
    output_of(CliRunner().invoke(commands, ["init", str(folder)]))
    return folder


@pytest.mark.parametrize("name", ["", "file"])
def test_what_is_there_is_left_as_it_is(tmp_path: Path, name: str) -> None:
    """A folder that is not empty, and a file in its place, are refused with one line."""
    (tmp_path / "file").write_text("mine")
    error_of(CliRunner().invoke(commands, ["init", str(tmp_path / name)]), Status.USAGE)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_folder_that_cannot_be_written_is_one_line() -> None:
    result = CliRunner().invoke(commands, ["init", "/proc/nowhere"])
    assert "cannot write '/proc/nowhere'" in error_of(result, Status.REFUSED)


def test_the_project_is_whole(project: Path) -> None:
    """It has each file that its README, its image and its own requirements name."""
    (wheel,) = project.joinpath("wheels").iterdir()
    assert project.joinpath("requirements.txt").read_text().startswith(f"./wheels/{wheel.name}[")
    copied = re.findall(r"^COPY (\S+)", project.joinpath("Dockerfile").read_text(), re.MULTILINE)
    named = re.findall(r"[\w./]+\.(?:py|txt|jsonl)", project.joinpath("README.md").read_text())
    assert {"app.py", "requirements.txt", "bids.jsonl"} <= set(named)
    assert [name for name in [*copied, *named] if not project.joinpath(name).exists()] == []


def read(project: Path, file: str) -> Any:
    return yaml.safe_load(project.joinpath(file).read_text(encoding="utf-8"))


def test_compose_file_fits_the_files_that_it_mounts(project: Path) -> None:
    """Paths, ports and names agree; no port is open to other machines."""
    services = read(project, "compose.yaml")["services"]
    mounts = {}
    for service in services.values():
        assert ("build" in service) != ("image" in service)
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))
        assert set(service.get("depends_on", {})) <= services.keys()
        for mount in service.get("volumes", []):
            source, target, *_ = mount.split(":")
            mounts[target] = source
            assert source == "data" or project.joinpath(source).is_file()
    (scraped,) = read(project, mounts["/etc/prometheus/prometheus.yml"])["scrape_configs"]
    (target,) = scraped["static_configs"][0]["targets"]
    assert target == "app:9108"
    assert "start_http_server(9108)" in project.joinpath("app.py").read_text()
    (source,) = read(project, "monitoring/grafana-datasource.yaml")["datasources"]
    assert source["url"] == "http://prometheus:9090"
    (provider,) = read(project, "monitoring/grafana-dashboards.yaml")["providers"]
    assert f"{provider['options']['path']}/sqs-fifo-spark.json" in mounts


@pytest.mark.skipif(
    shutil.which("docker-compose") is None, reason="docker-compose is missing, which needs no engine here"
)
def test_compose_file_is_valid(project: Path) -> None:
    """By Compose's own schema; no container is started."""
    command = ["docker-compose", "--file", str(project / "compose.yaml"), "config", "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
