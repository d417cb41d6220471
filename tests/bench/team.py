"""Processes that begin together; see `worker` for their side."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any


class Team:
    """Processes that are ready."""

    def __init__(self, members: Sequence[subprocess.Popen[str]]) -> None:
        self._members = members

    @property
    def pids(self) -> set[int]:
        return {member.pid for member in self._members}

    def go(self) -> None:
        for member in self._members:
            assert member.stdin is not None
            member.stdin.write("go\n")
            member.stdin.flush()

    def results(self) -> list[dict[str, Any]]:
        """Wait for all, and return what each has done. They still live. RuntimeError if one failed."""
        return [json.loads(_line(member)) for member in self._members]


def python(module: str, job: Mapping[str, Any]) -> list[str]:
    """Return the command of a Python worker."""
    return [sys.executable, "-m", f"tests.bench.{module}", json.dumps(dict(job))]


@contextmanager
def team(commands: Sequence[Sequence[str]]) -> Iterator[Team]:
    """Start the commands, and end them with the block."""
    members = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for command in commands
    ]
    try:
        for member in members:
            _line(member)
        yield Team(members)
        for member in members:
            assert member.stdin is not None
            member.stdin.close()
            member.wait(60)
    finally:
        for member in members:
            member.kill()
            member.wait()
            for pipe in (member.stdin, member.stdout):
                if pipe is not None:
                    pipe.close()


def _line(member: subprocess.Popen[str]) -> str:
    assert member.stdout is not None
    line = member.stdout.readline()
    if not line:
        raise RuntimeError(f"a worker failed; its error is above: {member.args!r}")
    return line
