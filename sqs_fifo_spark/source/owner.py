"""The check that a journal's driver no longer runs, for an operator who wants to change something in it.

A claim names the process that made it: on the same machine, that process is there or it is not. From another machine
one asks: the operator's command puts a question beside the claim, and the driver, whose heartbeat looks there, puts an
answer. No answer in time means that it does not run. No message depends on that being right: a command that takes the
journal over puts a claim of its own, and a driver that runs after all stops with FencedError.

    drivers/ask-<claim>-<token>      a question to the driver of this claim
    drivers/here-<claim>-<token>     its answer
"""

from __future__ import annotations

import logging
import os
import re
import socket
import uuid
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqs_fifo_spark.clock import Clock
from sqs_fifo_spark.errors import JournalUnavailableError
from sqs_fifo_spark.journal.documents import damaged, parse_json
from sqs_fifo_spark.journal.store import Store

_log = logging.getLogger(__name__)

LONGEST_LOOK_S = 60.0
"""A driver looks for questions with each heartbeat, and at least this often."""
ANSWER_MARGIN_S = 60.0
"""A driver may look so much later than it should: a pass of renewals, or a store that stalls, may take that long."""
END_S = 5.0
"""Seconds for which the process of a query that was stopped may still be there."""
_LATEST = 1e11
_PAUSE_S, _ASKING_PAUSE_S = 0.5, 2.0
_QUESTION = re.compile(r"drivers/ask-(\d{20}-[0-9a-f]{32})")


def this_process(*, looks_every_s: float, now: float) -> dict[str, Any]:
    """Return the description of its process for the claim of a driver. `now` is the wall-clock time in seconds."""
    pid = os.getpid()
    return {
        "host": socket.gethostname(),
        "pid": pid,
        "machine": _machine(),
        "began": _began(pid) or 0,
        "looksEverySeconds": looks_every_s,
        "claimedAt": now,
        "isCommand": False,
    }


def this_command(*, now: float) -> dict[str, Any]:
    """Return the description for the claim of an operator's command, which only fences the driver before it."""
    return {**this_process(looks_every_s=0, now=now), "pid": 0, "machine": "", "isCommand": True}


@dataclass(frozen=True)
class Owner:
    """The process that made a journal's highest claim."""

    claim: int
    host: str
    pid: int
    machine: str
    """Sets this boot of this machine, and in it the container, apart from others. Empty where the system gives none."""
    began: int
    """Start of the process, in the machine's own ticks; 0 where the system gives none."""
    looks_every_s: float
    """Seconds between two looks of the driver for questions."""
    claimed_at: float
    """In seconds since the Unix epoch."""
    is_command: bool
    """True for an operator's command, which is over, or about to end."""

    @classmethod
    def of_claim(cls, claim: int, data: bytes, name: str) -> Owner:
        """Return the owner in the claim with the bytes `data`. Raises JournalCorruptError, naming the object `name`."""
        match parse_json(data, name):
            case {
                "host": str(host),
                "pid": int(pid),
                "machine": str(machine),
                "began": int(began),
                "looksEverySeconds": float() | int() as looks_every_s,
                "claimedAt": float() | int() as claimed_at,
                "isCommand": bool(is_command),
            } if 0 <= pid < 1 << 31 and 0 <= looks_every_s <= LONGEST_LOOK_S and 0 <= claimed_at < _LATEST:
                return cls(claim, host, pid, machine, began, looks_every_s, claimed_at, is_command)
        raise damaged(name)

    def __str__(self) -> str:
        return f"claim {self.claim}" + (f", process {self.pid} on {self.host}" if self.pid else "")

    def is_running_here(self) -> bool | None:
        """Return whether its process runs on this machine; None if that cannot be seen from here."""
        if not (self.machine and self.began) or self.machine != _machine():
            return None
        began = _began(self.pid)
        if began is None and _exists(self.pid):
            return None  # another user's, and the system does not show it
        return began == self.began


def longest_wait_s(owner: Owner) -> float:
    """Return the seconds that `is_alive` takes at most."""
    return END_S if owner.is_running_here() is not None else owner.looks_every_s + ANSWER_MARGIN_S


def is_alive(owner: Owner, store: Store, clock: Clock) -> bool:
    """Return whether this driver still runs, within `longest_wait_s`, for an operator who asks.

    Raises JournalUnavailableError.
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
    deadline = clock.monotonic() + owner.looks_every_s + ANSWER_MARGIN_S
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

    Runs on a thread of the driver's heartbeat. A refusal of the store is only logged: the query needs no answer.
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
    """Return the start of the process `pid`, in ticks since the machine's; 0 for a zombie, None if none is seen."""
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
