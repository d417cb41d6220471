"""The options of a source that reads several queues, and what each of them makes of the options given for all."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from sqs_fifo_spark import option_rules as rules
from sqs_fifo_spark.errors import OptionError
from sqs_fifo_spark.option_rules import Option

MOST_QUEUES = 1_000
"""Of one source. Each has a journal and a long poll of its own."""
FOLDER = "queues"
"""Below `journalLocation`: it has the queues' journals, by their keys."""

_MANY = ("queueurls", "queuenameprefix", "queuediscoveryseconds")
_REGION_FORM = r"([a-z]{2,4}(?:-[a-z]+)+-\d+)"
_REGION = re.compile(rf"(?:^|\.)sqs(?:-fips)?\.{_REGION_FORM}\.|^{_REGION_FORM}\.queue\.")
_FIRST_HOST, _FIRST_REGION = "queue.amazonaws.com", "us-east-1"
_NOT_IN_A_KEY = re.compile(r"[^A-Za-z0-9_.-]")


def queue_list(option: Option, value: str) -> tuple[str, ...]:
    """Return queues that are separated by commas, each as `rules.queue` does."""
    texts = [each.strip() for each in value.split(",")]
    if "" in texts:
        raise OptionError(
            f"option '{option.name}' has nothing before or behind one of its commas; separate queues by one comma each."
        )
    if len(texts) > MOST_QUEUES:
        raise OptionError(f"option '{option.name}' has {len(texts)} queues; it must be at most {MOST_QUEUES}.")
    queues = tuple(rules.queue(option, each) for each in texts)
    for each in queues:
        if " " in each:
            raise rules.refuse(option, each, "a queue has no space in it; separate queues by commas.")
    require_different(queues, f"option '{option.name}'")
    return queues


def require_different(queues: Sequence[str], where: str) -> None:
    """Raise OptionError if two of these are one queue: both would have one journal. Names are taken as they are."""
    seen: dict[str, str] = {}
    for each in queues:
        other = seen.setdefault(each if rules.is_name(each) else queue_key(each), each)
        if other is not each:
            raise OptionError(f"{where} has one queue twice, as {other!r} and {each!r}. Leave one of them out.")


def queue_key(url: str) -> str:
    """Return the name of a queue's folder among the journals: region, if the host names one, account and name.

    Every spelling of a queue's URL on AWS has the same one. It must never change, for what a query has received stands
    there. So it does not depend on botocore's table of AWS's hosts, which grows.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    region = _REGION.search(host)
    regions = [region[1] or region[2]] if region else [_FIRST_REGION] if host == _FIRST_HOST else []
    account_and_name = [part for part in parts.path.split("/") if part][-2:]
    # An emulator's URL may have anything in its path.
    return _NOT_IN_A_KEY.sub("_", ".".join([*regions, *account_and_name]))


def place_of(journal_location: str, url: str) -> str:
    """Return the location of the journal of one of the queues."""
    return f"{journal_location.rstrip('/')}/{FOLDER}/{queue_key(url)}"


def with_one_queue(given: Mapping[str, str], queue: str) -> dict[str, str]:
    """Return the options with this queue in place of several."""
    others = {key: value for key, value in given.items() if key.lower() not in _MANY}
    return {**others, "queueUrl": queue}


def with_journal_of_one(given: Mapping[str, str], url: str) -> dict[str, str]:
    """Return the options with this queue in place of several, and its own journal. Its URL says the account."""
    location = next(str(value) for key, value in given.items() if key.lower() == "journallocation").strip()
    replaced = ("journallocation", "queueowneraccountid")
    others = {key: value for key, value in given.items() if key.lower() not in replaced}
    return with_one_queue({**others, "journalLocation": place_of(location, url)}, url)
