"""One receive of driver or task: its call, the retries under its attempt id, and its messages.

An answer is waited for while its bytes come, as long as its messages are worth anything. Then the whole messages are
taken, and later receives ask for no more than comes in time. Messages that were cut off are received once more.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from sqs_fifo_spark.aws.answer import Arrival, arriving
from sqs_fifo_spark.aws.calls import MAX_ENTRIES, Ask
from sqs_fifo_spark.aws.codes import VoidAttemptError, left_out
from sqs_fifo_spark.clock import Clock
from sqs_fifo_spark.errors import QueueRequestError, TransientQueueError
from sqs_fifo_spark.source.message import ALWAYS_THERE, SYSTEM_ATTRIBUTES, Message, from_sqs

_log = logging.getLogger(__name__)

WORTH = 0.8
"""Part of the visibility timeout in which an answer may come: the rest is for holding its messages."""
_RECEIVE_BITS = 53
"""Of the number of a receive: as many as any reader of JSON takes."""
_portions: dict[str, tuple[int, float]] = {}
"""By the queue's URL, the number of messages that this process's link brings in half the time that they may take.

And the time until which it does not rise: by then those that were cut off come again, and are not cut off once more. A
process keeps it, for a task has one receive where the link is slow. It changes only where a transport reports it.
"""


class ReceivedMessages(list[Message]):
    def __init__(self, messages: Iterable[Message] = (), *, since: float = 0.0, is_cut: bool = False) -> None:
        super().__init__(messages)
        self.since = since
        """Monotonic time since which they are hidden, at least."""
        self.is_cut = is_cut
        """True if more was to come. SQS hides the rest for one visibility timeout, then hands it out again."""


class Receive:
    """One receive. `begin` sends it, if anybody calls that; `ask` returns its answer, or makes a try of its own."""

    def __init__(
        self,
        url: str,
        clock: Clock,
        *,
        max_messages: int,
        wait_time_s: int,
        visibility_timeout_s: int,
        to_message: Callable[..., Message] = from_sqs,
    ) -> None:
        """`to_message` makes the message of an entry of the answer, as `from_sqs` does."""
        self._url = url
        self._clock = clock
        self._max_messages = min(MAX_ENTRIES, max_messages)
        self._wait_time_s = wait_time_s
        self._visibility_timeout_s = visibility_timeout_s
        self._to_message = to_message
        self.long_s = wait_time_s if wait_time_s > 1 else 0
        """Seconds that SQS may wait; 0 for a second or less, which is well within the timeout of every other call."""
        self._within_s = WORTH * visibility_timeout_s
        self._is_hiding = False
        """True if a try of it was cut and brought nothing: SQS hides the messages that it had asked for."""
        self._begun_at: tuple[float, float] | None = None
        """The time at which it was begun, on both clocks, until somebody has waited for that."""
        self._pending: Ask | None = None
        self._renew_attempt()
        self._number = self._attempt.int >> 128 - _RECEIVE_BITS

    def _renew_attempt(self) -> None:
        self._attempt = uuid.uuid4()
        self._arrival = Arrival(self.long_s, self._within_s)
        self._most = min(self._max_messages, _portions.get(self._url, (MAX_ENTRIES, 0.0))[0])

    def _arguments(self) -> dict[str, Any]:
        return {
            "MaxNumberOfMessages": self._most,
            "WaitTimeSeconds": self._wait_time_s,
            "VisibilityTimeout": self._visibility_timeout_s,
            "ReceiveRequestAttemptId": str(self._attempt),
            "MessageSystemAttributeNames": list(SYSTEM_ATTRIBUTES),
            "MessageAttributeNames": ["All"],
        }

    def begin(self, begin: Callable[..., Ask]) -> None:
        """Send it by `begin`, which is given its arguments."""
        self._begun_at = self._times()
        with arriving(self._arrival):
            self._pending = begin(**self._arguments())

    def ask(self, call: Callable[..., Mapping[str, Any]]) -> ReceivedMessages:
        """Return the answer by `call`, which is given the `pending` request, or else its arguments.

        Raises TransientQueueError where the next try may succeed. It has the same attempt id, unless that is void or no
        message came whole: then it asks for fewer, and an empty answer is an error, too, as SQS hides the messages.
        """
        received_at, asked_at = self._begun_at or self._times()
        pending, self._begun_at, self._pending = self._pending, None, None
        arrival = self._arrival
        try:
            if pending is not None:
                answer = call(pending=pending)  # it was sent with its arguments
            else:
                with arriving(arrival):
                    answer = call(**self._arguments())
        except VoidAttemptError as error:
            self._renew_attempt()
            raise TransientQueueError(str(error)) from None
        except TransientQueueError:
            if not arrival.is_cut:
                raise
            self._note_portion(0, self._within_s, is_cut=True)
            self._renew_attempt()
            self._is_hiding = True
            raise self._too_slow() from None
        took_s = self._clock.monotonic() - asked_at
        waited_s = min(took_s if arrival.waited_s is None else arrival.waited_s, self.long_s)
        messages = [self._message(each, received_at) for each in (answer.get("Messages") or ())]
        if self._is_hiding and not messages:
            raise self._too_slow()
        if messages and arrival.waited_s is not None:
            self._note_portion(len(messages), took_s - waited_s, is_cut=arrival.is_cut)
        if arrival.is_cut:
            _log.warning(
                "only %d messages of an answer of '%s' came within %g s, four fifths of visibilityTimeoutSeconds, and "
                "SQS hands the others out again: the link is slow. Fewer are asked for at a time. Raise "
                "visibilityTimeoutSeconds, or lower numPartitions.",
                len(messages),
                self._url,
                self._within_s,
            )
        return ReceivedMessages(messages, since=asked_at + waited_s, is_cut=arrival.is_cut)

    def _times(self) -> tuple[float, float]:
        return self._clock.now(), self._clock.monotonic()

    def _note_portion(self, messages: int, took_s: float, *, is_cut: bool) -> None:
        """Let later receives ask for as many as come in half the time that they may take: `messages` took `took_s`."""
        in_time = messages * self._within_s / 2 / max(took_s, 0.001)
        portion, now = max(1, min(MAX_ENTRIES, int(in_time))), self._clock.monotonic()
        last, until = _portions.get(self._url, (MAX_ENTRIES, now))
        if is_cut:
            until = now + self._visibility_timeout_s
        _portions[self._url] = (portion if now >= until else min(portion, last)), until

    def _too_slow(self) -> TransientQueueError:
        return TransientQueueError(
            f"no message of an answer of '{self._url}' came whole within {self._within_s:g} s, four fifths of "
            "visibilityTimeoutSeconds: the link is too slow. SQS hands them out again. Raise visibilityTimeoutSeconds, "
            "or lower numPartitions."
        )

    def _message(self, answer: Mapping[str, Any], received_at: float) -> Message:
        try:
            return self._to_message(answer, receive=self._number, received_at=received_at)
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            system = (answer.get("Attributes") or {}) if isinstance(answer, Mapping) else None
            if isinstance(system, Mapping) and (missing := [each for each in ALWAYS_THERE if each not in system]):
                raise left_out("receive_message", self._url, missing) from None
            name = answer.get("MessageId") if isinstance(answer, Mapping) else None
            # Not the error's text: that may be the message's own.
            raise QueueRequestError(
                f"the answer of '{self._url}' to receive_message has an entry that is no message of a FIFO queue "
                f"(message id {name!r}: {type(error).__name__}). It is still in the queue. Remove it there; or, if "
                "this is not AWS's SQS, correct the service that answers."
            ) from None
