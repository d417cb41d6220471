"""The one table from SQS's error codes to our errors. Pure: no call, no SDK."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from sqs_fifo_spark.errors import (
    AccessDeniedError,
    QueueNotFoundError,
    QueueRequestError,
    SqsFifoError,
    TransientQueueError,
)

_DENIED = frozenset({"AccessDenied", "UnauthorizedOperation"})
_UNTRUSTED = frozenset(
    {
        "AuthFailure",
        "IncompleteSignature",
        "InvalidSecurity",
        "InvalidSignatureException",
        "MissingAuthenticationToken",
        "OptInRequired",
        "RequestExpired",
        "SignatureDoesNotMatch",
    }
)
"""The call is not taken for one of an identity's at all, whatever permissions that has."""
STALE = frozenset(
    {
        "ExpiredToken",
        "ExpiredTokenException",
        "InvalidAccessKeyId",
        "InvalidClientTokenId",
        "UnrecognizedClientException",
    }
)
"""The credentials themselves are refused, not their permissions."""
_MISSING = frozenset({"AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist", "ResourceNotFoundException"})
_TRANSIENT = frozenset(
    {
        "InternalError",
        "InternalFailure",
        "RequestTimeout",
        "ServiceUnavailable",
        "Unavailable",
    }
)
_TOO_MANY = frozenset({"OverLimit", "RequestLimitExceeded", "TooManyRequests"})


LIST = "list_queues"
"""The one operation that is not about a single queue."""
SEND = "send_message_batch"
"""The one operation whose messages can be refused."""
_ABOUT_MESSAGES = frozenset(
    {
        "BatchRequestTooLong",
        "InvalidAttributeValue",
        "InvalidMessageContents",
        "InvalidParameterValue",
        "MissingParameter",
    }
)


_TIME = re.compile(r"\b\d{8}T\d{6}Z\b")
_QUOTED = re.compile(r"\bValue\b.*\bfor parameter\b", re.DOTALL)
_LONGEST_REASON = 200


class MessageRefusedError(QueueRequestError):
    """SQS does not take a message of the call, for good. `code` is AWS's, `reason` its text on it."""

    def __init__(self, text: str, code: str, reason: str) -> None:
        super().__init__(text, code, reason)
        self.code = code
        self.reason = reason

    def __str__(self) -> str:
        return str(self.args[0])


class LostHoldError(QueueRequestError):
    """The entry's handle does not hold its message any more."""


class VoidAttemptError(QueueRequestError):
    """The attempt id of a receive is void: one of its messages was deleted or released since."""


def error_from_aws(
    operation: str,
    queue_url: str,
    code: str,
    message: str,
    *,
    status: int = 400,
    sender_fault: Mapping[str, Any] | None = None,
) -> SqsFifoError:
    """Return our error for AWS's `code` and `message`; the recorded texts are in the SQS API's own documents."""
    said = f"{operation} on '{queue_url}': {code}"
    kind, text = code.rpartition(".")[2].removesuffix("Exception"), message.lower()
    # First of all: LocalStack gives an expired handle of a batch as a fault of its own.
    if (
        code in ("ReceiptHandleIsInvalid", "MessageNotInflight", "AWS.SimpleQueueService.MessageNotInflight")
        or "receipt handle has expired" in text
        or "not available for visibility timeout change" in text
        or "total visibilitytimeout" in text
    ):
        return LostHoldError(said)
    server_fault = status >= 500 or (sender_fault is not None and not sender_fault.get("SenderFault", True))
    is_throttling = "Throttl" in code or kind in _TOO_MANY or status == 429
    if kind in _TRANSIENT or is_throttling or server_fault or status == 408:
        error = TransientQueueError(f"{said}, and again until the time to retry was over. Nothing is lost.")
        error.is_throttling = is_throttling
        return error
    if is_wrong_clock(code, message):
        times = _TIME.findall(message)  # nothing else of the text is shown
        shown = f": it was signed at {times[0]}, and AWS's clock says {times[-1]}" if len(times) > 1 else ""
        return AccessDeniedError(
            f"AWS refuses the time of a call ({said}){shown}. They may differ by a few minutes at most. "
            "Synchronise the clocks of driver and executors with a time server."
        )
    if code in STALE:
        return AccessDeniedError(
            f"AWS does not take the credentials ({said}). Renew them where driver and executors find them, and start "
            "the query again; those of a role or an instance profile are renewed by themselves."
        )
    if kind in _DENIED or code in _UNTRUSTED or _is_of_key(code) or status == 403:
        denied = AccessDeniedError(f"AWS denied {said}. {_remedy(operation, code)}")
        denied.is_of_queue = (kind in _DENIED or _is_of_key(code)) and not operation.startswith("AssumeRole")
        return denied
    if code in _MISSING:
        return QueueNotFoundError(f"the queue '{queue_url}' does not exist ({operation}: {code}). Correct 'queueUrl'.")
    if "receiverequestattemptid is not valid anymore" in text:
        return VoidAttemptError(f"{said}: the attempt id is void")
    if kind == "InvalidAddress":
        return QueueRequestError(
            f"SQS refused {said}: the address is not valid for the endpoint that was called. Correct 'region' or "
            "'endpointUrl' so that they fit 'queueUrl', or leave them out."
        )
    refused = f"SQS refused {said}. The request cannot succeed as it is; it had no effect."
    if operation == SEND and kind in _ABOUT_MESSAGES:
        return MessageRefusedError(refused, code, _reason_in(message))
    return QueueRequestError(refused)


def left_out(operation: str, queue_url: str, names: Iterable[str]) -> QueueRequestError:
    """Return the error for an answer that lacks `names`, which SQS always gives."""
    return QueueRequestError(
        f"'{queue_url}' has left {', '.join(names)} out of its answer to {operation}. AWS's SQS never does: an "
        "emulator or a proxy answers. Nothing of that answer is used. Use an endpoint that gives it; docs/emulators.md "
        "says which emulators do, and for which messages."
    )


def _reason_in(message: str) -> str:
    """Return AWS's reason in one short line, without the value that it quotes."""
    text = " ".join(_QUOTED.sub("the value for parameter", message).split())
    return text[:_LONGEST_REASON].rstrip(" .") if text.isprintable() else ""


def is_signed_too_early(code: str, message: str) -> bool:
    """Return whether a signature is refused for its age: a slow clock, or a machine that stood still before sending.

    A refused signature has had no effect, and a new one may do.
    """
    return code == "RequestExpired" or (code in _UNTRUSTED and "signature expired" in message.lower())


def is_wrong_clock(code: str, message: str) -> bool:
    """Return whether AWS refuses a signature for its time."""
    is_early = code in _UNTRUSTED and "signature not yet current" in message.lower()
    return is_early or is_signed_too_early(code, message)


def _is_of_key(code: str) -> bool:
    """Return whether the key of an encrypted queue cannot be used, as in `KmsDisabled` and `KMS.DisabledException`."""
    return code.lower().startswith("kms")


def _remedy(operation: str, code: str) -> str:
    """Return the remedy for a call that was denied. The permission of a batch call is that of the single one."""
    if code == "InvalidSecurity":
        return (
            "SQS takes calls over HTTPS alone, signed with version 4: use https:// in 'queueUrl' and 'endpointUrl', "
            "and let no proxy change the calls."
        )
    if code in _UNTRUSTED:
        return "Correct the credentials that driver and executors find."
    if _is_of_key(code):
        return (
            "Grant the permissions 'kms:Decrypt' and, for a sink, 'kms:GenerateDataKey' on the key that encrypts the "
            "queue, and see that it is enabled."
        )
    if operation.startswith("AssumeRole"):
        return f"Let the role's trust policy and, for 'roleArn', a policy of the caller allow 'sts:{operation}'."
    action = operation.removesuffix("_batch").title().replace("_", "")
    if operation == LIST:
        return f"Grant the permission 'sqs:{action}' on '*', for AWS knows no narrower one, or correct the credentials."
    return f"Grant the permission 'sqs:{action}' on the queue, or correct the credentials."
