"""The declaration of an option, and the rules for its value.

Nothing here touches the network. Of the disk, botocore's own table of AWS's partitions is read once: the file alone, as
botocore takes long to import, and Spark imports this where nobody asks AWS.
"""

from __future__ import annotations

import functools
import ipaddress
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, unquote, urlsplit

from botocore import BOTOCORE_ROOT

from sqs_fifo_spark.errors import NotFifoQueueError, OptionError

FIFO_ID = re.compile(r"[!-~]{1,128}")
FIFO_ID_RULE = "it must be 1 to 128 letters, digits or ASCII punctuation marks, without spaces."
"""SQS's rule for the id of a group or of a deduplication."""
S3_PREFIXES = ("s3:", "s3a:")
JOURNAL_SCHEMES = ("file", "s3", "s3a", "gs", "az", "abfs", "abfss")
_LONGEST_PAYLOAD_LOCATION = 900
"""Bytes; the rest of a key is for the name of the object."""
_KINDS = {"s3a": "s3", "az": "abfs", "abfss": "abfs"}
"""Schemes that are another name for one."""

_PARTITIONS = {
    each["id"]: {**each["outputs"], "regionRegex": each["regionRegex"]}
    for each in json.loads(Path(BOTOCORE_ROOT, "data", "partitions.json").read_bytes())["partitions"]
}
"""Ends of the names of AWS's hosts, and the form of its regions, in each of its partitions."""
_PLAIN = "|".join(re.escape(each["dnsSuffix"]) for each in _PARTITIONS.values())
_ANY = "|".join([_PLAIN, *(re.escape(each["dualStackDnsSuffix"]) for each in _PARTITIONS.values())])
_AWS_REGION = re.compile(rf"(?:^|\.)([a-z]{{2,4}}(?:-[a-z]+)+-\d+)\.(?:.+\.)?(?:{_ANY})$")
_REGION_OF_HOST = {"queue.amazonaws.com": "us-east-1"}
"""SQS's first host, which names no region; botocore's data has it as the `sslCommonName` of that region."""
# Hosts that boto3 derives from the region itself. Any other, a FIPS or a VPC endpoint above all, is called as given.
_PLAIN_AWS_HOST = re.compile(rf"sqs\.[a-z0-9-]+\.(?:{_PLAIN})|(?:[a-z0-9-]+\.)?queue\.(?:{_PLAIN})")
# Hosts that the AWS SDK takes; it refuses any other when it is first used, and not in our words.
_HOST = re.compile(r"(?=.{1,255}$)(?:(?!-)[a-z0-9-]{1,63}(?<!-)\.)*(?!-)[a-z0-9-]{1,63}(?<!-)\.?")
_PASSWORD = re.compile(r"(?:[^/]*//)?[^/@]*:[^/@]*@")
_QUEUE_NAME = re.compile(r"[A-Za-z0-9_-]{1,80}(?:\.fifo)?")
_QUEUE_ARN = re.compile(rf"arn:([a-z-]+):sqs:([a-z]+(?:-[a-z]+)+-[0-9]+):([0-9]{{12}}):({_QUEUE_NAME.pattern})")
_DATABRICKS_PATH = re.compile(r"(file:/*)?/(dbfs|Volumes)(/|$)")
_RUNTIME_OF_DATABRICKS = "DATABRICKS_RUNTIME_VERSION"
"""Set in the environment there. Elsewhere a path may be called anything."""
_SECRET = re.compile(r"[!-~]+")
_BYTES = re.compile(r"(\d+)\s*(?:([kmg])i?)?b?", re.IGNORECASE)
_BYTE_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}

T = TypeVar("T")


@dataclass(frozen=True)
class Option:
    """The declaration of an option; the field that it fills has its type."""

    rule: Callable[[Option, str], Any]
    """Turns a user's text into the value; OptionError, or NotFifoQueueError, if it is none."""
    meaning: str
    """Its line in the documentation."""
    is_required: bool = False
    unless: tuple[str, ...] = ()
    """Options that each stand in place of a required one, and say several of it; the default is for that."""
    default: Any = None
    default_from: Callable[[Mapping[str, Any]], Any] | None = None
    """Works the default out from the fields declared before."""
    default_text: str | None = None
    """The default in the documentation, where it is worked out, or in place of "none"."""
    needs: tuple[str, ...] = ()
    """Options without all of which this one would have no effect."""
    bounds: tuple[float, float] = (0, 0)
    """The least and the most that a number may be."""
    name: str = ""
    """The field's in camelCase, with its unit written out, unless it has another one."""

    @property
    def is_in_every_query(self) -> bool:
        """Return True if no query can do without it."""
        return self.is_required and not self.unless

    def shown_default(self) -> str:
        """Return the default for the documentation: a user's text for it, unless it has a text of its own."""
        if self.default_text is not None:
            return self.default_text
        if self.is_required:
            instead = " or ".join(f"`{name}`" for name in self.unless)
            return f"required, unless {instead} is given" if instead else "required"
        if self.default in (None, ()):
            return "none"
        if self.rule is size:
            return f"{self.default} ({self.default >> 20}m)"
        return str(self.default).lower() if self.rule is boolean else str(self.default)


def option(rule: Callable[[Option, str], T], meaning: str, *, repr: bool = True, **more: Any) -> T:
    """Declare an option as a field of a dataclass; `more` are the fields of `Option`."""
    declared = Option(rule, meaning, **more)
    default: Any = MISSING if declared.is_required or declared.default_from else declared.default
    made: T = field(default=default, repr=repr, metadata={"option": declared})
    return made


def refuse(option: Option, value: str, rule: str) -> OptionError:
    return OptionError(f"option '{option.name}' is {value!r}; {rule}")


def text(option: Option, value: str) -> str:
    return value


def matching(form: str, rule: str) -> Callable[[Option, str], str]:
    """Return the rule of an option whose whole value has this form, a regular expression."""
    pattern = re.compile(form)

    def check(option: Option, value: str) -> str:
        if not pattern.fullmatch(value):
            raise refuse(option, value, rule)
        return value

    return check


fifo_id = matching(FIFO_ID.pattern, FIFO_ID_RULE)
account_id = matching(r"[0-9]{12}", "it must be the 12 digits of an AWS account.")
role_arn = matching(
    r"arn:aws[a-z-]*:iam::\d{12}:role/\S+",
    "it must be a role's ARN, such as arn:aws:iam::123456789012:role/reader.",
)
function_path = matching(
    r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*",
    "it must be module:function, such as mycompany.aws:credentials.",
)
session_name = matching(r"[A-Za-z0-9_+=,.@-]{2,64}", "it must be 2 to 64 of A-Z, a-z, 0-9 and '_+=,.@-'.")
txn_app_id = matching(
    r"(?!batch-writes$)[A-Za-z0-9][A-Za-z0-9._-]{0,127}",
    "it must be 1 to 128 letters, digits, '.', '_' and '-', begin with a letter or digit, and not be batch-writes: a "
    "folder of the journal is called so.",
)
name_prefix = matching(
    r"[A-Za-z0-9_.-]{1,80}",
    "it must be 1 to 80 letters, digits, '-', '_' or '.', with which the names of the queues begin, and no '*' behind "
    "them.",
)


def _number(option: Option, value: str, convert: Callable[[str], float], kind: str) -> float:
    low, high = option.bounds
    rule = f"it must be {kind} from {low:g} to {high:g}."
    try:
        number = convert(value if "_" not in value else "")
    except ValueError:
        raise refuse(option, value, rule) from None
    if not low <= number <= high:
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
    most = option.bounds[1]
    if most and size > most:
        raise refuse(option, value, f"it must be at most {most} bytes.")
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
            "instance role) or from options of their own, such as 'roleArn', never from a URL."
        )
    return value


def _without_query(option: Option, value: str) -> str:
    """Refuse a query string, and do not show it: it may be a signature or a token."""
    if ("://" in value or value.startswith("arn:")) and ("?" in value or "#" in value):
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


def queue(option: Option, value: str) -> str:
    """Return the URL of a queue that is given by URL or ARN; a name stays one, for only SQS knows its URL."""
    if is_name(value):
        _require_fifo(option, value, value)
        return value
    if "://" not in _without_password(option, value) and not value.startswith("arn:"):
        raise refuse(option, value, "it must be a queue's URL, ARN, or name, such as bids.fifo.")
    return queue_url(option, value)


def is_name(queue: str) -> bool:
    """Return True if a queue is given by its name."""
    return _QUEUE_NAME.fullmatch(queue) is not None


def queue_url(option: Option, value: str) -> str:
    """Return the URL of a queue that is given by URL or ARN."""
    found = _url_of_arn(option, value) if value.startswith("arn:") else value
    path = urlsplit(url(option, _without_query(option, found))).path.rstrip("/")
    if path.count("/") < 2:
        example = "https://sqs.eu-west-1.amazonaws.com/123456789012/bids.fifo"
        raise refuse(option, value, f"it must be a queue's URL, such as {example}.")
    _require_fifo(option, path, value)
    return found


def _require_fifo(option: Option, name: str, value: str) -> None:
    if not name.endswith(".fifo"):
        raise NotFifoQueueError(
            f"option '{option.name}' is {value!r}, a standard queue: the name of a FIFO queue ends in '.fifo'. "
            "A standard queue has no message groups, and no order."
        )


def _url_of_arn(option: Option, value: str) -> str:
    found = _QUEUE_ARN.fullmatch(_without_query(option, _without_password(option, value)))
    names = _PARTITIONS.get(found[1]) if found else None
    if found is None or names is None or not re.fullmatch(names["regionRegex"], found[2]):
        raise refuse(option, value, "it must be a queue's ARN, such as arn:aws:sqs:eu-west-1:123456789012:bids.fifo.")
    _, region, account, name = found.groups()
    return f"https://sqs.{region}.{names['dnsSuffix']}/{account}/{name}"


def journal_location(option: Option, value: str) -> str:
    fault = _fault_of_location(_without_query(option, _without_password(option, value)))
    if fault:
        raise refuse(option, value, fault)
    return value


def payload_location(option: Option, value: str) -> str:
    if not _without_query(option, _without_password(option, value)).startswith(
        tuple(f"{each}//" for each in S3_PREFIXES)
    ):
        raise refuse(option, value, "it must be a bucket of S3, or a prefix in one, as in s3://bucket/payloads/bids.")
    fault = _fault_of_location(value)
    if fault is None and len(value.rstrip("/").encode()) > _LONGEST_PAYLOAD_LOCATION:
        fault = f"it must be at most {_LONGEST_PAYLOAD_LOCATION} bytes, because S3 takes keys of 1024."
    if fault:
        raise refuse(option, value, fault)
    return value


def _fault_of_location(value: str) -> str | None:
    """Return the rule that the location of a journal breaks, and the remedy."""
    scheme = urlsplit(value).scheme if "://" in value else ""
    is_volume = _DATABRICKS_PATH.match(value) is not None and _RUNTIME_OF_DATABRICKS in os.environ
    if value.startswith("dbfs:") or is_volume:
        return (
            "a journal needs hard links or an object store's conditional writes, which DBFS and volumes do not offer. "
            "Name the object store itself: s3://, gs:// or abfss://."
        )
    if scheme in ("hdfs", "viewfs", "webhdfs"):
        return (
            "HDFS does not write an object only if it is not there. Use s3://, gs://, abfss://, or an absolute path "
            "that driver and executors share."
        )
    if scheme and scheme not in JOURNAL_SCHEMES:
        known = ", ".join(f"{name}://" for name in JOURNAL_SCHEMES)
        return f"it must be an absolute path or begin with one of {known}."
    if not scheme and not value.startswith("/"):
        return "a path must be absolute, because driver and executors do not share a working directory."
    path = unquote(urlsplit(value).path) if scheme else value
    if not path.isprintable():
        return "it must not hold line breaks or other characters that do not print."
    if {".", ".."} & set(path.split("/")):
        return "it must not hold '.' or '..', which behind a link lead elsewhere. Write it out."
    if scheme == "file" and (urlsplit(value).netloc or not urlsplit(value).path.startswith("/")):
        return "a file:// location must hold an absolute path, as in file:///data/journal."
    if scheme not in ("", "file") and not urlsplit(value).netloc:
        return "it must name a bucket or container, as in s3://bucket/journals/bids."
    return None


def overlap(location: str, other: str) -> bool:
    """Return whether two journal locations are one place, or one is inside the other, however they are spelt."""
    # Of two that differ in length, the shorter one is the outer one.
    return all(one == another for one, another in zip(_segments(location), _segments(other), strict=False))


def _segments(location: str) -> list[str]:
    """Return the kind of store, the bucket, and the names of the folders."""
    if "://" not in location:
        location = f"file://{quote(location)}"
    parts = urlsplit(location)
    kind = _KINDS.get(parts.scheme, parts.scheme)
    return [kind, parts.netloc.lower(), *filter(None, unquote(parts.path).split("/"))]


def external_id(option: Option, value: str) -> str:
    """Return an external id; one that STS does not take is refused, and not shown."""
    if not re.fullmatch(r"[\w+=,.@:/-]{2,1224}", value, re.ASCII):
        raise OptionError(f"option '{option.name}' must be 2 to 1224 of A-Z, a-z, 0-9 and '_+=,.@:/-'.")
    return value


def is_secret(text: str) -> bool:
    """Return whether `text` may be a part of credentials."""
    return _SECRET.fullmatch(text) is not None


def secret(option: Option, value: str) -> str:
    """Return a part of credentials; one that cannot be is refused, and not shown."""
    if not is_secret(value):
        raise OptionError(
            f"option '{option.name}' holds a space or a character that is not ASCII, which no key or token of AWS "
            "does; look at how it was copied."
        )
    return value


def one_of(*values: str) -> functools.partial[str]:
    """Return the rule of an option that takes one of a few words, written in any case."""
    return functools.partial(_one_of, values)


def _one_of(values: tuple[str, ...], option: Option, value: str) -> str:
    if value.lower() not in values:
        raise refuse(option, value, f"it must be {' or '.join(values)}.")
    return value.lower()


def region_of(url: str) -> str | None:
    """Return the region that the host of a queue or an endpoint names, if it does."""
    host = urlsplit(url).hostname or ""
    region = _AWS_REGION.search(host)
    return region[1] if region else _REGION_OF_HOST.get(host)


def is_sqs(url: str) -> bool:
    """Return whether the host of a URL is called as SQS's own, VPC endpoints among them."""
    return not {"sqs", "sqs-fips", "queue"}.isdisjoint((urlsplit(url).hostname or "").split("."))


def endpoint_of(queue_url: str) -> str | None:
    """Return the URL's own host as an endpoint, unless it has none, or the endpoint follows from the region."""
    parts = urlsplit(queue_url)
    is_own = parts.hostname and not _PLAIN_AWS_HOST.fullmatch(parts.hostname)
    return f"{parts.scheme}://{parts.netloc}" if is_own else None
