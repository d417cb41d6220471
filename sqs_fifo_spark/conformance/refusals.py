"""The answers that a case meets: which refusal it is, what of it may be shown, and whether it says anything of SQS."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from botocore.exceptions import ClientError

from sqs_fifo_spark.conformance.case import Differs, NotDecided

_UNSUPPORTED = re.compile(r"UnsupportedOperation|InvalidAction|NotImplemented|UnknownOperation|UnknownAction|^501$")
_TROUBLE = re.compile(
    r"Throttl|AccessDenied|NotAuthorized|ExpiredToken|RequestExpired|InvalidClientTokenId|UnrecognizedClient|OptInRequired"
    r"|InvalidAccessKeyId|Signature|InvalidSecurity|InternalError|InternalFailure|ServiceUnavailable|ServerError|^50[0234]$"
)
_PRIVATE = re.compile(r"arn:\S+|\w+://\S+|\S{48,}|\d{12}|\"[^\"]*\"|\bA[KS]IA\w+")


def require(expected: object, seen: object, what: str = "") -> None:
    """Raise Differs unless what was seen is as expected."""
    if expected != seen:
        raise Differs(f"{what} {expected}".strip(), f"{what} {seen}".strip())


def code_of(error: BaseException) -> str:
    found = getattr(error, "response", None)
    return str(found.get("Error", {}).get("Code", "")) if isinstance(found, dict) else ""


def bare(code: str) -> str:
    """Return a code without the prefix that some of them have."""
    return code.removeprefix("AWS.SimpleQueueService.")


def said(error: ClientError) -> str:
    """Return the error's code, and its reason without handles or whatever else the request held."""
    text = str(error.response.get("Error", {}).get("Message", ""))
    text = "" if "<html" in text.lower() else text
    return f"{code_of(error)}: {plain(text.rpartition('Reason: ')[2])[:160]}".removesuffix(": ")


def plain(text: str) -> str:
    """Return the first line, without what may be a handle, an account, a queue's name or whatever a request held."""
    return _PRIVATE.sub("...", text.partition("\n")[0])


def is_trouble(error: ClientError) -> bool:
    """Return whether SQS may answer so to any call: throttled, ill, or for want of permissions or credentials."""
    return bool(_TROUBLE.search(code_of(error))) or (is_broken(error) and not is_unsupported(code_of(error)))


def is_broken(error: ClientError) -> bool:
    """Return whether the endpoint takes the fault upon itself."""
    return bool(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0) >= 500)


def is_unsupported(code: str) -> bool:
    return bool(_UNSUPPORTED.search(code))


def require_refusal(
    codes: str | tuple[str, ...], call: Callable[..., Any], *given: Any, reason: str = "", **more: Any
) -> None:
    """Make a call that SQS refuses with one of these codes, and this in its reason. Raises Differs otherwise.

    Codes are compared without their prefix, which `wire.codes` is about.
    """
    accepted = (codes,) if isinstance(codes, str) else codes
    expected = f"refusal {' or '.join(accepted)}{f' ({reason})' if reason else ''}"
    try:
        call(*given, **more)
    except ClientError as error:
        if is_unsupported(code_of(error)) or is_trouble(error):
            raise
        message = str(error.response.get("Error", {}).get("Message", ""))
        if bare(code_of(error)) not in accepted or reason.lower() not in message.lower():
            raise Differs(expected, said(error)) from None
    else:
        raise Differs(expected, "accepted")


def outcome(call: Callable[..., Any], *given: Any) -> tuple[str, Any]:
    """Make a call; return the code of its refusal, or "", and its answer."""
    try:
        return "", call(*given)
    except ClientError as error:
        if is_unsupported(code_of(error)) or is_trouble(error):
            raise
        return bare(code_of(error)), None


def failures(answer: dict[str, Any]) -> dict[str, str]:
    """Return the codes of a batch's failed entries, without prefix, by their ids.

    Raises NotDecided where SQS failed one of them by no fault of the sender.
    """
    found = {entry["Id"]: bare(entry["Code"]) for entry in answer.get("Failed", [])}
    for code in found.values():
        require_no_trouble(code)
    return found


def require_no_trouble(code: str) -> None:
    """Raise NotDecided for a code with which SQS may refuse anything."""
    if _TROUBLE.search(code):
        raise NotDecided(code)
