"""What the options of source and sink have in common: a table of options, the rules for values, one way to read them.

Nothing here touches the network or the disk.
"""

from __future__ import annotations

import difflib
import ipaddress
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

from sqs_fifo_spark.errors import NotFifoQueueError, OptionError

JOURNAL_SCHEMES = ("file", "s3", "s3a", "gs", "az", "abfs", "abfss")

_AWS_REGION = re.compile(r"(?:^|\.)([a-z]{2}(?:-[a-z]+)+-\d)\.(?:.+\.)?(?:amazonaws\.com|amazonaws\.com\.cn|api\.aws)$")
# Hosts that boto3 derives from the region itself. Any other, a FIPS or a VPC endpoint above all, is called as given.
_PLAIN_AWS_HOST = re.compile(
    r"sqs\.[a-z0-9-]+\.amazonaws\.com(?:\.cn)?|(?:[a-z0-9-]+\.)?queue\.amazonaws\.com(?:\.cn)?"
)
# Hosts that the AWS SDK takes; it refuses any other when it is first used, and not in our words.
_HOST = re.compile(r"(?=.{1,255}$)(?:(?!-)[a-z0-9-]{1,63}(?<!-)\.)*(?!-)[a-z0-9-]{1,63}(?<!-)\.?")
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


def refuse(option: Option, value: str, rule: str) -> OptionError:
    return OptionError(f"option '{option.name}' is {value!r}; {rule}")


def text(option: Option, value: str) -> str:
    return value


def _number(option: Option, value: str, convert: Callable[[str], float], kind: str) -> float:
    rule = f"it must be {kind} from {option.low:g} to {option.high:g}."
    try:
        number = convert(value if "_" not in value else "")
    except ValueError:
        raise refuse(option, value, rule) from None
    if not option.low <= number <= option.high:
        raise refuse(option, value, rule)
    return number


def whole(option: Option, value: str) -> int:
    return int(_number(option, value, int, "a whole number"))


def seconds(option: Option, value: str) -> float:
    return _number(option, value, float, "a number of seconds")


def size(option: Option, value: str) -> int:
    match = _BYTES.fullmatch(value)
    size = int(match[1]) * _BYTE_UNITS[(match[2] or "").lower()] if match else 0
    if not size:
        raise refuse(option, value, "it must be a number of bytes above 0, such as 67108864 or 64m.")
    return size


def boolean(option: Option, value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise refuse(option, value, "it must be true or false.")
    return value.lower() == "true"


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


def url(option: Option, value: str) -> str:
    try:
        parts = urlsplit(_without_password(option, value))
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        usable = False
    if not usable:
        raise refuse(option, value, "it must be an http:// or https:// URL.")
    return value


def endpoint(option: Option, value: str) -> str:
    """Return a URL that calls may be made to."""
    host = urlsplit(url(option, value)).hostname or ""
    try:
        is_address = ":" in host and bool(ipaddress.ip_address(host))
    except ValueError:
        is_address = False
    if not is_address and not _HOST.fullmatch(host):
        raise refuse(
            option,
            value,
            f"the AWS SDK takes no host {host!r}: a name has parts of 1 to 63 letters, digits and inner hyphens. Use "
            "a name of the same host without underscores and the like, or its IP address.",
        )
    return value


def queue_url(option: Option, value: str) -> str:
    path = urlsplit(url(option, _without_query(option, value))).path.rstrip("/")
    if path.count("/") < 2:
        example = "https://sqs.eu-west-1.amazonaws.com/123456789012/bids.fifo"
        raise refuse(option, value, f"it must be a queue's URL, such as {example}.")
    if not path.endswith(".fifo"):
        raise NotFifoQueueError(
            f"option '{option.name}' is {value!r}, a standard queue: the name of a FIFO queue ends in '.fifo'. "
            "A standard queue has no message groups, and no order."
        )
    return value


def journal_location(option: Option, value: str) -> str:
    _without_query(option, _without_password(option, value))
    scheme = urlsplit(value).scheme if "://" in value else ""
    if scheme and scheme not in JOURNAL_SCHEMES:
        known = ", ".join(f"{name}://" for name in JOURNAL_SCHEMES)
        raise refuse(option, value, f"it must be an absolute path or begin with one of {known}.")
    if not scheme and not value.startswith("/"):
        raise refuse(
            option,
            value,
            "a path must be absolute, because driver and executors do not share a working directory.",
        )
    path = unquote(urlsplit(value).path) if scheme else value
    if not path.isprintable() or {".", ".."} & set(path.split("/")):
        raise refuse(option, value, "it must not hold '.' or '..', which behind a link lead elsewhere. Write it out.")
    if scheme == "file" and (urlsplit(value).netloc or not urlsplit(value).path.startswith("/")):
        raise refuse(option, value, "a file:// location must hold an absolute path, as in file:///data/journal.")
    if scheme not in ("", "file") and not urlsplit(value).netloc:
        raise refuse(option, value, "it must name a bucket or container, as in s3://bucket/journals/bids.")
    return value


def role_arn(option: Option, value: str) -> str:
    if not _ROLE_ARN.fullmatch(value):
        raise refuse(option, value, "it must be a role's ARN, such as arn:aws:iam::123456789012:role/reader.")
    return value


def region_and_endpoint(queue_url: str) -> tuple[str | None, str | None]:
    """Return the region that the URL names, if it does, and the endpoint, unless it follows from the region."""
    parts = urlsplit(queue_url)
    host = parts.hostname or ""
    region = _AWS_REGION.search(host)
    endpoint = None if _PLAIN_AWS_HOST.fullmatch(host) else f"{parts.scheme}://{parts.netloc}"
    return region and region[1], endpoint


class OptionTable:
    """All options of one side, source or sink, in the order in which users read about them."""

    def __init__(self, side: str, options: Sequence[Option], *, required: Sequence[str], added_by_spark: Sequence[str]):
        """`required` are fields without a default; `added_by_spark` are keys that no user wrote, in lower case."""
        self.side = side
        self.options = tuple(options)
        self.by_field = {option.field: option for option in options}
        self._by_lower_name = {option.name.lower(): option for option in options}
        self._required = tuple(required)
        self._added_by_spark = frozenset(added_by_spark)

    def __contains__(self, key: str) -> bool:
        return key.lower() in self._by_lower_name

    def parse(self, given: Mapping[str, str], other: OptionTable | None = None) -> dict[str, Any]:
        """Return the values given, by field; keys are compared without regard to case.

        Raises OptionError, or NotFifoQueueError for the URL of a standard queue, with one line that says what to
        change. `other` is the other side's table: an option of that side is reported as such.
        """
        values: dict[str, Any] = {}
        for key, written in given.items():
            if key.lower() in self._added_by_spark:
                continue
            option = self._by_lower_name.get(key.lower())
            if option is None:
                raise OptionError(self._unknown(key, other))
            if written is None or not str(written).strip():
                raise OptionError(f"option '{option.name}' is empty; give it a value or leave it out.")
            value = str(written).strip()
            if not value.isprintable():  # no path, URL or header takes it, and it would break the lines of logs
                # Not shown: it may be a URL with a password or a signature in it.
                raise OptionError(f"option '{option.name}' holds line breaks or other characters that do not print.")
            values[option.field] = option.parse(option, value)
        for required in self._required:
            if required not in values:
                option = self.by_field[required]
                raise OptionError(f"option '{option.name}' is missing. {option.meaning}")
        if "role_arn" not in values:
            for needs_role in ("role_session_name", "external_id"):
                if needs_role in values:
                    raise OptionError(
                        f"option '{self.by_field[needs_role].name}' is given without 'roleArn', so it would have no "
                        "effect. Give roleArn, or leave it out."
                    )
        return values

    def markdown(self) -> str:
        """Return the table for the README."""
        rows = ["| option | default | meaning |", "|---|---|---|"]
        rows += [f"| `{option.name}` | {option.default} | {option.meaning} |" for option in self.options]
        return "\n".join(rows)

    def _unknown(self, key: str, other: OptionTable | None) -> str:
        if other is not None and key in other:
            name = other._by_lower_name[key.lower()].name
            return f"option '{name}' is one of the {other.side}, not of the {self.side}. Leave it out."
        near = difflib.get_close_matches(key.lower(), self._by_lower_name, n=1, cutoff=0.6)
        if near:
            return f"unknown option {key!r}. Did you mean '{self._by_lower_name[near[0]].name}'?"
        return f"unknown option {key!r}. The options are {', '.join(option.name for option in self.options)}."
