"""Failures of the local queue on purpose, drawn for each request from a seed, the same way every time."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from sqs_fifo_spark.local import errors, names
from sqs_fifo_spark.local.errors import SqsError
from sqs_fifo_spark.local.planned import KINDS, PlannedFault, check_action
from sqs_fifo_spark.local.quota import Quota
from sqs_fifo_spark.local.validation import MAX_ENTRIES


@dataclass(frozen=True, slots=True)
class Faults:
    """Probabilities of failures, each from 0 (never) to 1 (always), per request.

    `throttle`: ThrottlingException, no effect. `server_error`: HTTP 500 or 503, no effect. `reset`: the connection is
    reset before any effect. `drop_answer`: the request takes effect, then the connection is closed without an answer.
    `fail_entry`: per entry of a batch, InternalError without effect. `short_answer`: a receive returns fewer messages
    than it could, perhaps none. `delay_s`: seconds that every request waits first. `calls_per_second`: calls of each
    action that a queue without high throughput takes in a second, where SQS takes 300; more are throttled. `actions`:
    the only actions to which all this happens (None: all); `queues`: the only queues, by name or URL. `planned`:
    failures that are sure, by the number of the request (see `PlannedFault`). `deny`: actions that always answer
    AccessDenied, each with its batch, as on AWS: DeleteMessage denies DeleteMessageBatch, too. A batch that is named is
    denied alone. `expired_keys`: access keys with which every request answers ExpiredToken.

    Lists of texts may come in any collection, and are kept as sets. Raises ValueError for a value of the wrong kind or
    out of range, or an action that there is not.
    """

    seed: int = 0
    throttle: float = 0.0
    server_error: float = 0.0
    reset: float = 0.0
    drop_answer: float = 0.0
    fail_entry: float = 0.0
    short_answer: float = 0.0
    delay_s: float = 0.0
    calls_per_second: int | None = None
    actions: frozenset[str] | None = None
    deny: frozenset[str] = field(default_factory=frozenset)
    expired_keys: frozenset[str] = field(default_factory=frozenset)
    queues: frozenset[str] | None = None
    planned: tuple[PlannedFault, ...] = ()

    def __post_init__(self) -> None:
        for name in _LISTS:
            value = getattr(self, name)
            if value is not None or name not in ("actions", "queues"):
                object.__setattr__(self, name, _texts(name, value))
        is_list = isinstance(self.planned, (list, tuple))
        if not is_list or not all(isinstance(one, PlannedFault) for one in self.planned):
            raise ValueError(f"fault 'planned' is {self.planned!r}; it must be a list of PlannedFault")
        object.__setattr__(self, "planned", tuple(self.planned))
        for name in (*KINDS, "delay_s", "seed"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int if name == "seed" else (int, float)):
                raise ValueError(f"fault '{name}' is {value!r}; it must be a number")
        for name in KINDS:
            value = getattr(self, name)
            if not 0.0 <= value <= 1.0:
                raise ValueError(f"fault '{name}' is {value}; it is a probability, so it must be from 0 to 1")
        for action in sorted(self.deny | (self.actions or frozenset())):
            check_action(action)
        quota = self.calls_per_second
        if quota is not None and (isinstance(quota, bool) or not isinstance(quota, int) or quota < 1):
            raise ValueError(f"fault 'calls_per_second' is {quota!r}; it must be a whole number, at least 1")
        if self.delay_s < 0:
            raise ValueError(f"fault 'delay_s' is {self.delay_s}; it is in seconds and cannot be negative")

    def changed(self, fields: Mapping[str, Any]) -> Faults:
        """These faults with `fields`, as they come from JSON, put in place of the old ones.

        Raises ValueError for an unknown field or a value of the wrong kind.
        """
        converted: dict[str, Any] = {}
        known = self.described()
        for name, value in fields.items():
            if name not in known:
                raise ValueError(f"unknown fault '{name}'; the faults are: {', '.join(known)}")
            if name == "planned":
                if not isinstance(value, list):
                    raise ValueError(f"fault 'planned' is {value!r}; it must be a list of maps")
                value = tuple(PlannedFault.from_json(one) for one in value)
            converted[name] = value
        return replace(self, **converted)

    def described(self) -> dict[str, Any]:
        """These faults as JSON takes them."""
        return {name: sorted(value) if isinstance(value, frozenset) else value for name, value in asdict(self).items()}


_LISTS = {"actions": "action names", "queues": "queue names", "deny": "action names", "expired_keys": "access keys"}


def _texts(field_name: str, value: object) -> frozenset[str]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise ValueError(f"fault '{field_name}' is {value!r}; it must be a list of {_LISTS[field_name]}")
    texts = map(str, value)
    return frozenset(map(names.of_queue, texts) if field_name == "queues" else texts)


@dataclass(frozen=True, slots=True)
class Decision:
    """The fate of one request. `error` is answered instead of doing it.

    `receive_share` is the share of the messages asked for that a receive may return, rounded down.
    """

    delay_s: float = 0.0
    reset: bool = False
    error: SqsError | None = None
    drop_answer: bool = False
    failing_entries: frozenset[int] = frozenset()
    receive_share: float = 1.0


class Injector:
    """Decides about requests, one after another. Not for use by several threads.

    The dice of a request depend on the seed, its action and its number among the requests of that action, and on
    nothing else: other actions in between, and other probabilities, change nothing.
    """

    def __init__(self, faults: Faults) -> None:
        if not isinstance(faults, Faults):
            raise ValueError(f"faults are {faults!r}; they must be Faults(...)")
        self.faults = faults
        self._seen: Counter[str] = Counter()
        # For each planned fault, the number of requests that it has counted.
        self._counted = [0] * len(faults.planned)
        self._rolls = any(getattr(faults, name) > 0 for name in KINDS)
        self._quota = Quota(faults.calls_per_second)

    def decide(self, action: str, resource: str, access_key: str = "") -> Decision:
        """The verdict on the next request for `action`; `resource` is the ARN of its queue, "*" for none."""
        faults, queue = self.faults, resource.rpartition(":")[2]
        self._seen[action] += 1
        if access_key in faults.expired_keys:
            return Decision(error=errors.expired_token())
        if action in faults.deny or action.removesuffix("Batch") in faults.deny:
            return Decision(error=errors.access_denied(action, resource))
        planned = self._planned(action, queue)
        if planned is not None:
            return planned
        if not self._concerns(action, queue):
            return Decision()
        if not self._rolls:
            return Decision(delay_s=faults.delay_s)
        dice = random.Random(f"{faults.seed}/{action}/{self._seen[action]}")
        # All dice are thrown, always in this order, whatever the probabilities are.
        reset, throttled, broken, which, dropped, short, share = (dice.random() for _ in range(7))
        entries = [dice.random() for _ in range(MAX_ENTRIES)]
        error: SqsError | None = None
        if throttled < faults.throttle:
            error = errors.throttled()
        elif broken < faults.server_error:
            error = errors.internal_failure() if which < 0.5 else errors.service_unavailable()
        return Decision(
            delay_s=faults.delay_s,
            reset=reset < faults.reset,
            error=error,
            drop_answer=dropped < faults.drop_answer,
            failing_entries=frozenset(i for i, die in enumerate(entries) if die < faults.fail_entry),
            receive_share=share if short < faults.short_answer else 1.0,
        )

    def plan(self, fault: PlannedFault) -> None:
        """Let `fault` happen, too: it counts requests from now on, and the dice and other counts go on."""
        self.faults = replace(self.faults, planned=(*self.faults.planned, fault))
        self._counted.append(0)

    @property
    def pending(self) -> list[PlannedFault]:
        """The planned faults that have not happened as often as they shall."""
        counted = zip(self.faults.planned, self._counted, strict=True)
        return [fault for fault, count in counted if count < fault.number + fault.times - 1]

    def admits(self, action: str, queue: str, now: float) -> bool:
        """Return whether the quota has room for a call of `action` on the queue of that name, at a monotonic time."""
        return not self._concerns(action, queue) or self._quota.admits(action, queue, now)

    def _concerns(self, action: str, queue: str) -> bool:
        faults = self.faults
        return (faults.actions is None or action in faults.actions) and (
            faults.queues is None or queue in faults.queues
        )

    def _planned(self, action: str, queue: str) -> Decision | None:
        """The fault planned for this request; of several the first. All of them count it."""
        hit: PlannedFault | None = None
        for position, fault in enumerate(self.faults.planned):
            if fault.concerns(action, queue):
                self._counted[position] += 1
                if hit is None and fault.hits(self._counted[position]):
                    hit = fault
        if hit is None:
            return None
        failing = frozenset(hit.entries or range(MAX_ENTRIES))
        possible: dict[str, Decision] = {
            "throttle": Decision(error=errors.throttled()),
            "server_error": Decision(error=errors.internal_failure()),
            "reset": Decision(reset=True),
            "drop_answer": Decision(drop_answer=True),
            "fail_entry": Decision(failing_entries=failing),
            "short_answer": Decision(receive_share=0.0),
        }
        return replace(possible[hit.fault], delay_s=self.faults.delay_s)
