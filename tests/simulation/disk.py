"""An operator's machine, as far as `journal skip --to-file` uses it: files that are locked, added to and synced.

Every call is a step before its effect. A process may be killed in the middle of a line; what is synced stays.
"""

from __future__ import annotations

import errno
import json
import random
from collections.abc import Callable
from types import TracebackType
from typing import Any

from tests.simulation.hub import Hub, Process


class Content:
    """A file's bytes, the holder of its lock, and the length that outlives a loss of power."""

    def __init__(self) -> None:
        self.data = b""
        self.synced = 0
        self.lock: Process | None = None

    def rows(self) -> list[dict[str, Any]]:
        """Return the whole rows that outlive a loss of power."""
        found = []
        for line in self.data[: self.synced].splitlines():
            try:
                found.append(json.loads(line))
            except ValueError:
                continue  # cut off
        return found


class Kernel:
    """The modules `os` and `fcntl` as the command finds them, and the function that opens a file for it."""

    LOCK_EX = 2

    def __init__(self, hub: Hub, step: Callable[[str], None], dice: random.Random) -> None:
        self.hub = hub
        self.step = step
        self.dice = dice
        self.files: dict[str, Content] = {}
        self.on_synced: Callable[[str, Content], None] = lambda name, content: None
        self.on_refused: Callable[[], None] = lambda: None

    def open(self, name: str) -> File:
        self.step(f"before open {name}")
        if self.dice.random() < 0.03:
            self.on_refused()
            raise PermissionError(errno.EACCES, "Permission denied")
        return File(self, name, self.files.setdefault(name, Content()))

    @staticmethod
    def flock(file: File, how: int) -> None:
        file.lock()

    @staticmethod
    def fsync(file: File) -> None:
        file.sync()


class File:
    """A file that one process has opened; it is its own descriptor."""

    def __init__(self, kernel: Kernel, name: str, content: Content) -> None:
        self._kernel = kernel
        self._name = name
        self._content = content
        self._pending = b""

    def __enter__(self) -> File:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._content.lock is self._kernel.hub.current_process:
            self._content.lock = None

    def fileno(self) -> File:
        return self

    def lock(self) -> None:
        self._kernel.step(f"before lock {self._name}")
        self._kernel.hub.wait_until(lambda: self._content.lock is None or not self._content.lock.is_alive)
        self._content.lock = self._kernel.hub.current_process

    def read(self) -> bytes:
        return self._content.data

    def write(self, data: bytes) -> None:
        self._pending += data

    def flush(self) -> None:
        """Write at the end, whoever has written there since; or only a part, where there is no more room."""
        self._kernel.step(f"before write {self._name}")
        half = len(self._pending) // 2
        self._content.data += self._pending[:half]
        if self._kernel.dice.random() < 0.03:
            raise OSError(errno.ENOSPC, "No space left on device")
        self._kernel.step(f"half of a write {self._name}")
        self._content.data += self._pending[half:]
        self._pending = b""

    def sync(self) -> None:
        self._kernel.step(f"before sync {self._name}")
        self._content.synced = len(self._content.data)
        self._kernel.on_synced(self._name, self._content)
        self._kernel.step(f"after sync {self._name}")
