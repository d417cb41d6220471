"""The errors that SQS answers with, code for code.

SQS speaks AWS JSON 1.0 but keeps the error codes of its older query protocol: the body names the error's *shape*, the
header `x-amzn-query-error` its *query code*, and boto3 shows the query code as `Error.Code` while
`client.exceptions.<Shape>` matches the shape. Wordings are AWS's recorded ones where a record is public.
"""

from __future__ import annotations


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


_LEGACY = "AWS.SimpleQueueService."


def invalid_parameter(message: str) -> SqsError:
    """The error for a parameter whose value SQS does not take."""
    return SqsError("InvalidParameterValueException", message, "InvalidParameterValue")


def invalid_value(value: object, parameter: str, reason: str) -> SqsError:
    """The error for one parameter's value, in the sentence that SQS builds for it."""
    return invalid_parameter(f"Value {value} for parameter {parameter} is invalid. Reason: {reason}")


def not_for_this_queue_type(value: object, parameter: str) -> SqsError:
    """The error for a parameter that only the other type of queue takes."""
    return invalid_value(value, parameter, "The request include parameter that is not valid for this queue type.")


def missing_parameter(parameter: str) -> SqsError:
    """The error for a parameter that is required and absent or empty."""
    return SqsError(
        "MissingRequiredParameterException",
        f"The request must contain the parameter {parameter}.",
        "MissingParameter",
    )


def missing_in_entry(parameter: str) -> SqsError:
    """The same as `missing_parameter` for an entry of a batch, where AWS has another code."""
    return invalid_parameter(missing_parameter(parameter).message)


def malformed_request(message: str) -> SqsError:
    """The error for a request that is not of the service model's shape."""
    return SqsError("SerializationException", message)


def unsupported_operation(action: str) -> SqsError:
    """The error for an action that this local queue does not have."""
    return SqsError(
        "UnsupportedOperation",
        f"The local queue does not support the action {action!r}.",
        _LEGACY + "UnsupportedOperation",
    )


def queue_does_not_exist() -> SqsError:
    return SqsError("QueueDoesNotExist", "The specified queue does not exist.", _LEGACY + "NonExistentQueue")


def queue_name_exists(attribute: str) -> SqsError:
    """The error for creating a queue again with another value of `attribute`."""
    return SqsError(
        "QueueNameExists",
        f"A queue already exists with the same name and a different value for attribute {attribute}",
        "QueueAlreadyExists",
    )


def resource_not_found(parameter: str) -> SqsError:
    """The error for an ARN that names no queue, in a request about move tasks."""
    return SqsError(
        "ResourceNotFoundException",
        f"The resource that you specified for the {parameter} parameter doesn't exist.",
        status=404,
    )


def task_does_not_exist() -> SqsError:
    """The error for the handle of a move task that the queue never had, or forgot."""
    return SqsError("ResourceNotFoundException", "Task does not exist.", status=404)


def purge_in_progress(name: str) -> SqsError:
    return SqsError(
        "PurgeQueueInProgress",
        f"Only one PurgeQueue operation on {name} is allowed every 60 seconds.",
        _LEGACY + "PurgeQueueInProgress",
        status=403,
    )


def invalid_attribute_name(name: str) -> SqsError:
    """The error for a queue attribute that does not exist or cannot be set."""
    return SqsError("InvalidAttributeName", f"Unknown Attribute {name}.")


def invalid_attribute_value(name: str, reason: str = "") -> SqsError:
    """The error for a queue attribute's value; `reason` is added where AWS gives one."""
    detail = f" Reason: {reason}" if reason else ""
    return SqsError("InvalidAttributeValue", f"Invalid value for the parameter {name}.{detail}")


def queue_type_is_fixed() -> SqsError:
    """The error for taking FifoQueue away from a queue that has it."""
    return invalid_attribute_value("FifoQueue", "Modifying queue type is not supported.")


def invalid_message_contents() -> SqsError:
    """The error for characters that XML 1.0 does not know."""
    return SqsError(
        "InvalidMessageContents",
        "Invalid characters found. Valid unicode characters are #x9 | #xA | #xD | #x20 to #xD7FF "
        "| #xE000 to #xFFFD | #x10000 to #x10FFFF",
    )


def empty_batch(action: str) -> SqsError:
    return SqsError(
        "EmptyBatchRequest",
        f"There should be at least one {action}RequestEntry in the request.",
        _LEGACY + "EmptyBatchRequest",
    )


def too_many_entries(count: int, maximum: int) -> SqsError:
    return SqsError(
        "TooManyEntriesInBatchRequest",
        f"Maximum number of entries per request are {maximum}. You have sent {count}.",
        _LEGACY + "TooManyEntriesInBatchRequest",
    )


def entry_ids_not_distinct(entry_id: str) -> SqsError:
    return SqsError("BatchEntryIdsNotDistinct", f"Id {entry_id} repeated.", _LEGACY + "BatchEntryIdsNotDistinct")


def invalid_entry_id() -> SqsError:
    """The error for a batch entry's id of the wrong form."""
    return SqsError(
        "InvalidBatchEntryId",
        "A batch entry id can only contain alphanumeric characters, hyphens and underscores. "
        "It can be at most 80 letters long.",
        _LEGACY + "InvalidBatchEntryId",
    )


def batch_too_long(size_bytes: int, maximum_bytes: int) -> SqsError:
    return SqsError(
        "BatchRequestTooLong",
        f"Batch requests cannot be longer than {maximum_bytes} bytes. You have sent {size_bytes} bytes.",
        _LEGACY + "BatchRequestTooLong",
    )


def malformed_handle(handle: str) -> SqsError:
    """The error for a receipt handle that this queue never gave out."""
    return SqsError("ReceiptHandleIsInvalid", f'The input receipt handle "{handle}" is not a valid receipt handle.')


def expired_handle(handle: str) -> SqsError:
    """A FIFO queue's answer to `DeleteMessage` with a handle whose visibility timeout has lapsed."""
    return invalid_value(handle, "ReceiptHandle", "The receipt handle has expired.")


def expired_handle_in_batch() -> SqsError:
    """The same as `expired_handle` in an entry of `DeleteMessageBatch`, where AWS words it otherwise."""
    return SqsError("ReceiptHandleIsInvalid", "The receipt handle has expired")


def not_available_for_change(handle: str) -> SqsError:
    """The error for changing the visibility of a message that was deleted or received by somebody else since."""
    return invalid_value(
        handle,
        "ReceiptHandle",
        "Message does not exist or is not available for visibility timeout change.",
    )


def message_not_in_flight() -> SqsError:
    """The error for changing the visibility of a message that is waiting to be received."""
    return SqsError("MessageNotInflight", "The specified message isn't in flight.", _LEGACY + "MessageNotInflight")


def void_attempt_id(attempt_id: str) -> SqsError:
    """The error for repeating a receive of which a message was deleted or changed since."""
    return invalid_value(
        attempt_id,
        "ReceiveRequestAttemptId",
        "receiveRequestAttemptId is not valid anymore since the receive call is not retryable",
    )


def throttled() -> SqsError:
    return SqsError("ThrottlingException", "Rate exceeded")


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


def expired_token() -> SqsError:
    """The error for a request signed with temporary credentials whose time is over."""
    return SqsError("ExpiredToken", "The security token included in the request is expired", status=403)


def internal_failure() -> SqsError:
    """HTTP 500: the request may be repeated."""
    return SqsError(
        "InternalFailure",
        "The request processing has failed because of an unknown error, exception or failure.",
        status=500,
        sender_fault=False,
    )


def service_unavailable() -> SqsError:
    """HTTP 503: the request may be repeated."""
    return SqsError(
        "ServiceUnavailable",
        "The request has failed due to a temporary failure of the server.",
        status=503,
        sender_fault=False,
    )


def entry_failed() -> SqsError:
    """The failure of a batch entry when the fault is the server's and the entry may be repeated."""
    return SqsError("InternalError", "The entry could not be processed. Try again.", sender_fault=False)
