"""Whether the driver that owns a journal still runs, for an operator who wants to change something in it.

A claim tells which process made it: on the same machine, that process is there or it is not. From another machine one
asks: the operator's command puts a question beside the claim, and the driver, whose heartbeat looks there, puts an
answer. No answer in time means that it does not run. No message depends on that being right: who takes the journal over
puts a claim of its own, and a driver that runs after all stops with FencedError.

    drivers/ask-<claim>-<token>      a question to the driver of this claim
    drivers/here-<claim>-<token>     its answer
"""

from __future__ import annotations

import logging
import math
import os
import re
import socket
import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqs_fifo_spark.clock import Clock
from sqs_fifo_spark.errors import JournalUnavailableError
from sqs_fifo_spark.journal.store import Store

_log = logging.getLogger(__name__)

LONGEST_LOOK_S = 60.0
"""A driver looks for questions with each heartbeat, and at least this often."""
ANSWER_MARGIN_S = 60.0
"""A driver may look so much later than it should: a pass of renewals, or a store that stalls, may take that long."""
END_S = 5.0
"""How long the process of a query that was stopped may still be there."""
_PAUSE_S, _ASKING_PAUSE_S = 0.5, 2.0
_QUESTION = re.compile(r"drivers/ask-(\d{20}-[0-9a-f]{32})")


def this_process(*, looks_every_s: float, now: float) -> dict[str, Any]:
    """Return what the claim of a driver tells of its process. `now` is the wall-clock time in seconds."""
    pid = os.getpid()
    return {
        "host": socket.gethostname(),
        "machine": _machine(),
        "pid": pid,
        "began": _began(pid),
        "looksEverySeconds": looks_every_s,
        "claimedAt": now,
    }


def this_command(*, now: float) -> dict[str, Any]:
    """Return what the claim of an operator's command tells: it owns the journal only to fence the driver before it."""
    return {"host": socket.gethostname(), "isCommand": True, "claimedAt": now}


@dataclass(frozen=True)
class Owner:
    """Who made a journal's highest claim."""

    claim: int
    host: str = ""
    pid: int = 0
    machine: str = ""
    """Tells this boot of this machine, and in it the container, from others. Empty where the system does not tell."""
    began: int = 0
    """When the process began, in the machine's own ticks; 0 where the system does not tell."""
    looks_every_s: float | None = None
    """How often the driver looks for questions; None for one of an older version, which does not."""
    claimed_at: float | None = None
    """In seconds since the Unix epoch."""
    is_command: bool = False
    """Whether it was an operator's command, which is over, or about to end."""

    @classmethod
    def of_claim(cls, claim: int, content: Mapping[str, Any]) -> Owner:
        """Return what the `content` of the claim tells. Older versions' claims tell nothing."""

        def number(name: str) -> float | None:
            found = content.get(name)
            is_number = isinstance(found, (int, float)) and not isinstance(found, bool) and math.isfinite(found)
            return found if is_number else None

        def text(name: str) -> str:
            found = content.get(name)
            return found if isinstance(found, str) else ""

        return cls(
            claim=claim,
            host=text("host"),
            pid=int(number("pid") or 0),
            machine=text("machine"),
            began=int(number("began") or 0),
            looks_every_s=number("looksEverySeconds"),
            claimed_at=number("claimedAt"),
            is_command=content.get("isCommand") is True,
        )

    def __str__(self) -> str:
        return f"claim {self.claim}" + (f", process {self.pid} on {self.host}" if self.pid else "")

    def is_running_here(self) -> bool | None:
        """Return whether its process runs on this machine; None if that cannot be told from here."""
        if not (self.pid > 0 and self.machine and self.began) or self.machine != _machine():
            return None
        began = _began(self.pid)
        if began is None and _exists(self.pid):
            return None  # another user's, and the system does not show it
        return began == self.began


def longest_wait_s(owner: Owner) -> float:
    """Return how long `is_alive` takes at most, in seconds."""
    return END_S if owner.is_running_here() is not None else (owner.looks_every_s or 0.0) + ANSWER_MARGIN_S


def is_alive(owner: Owner, store: Store, clock: Clock) -> bool:
    """Return whether this driver still runs; None of an older version's can be asked. See `longest_wait_s`.

    Runs where an operator calls it. Raises JournalUnavailableError.
    """
    deadline = clock.monotonic() + longest_wait_s(owner)
    while (is_running := owner.is_running_here()) and clock.monotonic() < deadline:
        clock.sleep(_PAUSE_S)
    return _answers(owner, store, clock) if is_running is None else is_running


def _answers(owner: Owner, store: Store, clock: Clock) -> bool:
    key = f"{owner.claim:020d}-{uuid.uuid4().hex}"
    question, answer = f"drivers/ask-{key}", f"drivers/here-{key}"
    store.put_if_absent(question, b"{}")
    # From now on: the question may have taken long to get there.
    deadline = clock.monotonic() + (owner.looks_every_s or 0.0) + ANSWER_MARGIN_S
    try:
        while store.get(answer) is None:
            if clock.monotonic() >= deadline:
                return False
            clock.sleep(_ASKING_PAUSE_S)
        return True
    finally:
        store.delete([question, answer])


def answer_questions(store: Store, claim: int, names: Collection[str]) -> None:
    """Answer the questions to the driver of `claim` among `names`, which stand beside the claims.

    Runs on a thread of the driver's heartbeat. What the store refuses is only logged: the query needs no answer.
    """
    for name in names:
        match = _QUESTION.fullmatch(name)
        answer = f"drivers/here-{match[1]}" if match else ""
        if match and int(match[1][:20]) == claim and answer not in names:
            try:
                store.put_if_absent(answer, b"{}")
            except JournalUnavailableError as error:
                _log.warning("an operator asks whether this query runs, and the answer cannot be written: %s", error)


def _machine() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}/{Path('/proc/self/ns/pid').readlink()}"
    except OSError:  # not Linux: others must ask
        return ""


def _began(pid: int) -> int | None:
    """Return when the process `pid` began, in ticks since the machine's start; 0 for a zombie, None if none is seen."""
    try:
        # The name of the program stands in brackets, and may hold anything. State and start are fields 3 and 22.
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return 0 if fields[0] in "ZX" else int(fields[19])


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
