"""Named points at which a process can be held, to be killed exactly there.

The harness arms a point with a file. The first process that comes to the point takes the file, by renaming it, and
waits until the harness has removed it: by then it, or another process, has been killed. A directory, because the
processes are not the harness's children and are to die without a word.
"""

from __future__ import annotations

import functools
import os
import uuid
from pathlib import Path

from tests.helpers import wait_until

HELD_S = 60.0
"""Seconds for which a process waits at a point, at most: the harness is gone then."""

# In the order in which a micro-batch comes to them. R: in the reader process, W: in a Python worker on an executor,
# D: in the driver.
POINTS = {
    "announced": "R: the probe has received, and Spark has not written the offset",
    "offset-logged": "R: Spark has written the offset, and partitions() was not called",
    "received": "W: a task has received, and not sealed",
    "sealed": "W: a task's segment is sealed, and the sink has not committed",
    "task-deleted": "W: a task has deleted what it has sealed, and not sealed the next link",
    "writing": "D: the sink has written, and not committed",
    "sink-committed": "D: the sink has committed, and Spark has not written its commit log",
    "deleting": "R: a commit has deleted some messages, and not recorded it",
    "deleted": "R: a commit has deleted all, and not recorded it",
    "recorded": "R: a commit is recorded, and its segments are not dropped",
}


class Traps:
    """The traps in one directory, as the harness arms them and as processes come to them."""

    def __init__(self, home: Path) -> None:
        self._home = home
        home.mkdir(exist_ok=True)

    def arm(self, point: str) -> Trap:
        """Hold the next process that comes to `point`."""
        name = f"{point}-{uuid.uuid4().hex}"
        (self._home / f"armed-{name}").touch()
        return Trap(self._home, name)

    def reach(self, point: str) -> None:
        """Wait here if the point is armed and no other process is held at it. Runs where the point is."""
        for armed in self._home.glob(f"armed-{point}-*"):
            held = self._home / f"held-{armed.name.removeprefix('armed-')}-{os.getpid()}"
            try:
                armed.rename(held)
            except FileNotFoundError:
                continue
            wait_until(functools.partial(_is_gone, held), HELD_S, f"the process held at {point} is let go")
            return


class Trap:
    """One armed point."""

    def __init__(self, home: Path, name: str) -> None:
        self._home = home
        self._name = name

    def held(self) -> int | None:
        """Return the id of the process that waits at the point, if one does."""
        found = next(self._home.glob(f"held-{self._name}-*"), None)
        return int(found.name.rpartition("-")[2]) if found else None

    def release(self) -> None:
        """Hold nobody any more."""
        for path in (*self._home.glob(f"armed-{self._name}"), *self._home.glob(f"held-{self._name}-*")):
            path.unlink(missing_ok=True)


def _is_gone(path: Path) -> bool:
    return not path.exists()
