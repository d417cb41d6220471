"""Messages and lists in the local queue's responses, in the shapes of AWS's service model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sqs_fifo_spark.local import payload, validation
from sqs_fifo_spark.local.draft import MessageDraft
from sqs_fifo_spark.local.fifo import FifoQueue, SentMessage
from sqs_fifo_spark.local.message_store import StoredMessage

_SENDER_ID = "AIDALOCALQUEUESENDER0"

Response = dict[str, Any]


def send_response(queue: FifoQueue, message: SentMessage, draft: MessageDraft) -> Response:
    """The response of a send. A standard queue's has no sequence number."""
    shown = {
        "MessageId": message.message_id,
        "MD5OfMessageBody": draft.body_md5,
        "MD5OfMessageAttributes": draft.attributes_md5,
        "MD5OfMessageSystemAttributes": draft.system_attributes_md5,
        "SequenceNumber": str(message.sequence) if queue.settings.is_fifo else None,
    }
    return {name: value for name, value in shown.items() if value is not None}


def received_message(
    queue: FifoQueue, message: StoredMessage, system_names: frozenset[str], attribute_names: list[str]
) -> Response:
    """One message of a receive's response, with the system and message attributes that were asked for."""
    draft = message.draft
    shown: Response = {
        "MessageId": message.message_id,
        "ReceiptHandle": queue.handle_of(message),
        "MD5OfBody": draft.body_md5,
        "Body": draft.body,
    }
    if system_names:
        system = _system_attributes(queue, message)
        if "All" not in system_names:
            system = {name: value for name, value in system.items() if name in system_names}
        if system:
            shown["Attributes"] = system
    attributes = payload.select_attributes(draft.attributes, attribute_names)
    if attributes:
        shown["MessageAttributes"] = attributes
        # Over the returned attributes, not over the sent ones: so a client can check them.
        shown["MD5OfMessageAttributes"] = (
            draft.attributes_md5 if len(attributes) == len(draft.attributes) else payload.attributes_md5(attributes)
        )
    return shown


def page(request: Mapping[str, Any], names: Iterable[str]) -> tuple[list[str], Response]:
    """The names that the request's page shows, sorted, and the token of the next page if there is one."""
    limit = validation.optional_number(request, "MaxResults", 1, 1_000)
    after = validation.optional_text(request, "NextToken")
    rest = sorted(name for name in names if after is None or name > after)
    page = rest if limit is None else rest[:limit]
    return page, {"NextToken": page[-1]} if len(page) < len(rest) else {}


def _system_attributes(queue: FifoQueue, message: StoredMessage) -> dict[str, str]:
    assert message.first_received_at is not None
    found = {
        "SenderId": _SENDER_ID,
        "SentTimestamp": _milliseconds(message.sent_at),
        "ApproximateReceiveCount": str(message.receive_count),
        "ApproximateFirstReceiveTimestamp": _milliseconds(message.first_received_at),
        "SequenceNumber": str(message.sequence) if queue.settings.is_fifo else None,
        "MessageGroupId": message.draft.group_id,
        "MessageDeduplicationId": message.draft.deduplication_id,
        "AWSTraceHeader": message.draft.trace_header,
        "DeadLetterQueueSourceArn": message.source_arn,
    }
    return {name: value for name, value in found.items() if value is not None}


def _milliseconds(at: float) -> str:
    return str(int(at * 1_000))
