"""Failures by count: the third `DeleteMessageBatch` on `bids.fifo`, and no other request."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields

from sqs_fifo_spark.local import names
from sqs_fifo_spark.local.model import ACTIONS
from sqs_fifo_spark.local.validation import MAX_ENTRIES

KINDS = ("throttle", "server_error", "reset", "drop_answer", "fail_entry", "short_answer")

_BATCH = "Batch"
# Numbers short enough for Python to read.
_FORM = re.compile(
    r"(?P<fault>[a-z_]+)(=(?P<entries>\d{1,9}(,\d{1,9})*))?:(?P<action>\w+):(?P<first>\d{1,9})(-(?P<last>\d{1,9}))?(:(?P<queue>.+))?"
)


@dataclass(frozen=True, slots=True)
class PlannedFault:
    """A failure of the `number`-th request for `action`, counted from 1, and of the `times - 1` after it.

    Counting begins when the faults are set. With a `queue`, only requests for the queue of that name or URL count.
    `fault` is one of the faults of `Faults`: it is sure to happen. `entries` are the positions, from 0, of the entries
    that "fail_entry" fails; empty means all of them.

    Raises ValueError for a value of the wrong kind or out of range, or a fault that the action cannot have.
    """

    fault: str
    action: str
    number: int
    times: int = 1
    queue: str | None = None
    entries: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for name in ("number", "times", "fault", "action", "queue"):
            value, is_number = getattr(self, name), name in ("number", "times")
            if type(value) is not (int if is_number else str) and not (name == "queue" and value is None):
                form = "a whole number" if is_number else "a string"
                raise ValueError(f"planned fault: {name} is {value!r}; it must be {form}")
        if not isinstance(self.entries, (list, tuple)) or not all(type(each) is int for each in self.entries):
            raise ValueError(f"planned fault: entries are {self.entries!r}; they must be a list of whole numbers")
        object.__setattr__(self, "entries", tuple(self.entries))
        if self.queue is not None:
            object.__setattr__(self, "queue", names.of_queue(self.queue))
        if self.fault not in KINDS:
            raise ValueError(f"unknown planned fault '{self.fault}'; it must be one of {', '.join(KINDS)}")
        check_action(self.action)
        if self.number < 1 or self.times < 1:
            raise ValueError(f"planned fault: number is {self.number}, times {self.times}; both must be at least 1")
        if self.fault == "fail_entry" and not self.action.endswith(_BATCH):
            raise ValueError(f"planned fault 'fail_entry' of {self.action}: only a batch has entries")
        if self.fault == "short_answer" and self.action != "ReceiveMessage":
            raise ValueError(f"planned fault 'short_answer' of {self.action}: only ReceiveMessage can be short")
        if self.entries and self.fault != "fail_entry":
            raise ValueError(f"planned fault '{self.fault}' has entries; only 'fail_entry' takes them")
        if not all(0 <= position < MAX_ENTRIES for position in self.entries):
            raise ValueError(
                f"planned fault: entries are {list(self.entries)}; positions are from 0 to {MAX_ENTRIES - 1}"
            )

    def concerns(self, action: str, queue: str) -> bool:
        """True if a request for `action` on `queue` counts."""
        return action == self.action and self.queue in (None, queue)

    def hits(self, count: int) -> bool:
        """True if the `count`-th request that counts fails."""
        return self.number <= count < self.number + self.times

    @classmethod
    def from_json(cls, given: object) -> PlannedFault:
        """A planned fault from a JSON map with the names of the fields."""
        if not isinstance(given, Mapping):
            raise ValueError(f"planned fault is {given!r}; it must be a map such as {_EXAMPLE}")
        known = [one.name for one in fields(cls)]
        for name in given:
            if name not in known:
                raise ValueError(f"unknown field '{name}' of a planned fault; the fields are: {', '.join(known)}")
        for name in ("fault", "action", "number"):
            if name not in given:
                raise ValueError(f"planned fault has no '{name}'; it must be a map such as {_EXAMPLE}")
        return cls(**given)

    @classmethod
    def from_text(cls, text: str) -> PlannedFault:
        """A planned fault from `FAULT[=ENTRIES]:ACTION:NUMBER[-LAST][:QUEUE]`.

        `drop_answer:DeleteMessageBatch:3:bids.fifo`, `fail_entry=0,2:SendMessageBatch:1`, `reset:ReceiveMessage:1-4`.
        """
        found = _FORM.fullmatch(text)
        if found is None:
            raise ValueError(
                f"planned fault is '{text}'; it must be FAULT:ACTION:NUMBER or FAULT:ACTION:NUMBER:QUEUE, such as "
                "drop_answer:DeleteMessageBatch:3:bids.fifo"
            )
        first, last = int(found["first"]), int(found["last"] or found["first"])
        if last < first:
            raise ValueError(f"planned fault is '{text}'; {first}-{last} ends before it begins")
        return cls(
            fault=found["fault"],
            action=found["action"],
            number=first,
            times=last - first + 1,
            queue=found["queue"],
            entries=tuple(int(position) for position in (found["entries"] or "").split(",") if position),
        )


_EXAMPLE = '{"fault": "drop_answer", "action": "DeleteMessageBatch", "number": 3, "queue": "bids.fifo"}'


def check_action(action: str) -> None:
    """Raise ValueError unless the local queue has this action."""
    if action not in ACTIONS:
        near = difflib.get_close_matches(action, ACTIONS, n=1)
        hint = f" Did you mean '{near[0]}'?" if near else ""
        raise ValueError(f"unknown action '{action}' in faults.{hint}")
