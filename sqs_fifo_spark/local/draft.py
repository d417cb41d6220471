"""A send's request, checked against the queue that it is for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sqs_fifo_spark.local import errors, payload, validation
from sqs_fifo_spark.local.settings import Settings


@dataclass(frozen=True, slots=True, repr=False)
class MessageDraft:
    """A message as it was sent, wherever it stands now. Its repr shows no body."""

    group_id: str | None
    deduplication_id: str | None
    delay_s: int
    body: str
    body_md5: str
    attributes: dict[str, Any]
    attributes_md5: str | None
    system_attributes_md5: str | None
    trace_header: str | None


def read(request: dict[str, Any], settings: Settings) -> MessageDraft:
    """Make a draft of `request`, with its content's deduplication id on such a queue. Raises SQS's refusal."""
    text, encoded = validation.body(request)
    attributes = validation.message_attributes(request)
    trace_header, system_attributes = validation.trace_header(request)
    limit = settings.maximum_message_bytes
    if payload.message_bytes(encoded, attributes) > limit:
        raise errors.invalid_parameter(
            f"One or more parameters are invalid. Reason: Message must be shorter than {limit} bytes."
        )
    group_id = validation.optional_text(request, "MessageGroupId")
    deduplication_id = validation.optional_text(request, "MessageDeduplicationId")
    delay_s = validation.optional_number(request, "DelaySeconds", 0, 900)
    require_ids(request, settings, no_group=errors.missing_parameter)
    if settings.is_fifo:
        if delay_s:
            raise errors.not_for_this_queue_type(delay_s, "DelaySeconds")
        # Nor does 0 take anything away: on FIFO the delay is the queue's.
        delay_s = None
        if deduplication_id is None:
            deduplication_id = payload.content_deduplication_id(encoded)
        validation.fifo_id(deduplication_id, "MessageDeduplicationId")
    elif deduplication_id is not None:
        raise errors.not_for_this_queue_type(deduplication_id, "MessageDeduplicationId")
    if group_id is not None:
        validation.fifo_id(group_id, "MessageGroupId")
    return MessageDraft(
        group_id=group_id,
        deduplication_id=deduplication_id,
        delay_s=settings.delay_s if delay_s is None else delay_s,
        body=text,
        body_md5=payload.body_md5(encoded),
        attributes=attributes,
        attributes_md5=payload.attributes_md5(attributes),
        system_attributes_md5=payload.attributes_md5(system_attributes),
        trace_header=trace_header,
    )


def require_ids(request: dict[str, Any], settings: Settings, *, no_group: Callable[[str], errors.SqsError]) -> None:
    """Raise when an id is absent that the queue cannot do without; an entry without it fails its whole batch.

    Raises the error of `no_group` for the group id, InvalidParameterValue for the deduplication id. An empty id is not
    absent but invalid, and fails its entry alone.
    """
    if not settings.is_fifo:
        return
    if request.get("MessageGroupId") is None:
        raise no_group("MessageGroupId")
    if request.get("MessageDeduplicationId") is None and not settings.content_based_deduplication:
        raise errors.invalid_parameter(
            "The queue should either have ContentBasedDeduplication enabled or "
            "MessageDeduplicationId provided explicitly"
        )
