"""Whether the driver that owns a journal still runs, for somebody who wants to repair it.

A claim tells which process made it: on the same machine, that process is there or it is not. From another machine one
asks: who wants to know puts a question beside the claim, and a driver that looks at its claim, as it does all the time,
puts an answer. No answer within the time in which it looks means that it does not run. Nothing depends on that being
right: who takes over puts a claim of its own, and a driver that runs after all stops with FencedError.

    drivers/ask-<claim>-<token>      a question to the driver of this claim
    drivers/here-<claim>-<token>     its answer
"""

from __future__ import annotations

import os
import re
import socket
import threading
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqs_fifo_spark.clock import Clock
from sqs_fifo_spark.journal.store import Store

ANSWER_MARGIN_S = 15.0
"""How much later than it should a driver may look at its claim: a call to SQS or to the store may take that long."""
END_S = 5.0
"""How long the process of a query that was stopped may still be there."""
_LONGEST_SILENCE_S = 60.0
"""Where the claim does not tell how often its driver looks at it."""
_PAUSE_S = 0.5
_QUESTION = re.compile(r"drivers/ask-(\d{20})-([0-9a-f]{32})")


def this_process() -> dict[str, Any]:
    """Return what a claim tells of the process that makes it. Runs on the driver."""
    pid = os.getpid()
    return {"host": socket.gethostname(), "machine": _machine(), "pid": pid, "began": _began(pid)}


@dataclass(frozen=True)
class Owner:
    """The driver of a journal's highest claim."""

    claim: int
    host: str
    pid: int
    machine: str
    """Tells this boot of this machine, and in it the container, from others. Empty where the system does not tell."""
    began: int
    """When the process began, in the machine's own ticks; 0 where the system does not tell."""
    looks_every_s: float
    """How long the driver goes without a look at its claim, at most."""
    claimed_at: float | None
    """In seconds since the Unix epoch."""

    @classmethod
    def told(cls, claim: int, content: Mapping[str, Any]) -> Owner:
        """Return what the claim's `content` tells. Claims of older versions tell nothing."""

        def value(name: str, kind: type | tuple[type, ...], default: Any) -> Any:
            found = content.get(name)
            return found if isinstance(found, kind) and not isinstance(found, bool) else default

        return cls(
            claim=claim,
            host=value("host", str, ""),
            pid=value("pid", int, 0),
            machine=value("machine", str, ""),
            began=value("began", int, 0),
            looks_every_s=float(value("looksEverySeconds", (int, float), _LONGEST_SILENCE_S)),
            claimed_at=value("claimedAt", (int, float), None),
        )

    def __str__(self) -> str:
        return f"claim {self.claim}" + (f", process {self.pid} on {self.host}" if self.pid else "")

    def is_here(self) -> bool:
        """Return whether its process runs, or ran, on this machine, so that `is_running` can tell."""
        return bool(self.machine and self.began) and self.machine == _machine()

    def is_running(self) -> bool:
        """Return whether its process runs on this machine: `is_here` holds."""
        return _began(self.pid) == self.began


def silence_s(owner: Owner) -> float:
    """Return how long `is_alive` may take, in seconds."""
    return END_S if owner.is_here() else owner.looks_every_s + ANSWER_MARGIN_S


def is_alive(owner: Owner, store: Store, clock: Clock) -> bool:
    """Return whether the driver `owner` still runs; see `silence_s` for how long that takes.

    Runs where an operator calls it. Raises JournalUnavailableError.
    """
    deadline, never = clock.monotonic() + silence_s(owner), threading.Event()
    if owner.is_here():
        while owner.is_running():
            if clock.monotonic() >= deadline:
                return True
            clock.wait(never, _PAUSE_S)
        return False
    token = uuid.uuid4().hex
    question, answer = f"drivers/ask-{owner.claim:020d}-{token}", f"drivers/here-{owner.claim:020d}-{token}"
    store.put_if_absent(question, b"{}")
    try:
        while store.get(answer) is None:
            if clock.monotonic() >= deadline:
                return False
            clock.wait(never, _PAUSE_S)
        return True
    finally:
        store.delete([question, answer])


def answer_questions(store: Store, claim: int, names: Iterable[str]) -> None:
    """Answer the questions to the driver of `claim` among `names`, which stand beside the claims. Runs on the driver.

    Raises JournalUnavailableError. A question that was answered may be asked for once more until it is removed.
    """
    for name in names:
        match = _QUESTION.fullmatch(name)
        if match and int(match[1]) == claim:
            store.put_if_absent(f"drivers/here-{match[1]}-{match[2]}", b"{}")


def _machine() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}/{Path('/proc/self/ns/pid').readlink()}"
    except OSError:  # not Linux: others must ask
        return ""


def _began(pid: int) -> int:
    """Return when the process `pid` began, in ticks since the machine's start; 0 if it does not run any more."""
    try:
        # The name of the program stands in brackets, and may hold anything. State and start are fields 3 and 22.
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return 0
    return 0 if fields[0] in "ZX" else int(fields[19])
