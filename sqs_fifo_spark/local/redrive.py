"""Message move tasks: messages go from a dead-letter queue back to where they came from, or to another queue.

Rules and wordings are those of the API text of `StartMessageMoveTask` and of recorded answers. A task without
`MaxNumberOfMessagesPerSecond` moves everything at once, when it is started. With a rate, it moves its first message
then and one more in every 1/rate seconds; the model's next call finds them moved.
"""

from __future__ import annotations

import base64
import binascii
import json
import random
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqs_fifo_spark.clock import Clock
from sqs_fifo_spark.local import errors, names, validation
from sqs_fifo_spark.local.fifo import FifoQueue

MAX_RATE = 500
"""Messages a second."""
MAX_LISTED = 10
"""The last tasks of each queue, as many as can be asked for, are remembered."""

_ARN_FORM = "arn:<partition>:<service>:<region>:<account-id>:<resource-id>"

Request = Mapping[str, Any]
Response = dict[str, Any]


@dataclass(slots=True, eq=False)
class MoveTask:
    """One task. `next_at` is the time of its next message's move: wall clock, seconds."""

    task_id: str
    source: FifoQueue
    destination_arn: str | None
    rate: int | None
    started_at: float
    next_at: float
    to_move: int
    last_sequence: int
    status: str = "RUNNING"
    moved: int = 0
    failure: str | None = None

    @property
    def handle(self) -> str:
        content = {"taskId": self.task_id, "sourceArn": self.source.arn}
        return base64.b64encode(json.dumps(content, separators=(",", ":")).encode()).decode()

    def described(self) -> Response:
        """The task as `ListMessageMoveTasks` shows it; absent values are left out."""
        shown = {
            "TaskHandle": self.handle if self.status == "RUNNING" else None,
            "Status": self.status,
            "SourceArn": self.source.arn,
            "DestinationArn": self.destination_arn,
            "MaxNumberOfMessagesPerSecond": self.rate,
            "ApproximateNumberOfMessagesMoved": self.moved,
            "ApproximateNumberOfMessagesToMove": self.to_move,
            "FailureReason": self.failure,
            "StartedTimestamp": int(self.started_at * 1_000),
        }
        return {name: value for name, value in shown.items() if value is not None}


@dataclass(slots=True, eq=False)
class MoveTasks:
    """The move tasks of all queues. Not for use by several threads.

    `by_arn` finds a queue; `has_sources` returns whether it is some queue's dead-letter queue.
    """

    clock: Clock
    rng: random.Random
    by_arn: Callable[[str], FifoQueue | None]
    has_sources: Callable[[FifoQueue], bool]
    running: list[MoveTask] = field(default_factory=list)
    _tasks: dict[str, deque[MoveTask]] = field(default_factory=dict)
    """By the queue's ARN, the oldest task first."""

    def start(self, request: Request) -> Response:
        """Begin to move messages; answer the task's handle."""
        source = self._queue(request, "SourceArn")
        if not self.has_sources(source):
            raise errors.invalid_parameter("Source queue must be configured as a Dead Letter Queue.")
        destination = None
        if request.get("DestinationArn") is not None:
            destination = self._queue(request, "DestinationArn")
            if destination is source:
                raise errors.invalid_parameter("Source queue arn and destination queue arn cannot be the same.")
            if destination.settings.is_fifo != source.settings.is_fifo:
                raise errors.invalid_parameter("The source queue and destination queue must be of the same queue type.")
        rate = _number(request, "MaxNumberOfMessagesPerSecond", MAX_RATE)
        if any(task.source is source for task in self.running):
            raise errors.invalid_parameter(
                "There is already a task running. "
                "Only one active task is allowed for a source queue arn at a given time."
            )
        now = self.clock.now()
        task = MoveTask(
            task_id=names.new_id(self.rng),
            source=source,
            destination_arn=None if destination is None else destination.arn,
            rate=rate,
            started_at=now,
            next_at=now,
            to_move=source.counts(now)["ApproximateNumberOfMessages"],
            last_sequence=source.last_sequence,
        )
        self._tasks.setdefault(source.arn, deque(maxlen=MAX_LISTED)).append(task)
        self.running.append(task)
        handle = task.handle
        self.advance()
        return {"TaskHandle": handle}

    def recent(self, request: Request) -> Response:
        """The last tasks of a queue, the newest first: one, unless more are asked for."""
        source = self._queue(request, "SourceArn")
        limit = _number(request, "MaxResults", MAX_LISTED) or 1
        newest_first = [*reversed(self._tasks.get(source.arn, ()))]
        return {"Results": [task.described() for task in newest_first[:limit]]}

    def cancel(self, request: Request) -> Response:
        """Stop a running task; its moved messages stay moved."""
        task_id, arn = _decode(validation.required_text(request, "TaskHandle"))
        if self.by_arn(arn) is None:
            raise errors.resource_not_found("SourceArn")
        task = next((task for task in self._tasks.get(arn, ()) if task.task_id == task_id), None)
        if task is None:
            raise errors.task_does_not_exist()
        if task not in self.running:
            raise errors.invalid_parameter("Only active tasks can be cancelled.")
        self._end(task, "CANCELLED")
        return {"ApproximateNumberOfMessagesMoved": task.moved}

    def forget(self, source: FifoQueue) -> None:
        """Drop the tasks of a queue that is deleted."""
        self._tasks.pop(source.arn, None)
        self.running = [task for task in self.running if task.source is not source]

    def advance(self) -> None:
        """Move messages that are due by now, in the order of time."""
        while self.running:
            task = min(self.running, key=lambda task: task.next_at)
            if task.next_at > self.clock.now():
                return
            self._move_one(task)

    def _move_one(self, task: MoveTask) -> None:
        message = task.source.next_to_redrive(task.last_sequence, task.next_at)
        if message is None:
            # Nothing is left, or all the rest is in flight in the dead-letter queue.
            self._end(task, "COMPLETED")
            return
        target_arn = task.destination_arn or message.source_arn
        if target_arn is None:
            self._end(task, "FAILED", "CouldNotDetermineMessageSource")
            return
        target = self.by_arn(target_arn)
        if target is None:
            self._end(task, "FAILED", "AWS.SimpleQueueService.NonExistentQueue")
            return
        task.source.redrive(message, target, task.next_at)
        task.moved += 1
        if task.rate is not None:
            task.next_at = task.started_at + task.moved / task.rate

    def _end(self, task: MoveTask, status: str, failure: str | None = None) -> None:
        task.status, task.failure = status, failure
        self.running.remove(task)

    def _queue(self, request: Request, parameter: str) -> FifoQueue:
        arn = validation.optional_text(request, parameter)
        if arn is None:
            raise errors.missing_parameter(parameter)
        if len(arn.split(":")) != len(_ARN_FORM.split(":")) or not arn.startswith("arn:"):
            raise errors.invalid_parameter(f"You must use this format to specify the {parameter}: {_ARN_FORM}")
        queue = self.by_arn(arn)
        if queue is None:
            raise errors.resource_not_found(parameter)
        return queue


def _number(request: Request, name: str, largest: int) -> int | None:
    value = validation.whole_number(request, name)
    if value is not None and not 1 <= value <= largest:
        raise errors.invalid_parameter(
            f"Value for parameter {name} is invalid. Reason: You must enter a number that's between 1 and {largest}."
        )
    return value


def _decode(handle: str) -> tuple[str, str]:
    """The task id and the queue's ARN in a task's handle."""
    try:
        content = json.loads(base64.b64decode(handle.encode("ascii"), validate=True))
        task_id, arn = content["taskId"], content["sourceArn"]
    except (binascii.Error, ValueError, TypeError, KeyError, RecursionError):
        raise errors.invalid_parameter("Value for parameter TaskHandle is invalid.") from None
    return str(task_id), str(arn)
