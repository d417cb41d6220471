"""A PostgreSQL server for one run: its own data directory, its own port on the loopback, its own end."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import psycopg

from tests.crash.processes import begin, end
from tests.helpers import wait_until

START_S = 60.0
_USER = "postgres"


def programs() -> Path | None:
    """Return the directory of the newest installed server's programs, or None if there is none."""
    found = list(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    on_path = shutil.which("postgres")
    if not found and on_path:
        found = [Path(on_path)]
    return max(found, key=_version).parent if found else None


class PostgresServer:
    """A server in a `with` block. It refuses to run as root, so root runs it as the package's user."""

    def __init__(self) -> None:
        self._as: dict[str, Any] = {}
        self._server: subprocess.Popen[bytes] | None = None
        self._home: Path | None = None
        self.address = ""
        """The argument of `psycopg.connect`."""

    def __enter__(self) -> PostgresServer:
        folder = programs()
        if folder is None:
            raise RuntimeError("PostgreSQL is not installed: install your system's package 'postgresql'.")
        # Not below a directory of root's own, which the server's user could not enter.
        home = self._home = Path(tempfile.mkdtemp(prefix="sqsfifo-postgres-"))
        try:
            if os.getuid() == 0:
                user = pwd.getpwnam(_USER)
                os.chown(home, user.pw_uid, user.pw_gid)
                self._as = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
            self._start(folder, home)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End the server and remove its data."""
        if self._server is not None:
            end(self._server, signal.SIGINT)
        if self._home is not None:
            shutil.rmtree(self._home, ignore_errors=True)

    def _start(self, folder: Path, home: Path) -> None:
        data = home / "data"
        arguments = ["-D", str(data), "-U", "sink", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]
        made = subprocess.run(
            [str(folder / "initdb"), *arguments], capture_output=True, text=True, check=False, cwd="/", **self._as
        )
        if made.returncode:
            raise RuntimeError(f"initdb failed: {made.stderr[-2000:]}")
        with socket.create_server(("127.0.0.1", 0)) as chosen:
            port = chosen.getsockname()[1]
        self.address = f"host=127.0.0.1 port={port} user=sink dbname=postgres connect_timeout=10"
        # No fsync: only the application is killed, never the machine or this server.
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(port),
            "unix_socket_directories": "",
            "fsync": "off",
        }
        log = home / "log.txt"
        command = [str(folder / "postgres"), "-D", str(data), *(f"--{key}={value}" for key, value in settings.items())]
        self._server = begin(command, log, cwd="/", **self._as)
        wait_until(lambda: self._answers(log), START_S, "PostgreSQL answers")

    def _answers(self, log: Path) -> bool:
        if self._server is None or self._server.poll() is not None:
            raise RuntimeError(f"PostgreSQL did not start: {log.read_text(errors='replace')[-2000:]}")
        try:
            psycopg.connect(self.address).close()
        except psycopg.OperationalError:
            return False
        return True


def _version(program: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", str(program))]
