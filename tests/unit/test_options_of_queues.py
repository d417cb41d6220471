"""The options of a source that reads several queues, and those that each of its queues has then."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest

from sqs_fifo_spark.errors import NotFifoQueueError, OptionError
from sqs_fifo_spark.options import SourceOptions, parse_queue, parse_source_options, queue_key
from tests.helpers import raises_one_line

HOST = "https://sqs.eu-west-1.amazonaws.com/123456789012"
BIDS, LOTS = f"{HOST}/bids.fifo", f"{HOST}/lots.fifo"
ARN = "arn:aws:sqs:eu-west-1:123456789012:bids.fifo"
JOURNAL = "/data/journals"
SECRET = "hunter2"


def parse(**given: str) -> SourceOptions:
    return parse_source_options({"journalLocation": JOURNAL, **given})


def refusal(**given: str) -> str:
    with raises_one_line((OptionError, NotFifoQueueError)) as told:
        parse(**given)
    assert SECRET not in str(told.value)
    return str(told.value)


# The list


def test_a_list_takes_urls_arns_and_names() -> None:
    """Spaces around them do not matter; the ARN has its URL then, and a name stays one."""
    options = parse(queueUrls=f" {ARN} ,{LOTS}, more.fifo")
    assert options.queue_urls == (BIDS, LOTS, "more.fifo")
    assert (options.queue_url, options.has_many_queues) == ("", True)


def test_a_list_of_one_queue_is_a_source_of_several() -> None:
    """Its offsets and journals are of that kind, so that others may join it later."""
    assert parse(queueUrls=BIDS).has_many_queues
    assert not parse(queueUrl=BIDS).has_many_queues


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (f"{BIDS},", "option 'queueUrls' has nothing before or behind one of its commas"),
        (f"{BIDS},,{LOTS}", "option 'queueUrls' has nothing before or behind one of its commas"),
        (f"{BIDS} {LOTS}", f"option 'queueUrls' is '{BIDS} {LOTS}'; a queue has no space in it; separate queues by"),
        (f"{BIDS},lots", "option 'queueUrls' is 'lots', a standard queue: "),
        (f"{BIDS},a/b.fifo", "option 'queueUrls' is 'a/b.fifo'; it must be a queue's URL, ARN, or name"),
        (f"{BIDS},{ARN}", f"option 'queueUrls' has one queue twice, as {BIDS!r} and {BIDS!r}. Leave one of them out."),
        ("a.fifo,b.fifo,a.fifo", "option 'queueUrls' has one queue twice, as 'a.fifo' and 'a.fifo'."),
        (
            f"{BIDS},https://eu-west-1.queue.amazonaws.com/123456789012/bids.fifo",
            f"option 'queueUrls' has one queue twice, as {BIDS!r} and 'https://eu-west-1.queue.",
        ),
        (
            ",".join(f"q{number}.fifo" for number in range(1_001)),
            "option 'queueUrls' has 1001 queues; it must be at most 1000.",
        ),
    ],
)
def test_a_wrong_list_is_told_with_the_queue(value: str, said: str) -> None:
    assert refusal(queueUrls=value).startswith(said)


def test_a_thousand_queues_are_few_enough() -> None:
    assert len(parse(queueUrls=",".join(f"q{number}.fifo" for number in range(1_000))).queue_urls) == 1_000


@pytest.mark.parametrize("wrong", [f"https://u:{SECRET}@h/1/a.fifo", f"{BIDS}?X-Amz-Signature={SECRET}"])
def test_a_secret_in_a_list_is_refused_without_being_shown(wrong: str) -> None:
    """Nor is it in what is said of another queue."""
    for value in (f"{LOTS},{wrong}", f"{wrong},{LOTS}", f"{wrong},b", f"b,{wrong}", f"{wrong},"):
        refusal(queueUrls=value)


# The prefix


def test_a_prefix_has_no_queue_yet() -> None:
    options = parse(queueNamePrefix="bids-", queueDiscoverySeconds="5")
    assert (options.queue_name_prefix, options.queue_discovery_s) == ("bids-", 5)
    assert (options.queue_url, options.queue_urls, options.has_many_queues) == ("", (), True)
    assert parse(queueNamePrefix="bids.fifo").queue_discovery_s == 60


@pytest.mark.parametrize("value", ["bids-*", "a b", "a/b", "ä", "a" * 81, f"{HOST}/bids"])
def test_a_wrong_prefix_is_told_with_the_rule(value: str) -> None:
    said = "it must be 1 to 80 letters, digits, '-', '_' or '.', with which the names of the queues begin"
    assert refusal(queueNamePrefix=value).startswith(f"option 'queueNamePrefix' is {value!r}; {said}")


@pytest.mark.parametrize("value", ["0", "86401", "1.5", "soon"])
def test_discovery_has_bounds(value: str) -> None:
    said = f"option 'queueDiscoverySeconds' is '{value}'; it must be a whole number from 1 to 86400."
    assert refusal(queueNamePrefix="b", queueDiscoverySeconds=value) == said
    for bound in (1, 86_400):
        assert parse(queueNamePrefix="b", queueDiscoverySeconds=str(bound)).queue_discovery_s == bound


def test_nothing_is_discovered_without_a_prefix() -> None:
    for way in ({"queueUrl": BIDS}, {"queueUrls": BIDS}):
        said = "option 'queueDiscoverySeconds' is given without 'queueNamePrefix'"
        assert refusal(queueDiscoverySeconds="5", **way).startswith(said)


# One way to name the queues

WAYS = {"queueUrl": BIDS, "queueUrls": f"{BIDS},{LOTS}", "queueNamePrefix": "bids-"}


@pytest.mark.parametrize(("one", "other"), [*itertools.combinations(WAYS, 2)])
def test_two_ways_to_name_the_queues_exclude_each_other(one: str, other: str) -> None:
    assert refusal(**{other: WAYS[other], one: WAYS[one]}) == (
        f"options '{one}' and '{other}' are both given, and each says which queues are read. Give one of them."
    )


def test_without_any_the_missing_one_and_the_others_are_named() -> None:
    said = refusal()
    assert said.startswith("option 'queueUrl' is missing. Give queueUrl, the FIFO queue: ")
    assert said.endswith(" Or give queueUrls or queueNamePrefix for several.")


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"queueUrl": BIDS}, "bids.fifo"),
        ({"queueUrls": f"{BIDS},{LOTS},c.fifo"}, "3 queues"),
        ({"queueUrls": BIDS}, "1 queue"),
        ({"queueNamePrefix": "orders-"}, "orders-*"),
    ],
)
def test_log_lines_have_one_name_for_all(given: dict[str, str], name: str) -> None:
    assert parse(**given).queue_name == name


# What does not fit one of the queues


@pytest.mark.parametrize(
    ("queue", "given", "said"),
    [
        (
            "https://sqs.us-east-1.amazonaws.com/1/b.fifo",
            {"region": "eu-west-1"},
            "options 'queueUrl' and 'region' name two regions, 'us-east-1' and 'eu-west-1'; ",
        ),
        (
            "https://sqs.us-east-1.amazonaws.com/1/b.fifo",
            {"endpointUrl": "https://vpce-1-2.sqs.eu-west-1.vpce.amazonaws.com"},
            "options 'endpointUrl' and 'queueUrl' name two regions, 'eu-west-1' and 'us-east-1'; ",
        ),
        (
            "http://local_stack:4566/1/b.fifo",
            {},
            "option 'queueUrl' is 'http://local_stack:4566'; the AWS SDK takes no",
        ),
        (
            "http://127.0.0.1:4566/1/b.fifo",
            {"queueOwnerAccountId": "123456789012"},
            "option 'queueOwnerAccountId' is given, and 'queueUrl' is no name",
        ),
    ],
)
def test_a_queue_that_does_not_fit_the_other_options_is_named(queue: str, given: dict[str, str], said: str) -> None:
    """Before any call, wherever it stands in the list, and as one that is found later."""
    for queues in (f"a.fifo,{queue}", f"{queue},a.fifo"):
        assert refusal(queueUrls=queues, **given).startswith(f"for the queue {queue!r}: {said}")
    if "queueOwnerAccountId" not in given:
        with raises_one_line(OptionError, match=f"for the queue '{queue}': "):
            parse_queue({"queueNamePrefix": "b", "journalLocation": JOURNAL, **given}, queue)


def test_the_queues_of_a_list_may_be_in_several_regions() -> None:
    """Each says its own."""
    other = "https://sqs.us-east-1.amazonaws.com/123456789012/bids.fifo"
    given = {"queueUrls": f"{BIDS},{other}", "journalLocation": JOURNAL}
    assert parse_source_options(given).region is None
    assert [parse_queue(given, url).region for url in (BIDS, other)] == ["eu-west-1", "us-east-1"]


def test_the_owner_is_that_of_names_alone() -> None:
    """Of all of them; and a prefix lists the queues of the credentials' account."""
    owner = {"queueOwnerAccountId": "123456789012"}
    assert parse(queueUrls="a.fifo,b.fifo", **owner).queue_owner_account_id == "123456789012"
    assert "SQS lists the queues of the credentials' own account alone" in refusal(queueNamePrefix="b", **owner)


def test_other_options_are_checked_as_with_one_queue() -> None:
    """And are not said to be about one of the queues."""
    for way in ({"queueUrls": f"{BIDS},{LOTS}"}, {"queueNamePrefix": "b"}):
        assert refusal(heartbeatSeconds="90", **way).startswith("option 'heartbeatSeconds' is '90'; ")
        assert refusal(profile="p", serviceCredential="c", **way).startswith("options 'serviceCredential' and ")


# The options of one of the queues

OTHERS = {"visibilityTimeoutSeconds": "60", "MAXCALLSPERSECOND": "7", "deleteafter": "journal", "profile": "p"}


@pytest.mark.parametrize(
    "way",
    [
        {"queueUrls": f"{BIDS},{LOTS}"},
        {"queueurls": f"lots.fifo , {ARN}"},
        {"queueUrls": "bids.fifo,lots.fifo", "queueOwnerAccountId": "123456789012"},
        {"queueNamePrefix": "bids", "queuediscoveryseconds": "5"},
    ],
)
@pytest.mark.parametrize("location", [JOURNAL, f"{JOURNAL}/", f" {JOURNAL}//"])
@pytest.mark.parametrize("key", ["journalLocation", "journallocation"])
def test_one_of_the_queues_has_all_other_options_and_its_own_journal(
    way: dict[str, str], location: str, key: str
) -> None:
    """As if it alone were given."""
    alone: Any = {"queueUrl": BIDS, "journalLocation": f"{JOURNAL}/queues/eu-west-1.123456789012.bids.fifo", **OTHERS}
    assert parse_queue({**way, key: location, **OTHERS}, BIDS) == parse_source_options(alone)


@pytest.mark.parametrize("location", ["s3://bucket", "s3://bucket/journals/", "file:///data/j", "abfss://c@a.b/x"])
def test_any_location_of_a_journal_is_one_of_several(location: str) -> None:
    found = parse_queue({"queueNamePrefix": "b", "journalLocation": location}, BIDS).journal_location
    assert found == f"{location.rstrip('/')}/queues/eu-west-1.123456789012.bids.fifo"


# Keys


@pytest.mark.parametrize(
    ("url", "key"),
    [
        (BIDS, "eu-west-1.123456789012.bids.fifo"),
        (f"{BIDS}/", "eu-west-1.123456789012.bids.fifo"),
        (BIDS.replace("sqs.eu", "SQS.EU"), "eu-west-1.123456789012.bids.fifo"),
        (BIDS.replace(".com/", ".com:443/"), "eu-west-1.123456789012.bids.fifo"),
        (f"https://queue.amazonaws.com/1/{'a' * 75}.fifo", f"us-east-1.1.{'a' * 75}.fifo"),
        ("http://127.0.0.1:9324/000000000000/bids.fifo", "000000000000.bids.fifo"),
        ("http://localhost:4566/000000000000/bids.fifo", "000000000000.bids.fifo"),
        ("http://a-1.eu-west-1.elb.amazonaws.com:4566/000000000000/bids.fifo", "000000000000.bids.fifo"),
        ("http://sqs.eu-west-1.localhost.localstack.cloud/1/a.fifo", "eu-west-1.1.a.fifo"),
        ("https://sqs.newp-middle-earth-1.amazonaws.new/1/a.fifo", "newp-middle-earth-1.1.a.fifo"),
        ("http://localhost:9324/queue/bids.fifo", "queue.bids.fifo"),
        ("http://localhost:9324/any/queue//bids.fifo", "queue.bids.fifo"),
        ("http://localhost:9324/%2e%2e%2f/b ids.fifo", "_2e_2e_2f.b_ids.fifo"),
    ],
)
def test_a_queue_s_key_is_this_for_ever(url: str, key: str) -> None:
    """Journals stand under it: a change of these values loses what they hold."""
    assert queue_key(url) == key


def test_options_of_several_queues_can_be_compared_and_kept() -> None:
    """A look at the queues is remembered by them."""
    one, other = (parse(queueUrls=f"{BIDS},{LOTS}") for _ in range(2))
    assert hash(one) == hash(other)
    assert one != replace(other, queue_urls=(BIDS,))
