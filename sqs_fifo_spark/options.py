"""Option strings become a frozen `SourceOptions`, or one clear line that says what is wrong.

Nothing here touches the network or the disk, so all of it is checked at the user's `.load()`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

from sqs_fifo_spark.errors import NotFifoQueueError, OptionError

MAX_VISIBILITY_S = 43_200
"""SQS holds a message for at most 12 hours."""
MAX_WAIT_S = 20
"""SQS's longest long poll."""
MAX_IN_FLIGHT = 120_000
"""SQS's cap of messages in flight in one FIFO queue."""
JOURNAL_SCHEMES = ("file", "s3", "s3a", "gs", "az", "abfs", "abfss")

# Spark itself puts `path` among a reader's options.
_ADDED_BY_SPARK = frozenset({"path"})
_AWS_REGION = re.compile(r"(?:^|\.)([a-z]{2}(?:-[a-z]+)+-\d)\.(?:.+\.)?(?:amazonaws\.com|amazonaws\.com\.cn|api\.aws)$")
# Hosts that boto3 derives from the region itself. Any other, a FIPS or a VPC endpoint above all, is called as given.
_PLAIN_AWS_HOST = re.compile(
    r"sqs\.[a-z0-9-]+\.amazonaws\.com(?:\.cn)?|(?:[a-z0-9-]+\.)?queue\.amazonaws\.com(?:\.cn)?"
)
_PASSWORD = re.compile(r"(?:[^/]*//)?[^/@]*:[^/@]*@")
_ROLE_ARN = re.compile(r"arn:aws[a-z-]*:iam::\d{12}:role/\S+")
_BYTES = re.compile(r"(\d+)\s*(?:([kmg])i?)?b?", re.IGNORECASE)
_BYTE_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


@dataclass(frozen=True)
class Option:
    """One row of the options table: the name users write, the field it fills, and its rules."""

    name: str
    field: str
    parse: Callable[[Option, str], Any]
    default: str
    meaning: str
    low: float = 0
    high: float = 0


@dataclass(frozen=True)
class SourceOptions:
    """What a user chose, checked and complete. Durations end in `_s` and are seconds."""

    queue_url: str
    journal_location: str
    region: str | None
    endpoint_url: str | None
    role_arn: str | None
    role_session_name: str
    external_id: str | None = field(repr=False)
    visibility_timeout_s: int
    heartbeat_s: float
    wait_time_s: int
    max_messages_per_trigger: int
    max_bytes_per_trigger: int
    max_fetch_s: float
    num_partitions: int
    delete_after: str
    fail_on_data_loss: bool


def _refuse(option: Option, value: str, rule: str) -> OptionError:
    return OptionError(f"option '{option.name}' is {value!r}; {rule}")


def _text(option: Option, value: str) -> str:
    return value


def _number(option: Option, value: str, convert: Callable[[str], float], kind: str) -> float:
    rule = f"it must be {kind} from {option.low:g} to {option.high:g}."
    try:
        number = convert(value if "_" not in value else "")
    except ValueError:
        raise _refuse(option, value, rule) from None
    if not option.low <= number <= option.high:
        raise _refuse(option, value, rule)
    return number


def _whole(option: Option, value: str) -> int:
    return int(_number(option, value, int, "a whole number"))


def _seconds(option: Option, value: str) -> float:
    return _number(option, value, float, "a number of seconds")


def _bytes(option: Option, value: str) -> int:
    match = _BYTES.fullmatch(value)
    size = int(match[1]) * _BYTE_UNITS[(match[2] or "").lower()] if match else 0
    if not size:
        raise _refuse(option, value, "it must be a number of bytes above 0, such as 67108864 or 64m.")
    return size


def _boolean(option: Option, value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise _refuse(option, value, "it must be true or false.")
    return value.lower() == "true"


def _delete_after(option: Option, value: str) -> str:
    if value.lower() != "commit":
        raise _refuse(
            option,
            value,
            "it must be 'commit': this version deletes a message only after Spark has committed its micro-batch.",
        )
    return "commit"


def _without_password(option: Option, value: str) -> str:
    """Refuse a URL with a password in it, and do not show it."""
    if _PASSWORD.match(value):
        raise OptionError(
            f"option '{option.name}' holds a password; credentials come from the AWS chain (environment, profile, "
            "instance role) or from 'roleArn', never from a URL."
        )
    return value


def _without_query(option: Option, value: str) -> str:
    """Refuse a query string, and do not show it: it may be a signature or a token."""
    if "://" in value and ("?" in value or "#" in value):
        raise OptionError(f"option '{option.name}' holds a '?' or a '#'; give the plain location, without parameters.")
    return value


def _url(option: Option, value: str) -> str:
    try:
        parts = urlsplit(_without_password(option, value))
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        usable = False
    if not usable:
        raise _refuse(option, value, "it must be an http:// or https:// URL.")
    return value


def _queue_url(option: Option, value: str) -> str:
    path = urlsplit(_url(option, _without_query(option, value))).path.rstrip("/")
    if path.count("/") < 2:
        example = "https://sqs.eu-west-1.amazonaws.com/123456789012/bids.fifo"
        raise _refuse(option, value, f"it must be a queue's URL, such as {example}.")
    if not path.endswith(".fifo"):
        raise NotFifoQueueError(
            f"option '{option.name}' is {value!r}, a standard queue: the name of a FIFO queue ends in '.fifo'. "
            "This source keeps the order of message groups, which a standard queue does not have."
        )
    return value


def _journal_location(option: Option, value: str) -> str:
    _without_query(option, _without_password(option, value))
    scheme = urlsplit(value).scheme if "://" in value else ""
    if scheme and scheme not in JOURNAL_SCHEMES:
        known = ", ".join(f"{name}://" for name in JOURNAL_SCHEMES)
        raise _refuse(option, value, f"it must be an absolute path or begin with one of {known}.")
    if not scheme and not value.startswith("/"):
        raise _refuse(
            option,
            value,
            "a path must be absolute, because driver and executors do not share a working directory.",
        )
    path = unquote(urlsplit(value).path) if scheme else value
    if not path.isprintable() or {".", ".."} & set(path.split("/")):
        raise _refuse(option, value, "it must not hold '.' or '..', which behind a link lead elsewhere. Write it out.")
    if scheme == "file" and (urlsplit(value).netloc or not urlsplit(value).path.startswith("/")):
        raise _refuse(option, value, "a file:// location must hold an absolute path, as in file:///data/journal.")
    if scheme not in ("", "file") and not urlsplit(value).netloc:
        raise _refuse(option, value, "it must name a bucket or container, as in s3://bucket/journals/bids.")
    return value


def _role_arn(option: Option, value: str) -> str:
    if not _ROLE_ARN.fullmatch(value):
        raise _refuse(option, value, "it must be a role's ARN, such as arn:aws:iam::123456789012:role/reader.")
    return value


OPTIONS = (
    Option("queueUrl", "queue_url", _queue_url, "required", "URL of the FIFO queue."),
    Option(
        "journalLocation",
        "journal_location",
        _journal_location,
        "required",
        "Where received messages are kept until they are committed: an absolute path that driver and executors "
        "share, or `s3://`, `gs://`, `az://`. One location for each query.",
    ),
    Option("region", "region", _text, "from the URL, else the AWS chain", "AWS region of the queue."),
    Option(
        "endpointUrl",
        "endpoint_url",
        _url,
        "AWS's for the region, or the host of a `queueUrl` that is another",
        "Endpoint of SQS.",
    ),
    Option("roleArn", "role_arn", _role_arn, "none", "Role to assume for the calls to SQS (not for the journal)."),
    Option("roleSessionName", "role_session_name", _text, "sqs-fifo-spark", "Session name of the assumed role."),
    Option("externalId", "external_id", _text, "none", "External id that the role's trust policy asks for."),
    Option(
        "visibilityTimeoutSeconds",
        "visibility_timeout_s",
        _whole,
        "120",
        "How long SQS hides a received message from others unless the hold is renewed. When the driver dies, its "
        "messages are free after this time.",
        1,
        MAX_VISIBILITY_S,
    ),
    Option(
        "heartbeatSeconds",
        "heartbeat_s",
        _seconds,
        "a third of visibilityTimeoutSeconds",
        "How long after a receive or a renewal a held message is renewed.",
        0.1,
        MAX_VISIBILITY_S / 3,
    ),
    Option(
        "waitTimeSeconds",
        "wait_time_s",
        _whole,
        "20",
        "How long the driver's long poll waits on an empty queue.",
        1,
        MAX_WAIT_S,
    ),
    Option(
        "maxMessagesPerTrigger",
        "max_messages_per_trigger",
        _whole,
        "10000",
        "Most messages in one micro-batch.",
        1,
        MAX_IN_FLIGHT,
    ),
    Option(
        "maxBytesPerTrigger",
        "max_bytes_per_trigger",
        _bytes,
        "67108864 (64m)",
        "Bytes of message bodies and attributes after which a micro-batch takes no further receive.",
    ),
    Option(
        "maxFetchSeconds",
        "max_fetch_s",
        _seconds,
        "5, at most a quarter of visibilityTimeoutSeconds",
        "Longest time that a partition goes on receiving.",
        0.1,
        MAX_VISIBILITY_S / 2,
    ),
    Option(
        "numPartitions",
        "num_partitions",
        _whole,
        "8",
        "Most partitions of one micro-batch; a short queue gets fewer.",
        1,
        1000,
    ),
    Option(
        "deleteAfter", "delete_after", _delete_after, "commit", "When a message is deleted: after Spark's `commit`."
    ),
    Option(
        "failOnDataLoss",
        "fail_on_data_loss",
        _boolean,
        "true",
        "Whether to stop when the journal no longer holds what the checkpoint refers to.",
    ),
)
_BY_LOWER_NAME = {option.name.lower(): option for option in OPTIONS}
_BY_FIELD = {option.field: option for option in OPTIONS}


def parse_source_options(given: Mapping[str, str]) -> SourceOptions:
    """Return the options of a source, complete with defaults; keys are compared without regard to case.

    Raises OptionError, or NotFifoQueueError for the URL of a standard queue, with one line that says what
    to change.
    """
    values: dict[str, Any] = {}
    for key, text in given.items():
        if key.lower() in _ADDED_BY_SPARK:
            continue
        option = _BY_LOWER_NAME.get(key.lower())
        if option is None:
            raise OptionError(f"unknown option {key!r}. {_suggest(key)}")
        if text is None or not str(text).strip():
            raise OptionError(f"option '{option.name}' is empty; give it a value or leave it out.")
        value = str(text).strip()
        if not value.isprintable():  # no path, URL or header takes it, and it would break the lines of logs
            raise _refuse(option, value, "it must not hold line breaks or other control characters.")
        values[option.field] = option.parse(option, value)
    for required in ("queue_url", "journal_location"):
        if required not in values:
            option = _BY_FIELD[required]
            raise OptionError(f"option '{option.name}' is missing. {option.meaning}")
    if "role_arn" not in values:
        for needs_role in ("role_session_name", "external_id"):
            if needs_role in values:
                raise OptionError(
                    f"option '{_BY_FIELD[needs_role].name}' is given without 'roleArn', so it would have no effect. "
                    "Give roleArn, or leave it out."
                )
    return _complete(values)


def _complete(values: dict[str, Any]) -> SourceOptions:
    """Fill in the defaults, which follow from one another and so never conflict, and check the rest."""
    region, endpoint = _place_of(values["queue_url"])
    visibility: int = values.setdefault("visibility_timeout_s", 120)
    options = SourceOptions(
        queue_url=values["queue_url"],
        journal_location=values["journal_location"],
        region=values.get("region", region),
        endpoint_url=values.get("endpoint_url", endpoint),
        role_arn=values.get("role_arn"),
        role_session_name=values.get("role_session_name", "sqs-fifo-spark"),
        external_id=values.get("external_id"),
        visibility_timeout_s=visibility,
        heartbeat_s=values.get("heartbeat_s", visibility / 3),
        wait_time_s=values.get("wait_time_s", MAX_WAIT_S),
        max_messages_per_trigger=values.get("max_messages_per_trigger", 10_000),
        max_bytes_per_trigger=values.get("max_bytes_per_trigger", 64 << 20),
        max_fetch_s=values.get("max_fetch_s", min(5.0, visibility / 4)),
        num_partitions=values.get("num_partitions", 8),
        delete_after=values.get("delete_after", "commit"),
        fail_on_data_loss=values.get("fail_on_data_loss", True),
    )
    _require_share(
        options.heartbeat_s,
        _BY_FIELD["heartbeat_s"],
        visibility,
        3,
        "a third",
        "so that two failed renewals can be retried before SQS hands the messages to somebody else",
    )
    _require_share(
        options.max_fetch_s,
        _BY_FIELD["max_fetch_s"],
        visibility,
        2,
        "half",
        "so that what was received can be written to the journal while it is still held",
    )
    return options


def _require_share(value: float, option: Option, visibility: int, parts: int, share: str, reason: str) -> None:
    if value > visibility / parts:
        needed = -(-value * parts // 1)
        remedy = f"Lower it, or raise visibilityTimeoutSeconds to {needed:g}."
        raise OptionError(
            f"option '{option.name}' is '{value:g}'; it must be at most {visibility / parts:g}, {share} of "
            f"'visibilityTimeoutSeconds' ({visibility}), {reason}. {remedy}"
        )


def _suggest(key: str) -> str:
    near = difflib.get_close_matches(key.lower(), _BY_LOWER_NAME, n=1, cutoff=0.6)
    if near:
        return f"Did you mean '{_BY_LOWER_NAME[near[0]].name}'?"
    return f"The options are {', '.join(option.name for option in OPTIONS)}."


def _place_of(queue_url: str) -> tuple[str | None, str | None]:
    """Return the region that the URL names, if it does, and the endpoint, unless it follows from the region."""
    parts = urlsplit(queue_url)
    host = parts.hostname or ""
    region = _AWS_REGION.search(host)
    endpoint = None if _PLAIN_AWS_HOST.fullmatch(host) else f"{parts.scheme}://{parts.netloc}"
    return region and region[1], endpoint


def options_table() -> str:
    """Return the options as a Markdown table, for the README."""
    rows = ["| option | default | meaning |", "|---|---|---|"]
    rows += [f"| `{option.name}` | {option.default} | {option.meaning} |" for option in OPTIONS]
    return "\n".join(rows)
