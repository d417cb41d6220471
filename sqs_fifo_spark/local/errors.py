"""The errors that SQS answers with, code for code.

SQS speaks AWS JSON 1.0 but keeps the error codes of its older query protocol: the body names the error's *shape*, the
header `x-amzn-query-error` its *query code*, and boto3 shows the query code as `Error.Code` while
`client.exceptions.<Shape>` matches the shape. Wordings are AWS's recorded ones where a record is public.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class SqsError(Exception):
    """A refusal in AWS's words: nothing took effect. Never carries a message body.

    `shape` is the error's name in the service model, `query_code` the code that boto3 shows, `status` the HTTP status;
    `sender_fault` is False for a fault that AWS calls its own.
    """

    def __init__(
        self,
        shape: str,
        message: str,
        query_code: str | None = None,
        status: int = 400,
        sender_fault: bool = True,
    ) -> None:
        super().__init__(shape, message, query_code, status, sender_fault)
        self.shape = shape
        self.message = message
        self.query_code = shape if query_code is None else query_code
        self.status = status
        self.sender_fault = sender_fault

    def __str__(self) -> str:
        return f"{self.query_code}: {self.message}"


def _error(shape: str, text: str, query_code: str | None = None, **more: Any) -> Callable[..., SqsError]:
    """Return the function that makes this error; its arguments fill the braces of `text`."""
    return lambda *values: SqsError(shape, text.format(*values), query_code, **more)


def _legacy(shape: str, text: str, query_code: str | None = None, **more: Any) -> Callable[..., SqsError]:
    return _error(shape, text, f"AWS.SimpleQueueService.{query_code or shape}", **more)


def _invalid(text: str) -> Callable[..., SqsError]:
    return _error("InvalidParameterValueException", text, "InvalidParameterValue")


_MISSING = "The request must contain the parameter {}."

invalid_parameter = _invalid("{}")
invalid_value = _invalid("Value {} for parameter {} is invalid. Reason: {}")
not_for_this_queue_type = _invalid(
    "Value {} for parameter {} is invalid. Reason: The request include parameter that is not valid for this queue type."
)
missing_parameter = _error("MissingRequiredParameterException", _MISSING, "MissingParameter")
missing_in_entry = _invalid(_MISSING)
malformed_request = _error("SerializationException", "{}")
unsupported_operation = _legacy("UnsupportedOperation", "The local queue does not support the action {!r}.")

queue_does_not_exist = _legacy("QueueDoesNotExist", "The specified queue does not exist.", "NonExistentQueue")
queue_name_exists = _error(
    "QueueNameExists",
    "A queue already exists with the same name and a different value for attribute {}",
    "QueueAlreadyExists",
)
purge_in_progress = _legacy(
    "PurgeQueueInProgress", "Only one PurgeQueue operation on {} is allowed every 60 seconds.", status=403
)
invalid_attribute_name = _error("InvalidAttributeName", "Unknown Attribute {}.")
invalid_attribute_value = _error("InvalidAttributeValue", "Invalid value for the parameter {}.")
queue_type_is_fixed = _error(
    "InvalidAttributeValue",
    "Invalid value for the parameter FifoQueue. Reason: Modifying queue type is not supported.",
)
high_throughput_needs_scope = _error(
    "InvalidAttributeValue",
    "Invalid value for the parameter FifoThroughputLimit. Reason: perMessageGroupId is allowed only when "
    "DeduplicationScope is messageGroup.",
)
resource_not_found = _error(
    "ResourceNotFoundException", "The resource that you specified for the {} parameter doesn't exist.", status=404
)
task_does_not_exist = _error("ResourceNotFoundException", "Task does not exist.", status=404)

# Characters that XML 1.0 does not know.
invalid_message_contents = _error(
    "InvalidMessageContents",
    "Invalid characters found. Valid unicode characters are #x9 | #xA | #xD | #x20 to #xD7FF "
    "| #xE000 to #xFFFD | #x10000 to #x10FFFF",
)
empty_batch = _legacy("EmptyBatchRequest", "There should be at least one {}RequestEntry in the request.")
too_many_entries = _legacy(
    "TooManyEntriesInBatchRequest", "Maximum number of entries per request are {}. You have sent {}."
)
entry_ids_not_distinct = _legacy("BatchEntryIdsNotDistinct", "Id {} repeated.")
invalid_entry_id = _legacy(
    "InvalidBatchEntryId",
    "A batch entry id can only contain alphanumeric characters, hyphens and underscores. "
    "It can be at most 80 letters long.",
)
batch_too_long = _legacy(
    "BatchRequestTooLong", "Batch requests cannot be longer than {} bytes. You have sent {} bytes."
)

malformed_handle = _error("ReceiptHandleIsInvalid", 'The input receipt handle "{}" is not a valid receipt handle.')
# A FIFO queue's answers to a delete with a handle whose visibility timeout has lapsed, alone and in a batch.
expired_handle = _invalid("Value {} for parameter ReceiptHandle is invalid. Reason: The receipt handle has expired.")
expired_handle_in_batch = _error("ReceiptHandleIsInvalid", "The receipt handle has expired")
# To change the visibility of a message that was deleted or received by somebody else since, or that waits.
not_available_for_change = _invalid(
    "Value {} for parameter ReceiptHandle is invalid. Reason: Message does not exist or is not available for "
    "visibility timeout change."
)
message_not_in_flight = _legacy("MessageNotInflight", "The specified message isn't in flight.")
# To repeat a receive of which a message was deleted or changed since.
void_attempt_id = _invalid(
    "Value {} for parameter ReceiveRequestAttemptId is invalid. Reason: receiveRequestAttemptId is not valid anymore "
    "since the receive call is not retryable"
)

throttled = _error("ThrottlingException", "Rate exceeded")
expired_token = _error("ExpiredToken", "The security token included in the request is expired", status=403)
# The server's faults: the request, or the entry of a batch, may be repeated.
internal_failure = _error(
    "InternalFailure",
    "The request processing has failed because of an unknown error, exception or failure.",
    status=500,
    sender_fault=False,
)
service_unavailable = _error(
    "ServiceUnavailable",
    "The request has failed due to a temporary failure of the server.",
    status=503,
    sender_fault=False,
)
entry_failed = _error("InternalError", "The entry could not be processed. Try again.", sender_fault=False)


def access_denied(action: str, resource: str, *, user: str = "local", is_explicit: bool = False) -> SqsError:
    """The error for an action that the caller's policies do not allow, or, `is_explicit`, that one denies."""
    permission = f"sqs:{action.removesuffix('Batch').lower()}"
    reason = (
        "with an explicit deny in an identity-based policy"
        if is_explicit
        else f"because no identity-based policy allows the {permission} action"
    )
    return SqsError(
        "AccessDeniedException",
        f"User: arn:aws:iam::000000000000:user/{user} is not authorized to perform: {permission} on resource: "
        f"{resource} {reason}",
        "AccessDenied",
        status=403,
    )
