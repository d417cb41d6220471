"""Option strings: every way to be wrong is one clear line; everything else is a complete, frozen `SourceOptions`."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Callable
from typing import Any

import pytest
from botocore.loaders import Loader
from botocore.utils import is_valid_endpoint_url, is_valid_ipv6_endpoint_url

from sqs_fifo_spark import option_rules
from sqs_fifo_spark.errors import NotFifoQueueError, OptionError
from sqs_fifo_spark.option_rules import Option
from sqs_fifo_spark.options import SINK, SOURCE, parse_sink_options, parse_source_options, queue_key
from sqs_fifo_spark.options.foreign import hints_of
from sqs_fifo_spark.options.table import OptionTable
from tests.helpers import raises_one_line
from tests.option_pages import table_of

URL = "https://sqs.eu-west-1.amazonaws.com/123456789012/bids.fifo"
JOURNAL = "/var/lib/journal"
ROLE = "arn:aws:iam::123456789012:role/reader"
SECRET = "hunter2"
NO_HDFS = (
    "HDFS does not write an object only if it is not there. Use s3://, gs://, abfss://, or an absolute path that "
    "driver and executors share."
)
NO_DBFS = (
    "a journal needs hard links or an object store's conditional writes, which DBFS and volumes do not offer. Name the "
    "object store itself: s3://, gs:// or abfss://."
)


REQUIRED = {"queueUrl": URL, "journalLocation": JOURNAL}
SIDES: dict[str, tuple[OptionTable, Callable[[Any], object]]] = {
    "source": (SOURCE, parse_source_options),
    "sink": (SINK, parse_sink_options),
}

each_side = pytest.mark.parametrize("side", SIDES)
each_option = pytest.mark.parametrize(
    ("side", "option"), [(side, option.name) for side, (table, _) in SIDES.items() for option in table.options]
)


def parse(**options: str) -> Any:
    return parse_source_options({**REQUIRED, **options})


def refusal(options: dict[str, Any], required: dict[str, str] = REQUIRED, side: str = "source") -> str:
    """The one line with which the options are refused, beside those that are required."""
    with raises_one_line((OptionError, NotFifoQueueError)) as told:
        SIDES[side][1]({**required, **options})
    assert "\r" not in str(told.value)
    assert SECRET not in str(told.value)
    return str(told.value)


# Missing


@pytest.mark.parametrize(
    ("side", "name"), [("source", "queueUrl"), ("source", "journalLocation"), ("sink", "queueUrl")]
)
def test_missing_required_option_is_named_with_its_meaning(side: str, name: str) -> None:
    """The error also says what it is for."""
    text = refusal({}, {key: value for key, value in REQUIRED.items() if key != name}, side)
    assert re.match(f"option '{name}' is missing. Give {name}, [a-z]", text)


@each_option
@pytest.mark.parametrize("value", ["", "   ", None])
def test_empty_value_is_refused(side: str, option: str, value: str | None) -> None:
    """An empty value is a mistake, not a default."""
    text = refusal({option: value}, side=side)
    assert text == f"option '{option}' is empty; give it a value or leave it out."


# Misspelt


@each_option
def test_misspelt_option_suggests_the_nearest(side: str, option: str) -> None:
    """A letter left out, a letter too many, and another case all lead back to the name; the value is not shown."""
    shorter = [option[:-1]] if option != "queueUrls" else []  # which is `queueUrl`
    for wrong in (*shorter, f"{option}x", f"{option[:3]}{option[4:]}".lower()):
        text = refusal({wrong: SECRET}, side=side)
        assert text == f"unknown option '{wrong}'. Did you mean '{option}'?"


@each_side
def test_option_that_is_near_to_none_lists_all(side: str) -> None:
    """In the order in which users read about them."""
    names = ", ".join(option.name for option in SIDES[side][0].options)
    assert refusal({"zzz": SECRET}, side=side) == f"unknown option 'zzz'. The options are {names}."


@pytest.mark.parametrize(
    ("side", "option"),
    [
        *(("sink", option.name) for option in SOURCE.options if option.name not in SINK),
        *(("source", option.name) for option in SINK.options if option.name not in SOURCE),
    ],
)
def test_an_option_of_the_other_side_is_told_as_that(side: str, option: str) -> None:
    """Rather than as an unknown one; also in Spark's lower case."""
    other = "source" if side == "sink" else "sink"
    for name in (option, option.lower()):
        expected = f"option '{option}' is one of the {other}, not of the {side}. Leave it out."
        assert refusal({name: "1"}, side=side) == expected


@pytest.mark.parametrize(
    ("side", "name", "hint"),
    [(side, name, said) for side in SIDES for name, said in hints_of(side).values()],
)
def test_an_option_of_another_source_says_what_takes_its_place(side: str, name: str, hint: str) -> None:
    """Under Spark's lower case too; what it names is an option of that side, or Spark's, or a column."""
    for key in (name, name.lower()):
        assert refusal({key: SECRET}, side=side) == f"unknown option '{name}'. {hint}"
    assert [each for each in re.findall(r"'(\w+)'", hint) if each not in SIDES[side][0]] == []
    assert hint.endswith(".")


def test_all_unknown_options_are_named_at_once() -> None:
    """Before any value is looked at, each with what helps; all options are listed once, and last."""
    given = {"numPartitions": "0", "zz": "", "startingOffsets": "", "yy": "", "order": "", "waitTime": ""}
    text = refusal(given)
    assert re.fullmatch(
        r"unknown option 'startingOffsets'\. SQS keeps no offsets: [^.]+\. "
        r"Also option 'order' is one of the sink, not of the source\. Leave it out\. "
        r"Also unknown option 'waitTime'\. Did you mean 'waitTimeSeconds'\? "
        r"Also unknown options 'zz', 'yy'\. The options are queueUrl, [^.]+\.",
        text,
    )


def test_keys_are_compared_without_regard_to_case() -> None:
    """Spark hands the keys over in lower case; messages give the camelCase back."""
    lower = parse_source_options({"queueurl": URL, "journallocation": JOURNAL, "NUMPARTITIONS": "3"})
    assert lower == parse(numPartitions="3")
    assert "option 'numPartitions' is '0'" in refusal({"numpartitions": "0"})


# Wrong type, out of range, malformed


WRONG = {
    "visibilityTimeoutSeconds": ("a whole number from 1 to 43200.", "soon", "1.5", "0", "-1", "43201"),
    "heartbeatSeconds": ("a number of seconds from 0.1 to 14400.", "often", "0", "14401", "nan", "inf"),
    "waitTimeSeconds": ("a whole number from 1 to 20.", "21", "0", "2s"),
    "maxMessagesPerTrigger": ("a whole number from 1 to 120000.", "0", "120001", "many"),
    "maxBytesPerTrigger": ("a number of bytes above 0, such as 67108864 or 64m.", "0", "-1", "64x"),
    "maxFetchSeconds": ("a number of seconds from 0.1 to 21600.", "0", "21601", "x"),
    "numPartitions": ("a whole number from 1 to 1000.", "0", "1001", "auto"),
    "failOnDataLoss": ("true or false.", "yes"),
    "unwrap": ("none or sns.", "raw", "true", "none,sns"),
    "payloads": ("none or s3.", "S 3", "true", "none,s3"),
    "maxPayloadBytes": ("a number of bytes above 0, such as 67108864 or 64m.", "0", "-1", "64x"),
    "payloadErrors": ("fail or null.", "skip", "true"),
    "deletePayloads": ("true or false.", "yes"),
    "deleteAfter": ("commit or journal.", "never", "receive", "true", "commit,journal"),
    "endpointUrl": ("an http:// or https:// URL.", "localhost:9324", "http://", "http://host:port"),
    "queueUrl": (
        "a queue's URL, ARN, or name, such as bids.fifo.",
        "sqs.eu-west-1.amazonaws.com/1/bids.fifo",
        "a:b.fifo",
    ),
    "queueOwnerAccountId": ("the 12 digits of an AWS account.", "mine", "12345678901"),
    "roleArn": (f"a role's ARN, such as {ROLE}.", "reader", ROLE.replace("role", "user")),
    "credentialsProvider": (
        "module:function, such as mycompany.aws:credentials.",
        *("give", "mine.aws:", ":give", "mine-aws:give", "mine.aws:give()", "a:b:c"),
    ),
}

WRONG_LOCATIONS = {
    "journal": "a path must be absolute, because driver and executors do not share a working directory.",
    "file://journal": "a file:// location must hold an absolute path, as in file:///data/journal.",
    "s3://bucket/a%0Ab": "it must not hold line breaks or other characters that do not print.",
    "/data/../journal": "it must not hold '.' or '..', which behind a link lead elsewhere. Write it out.",
    "s3:///journal": "it must name a bucket or container, as in s3://bucket/journals/bids.",
    "ftp://host/journal": "it must be an absolute path or begin with one of file://, s3://, s3a://, gs://, az://, "
    "abfs://, abfss://.",
    **dict.fromkeys(("hdfs://host/journal", "viewfs:///journal"), NO_HDFS),
    **dict.fromkeys(("dbfs:/journal", "dbfs:///mnt/journal"), NO_DBFS),
}


@pytest.mark.parametrize(
    ("option", "value", "rule"),
    [
        *((option, value, f"it must be {rule}") for option, (rule, *values) in WRONG.items() for value in values),
        ("queueUrl", URL.replace("123456789012/", ""), f"it must be a queue's URL, such as {URL}."),
        *(("journalLocation", location, rule) for location, rule in WRONG_LOCATIONS.items()),
    ],
)
def test_wrong_value_is_told_with_the_value_and_the_rule(option: str, value: str, rule: str) -> None:
    """The value seen, then the rule; bounds are those that the check uses."""
    assert refusal({option: value}) == f"option '{option}' is '{value}'; {rule}"


@pytest.mark.parametrize(
    "path",
    ["/Volumes/main/default/journal", "/dbfs/mnt/journal", "/Volumes", "file:///Volumes/main/x", "file:///dbfs/x"],
)
def test_on_databricks_a_volume_is_no_place_for_a_journal(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Elsewhere, a directory may be called so: macOS mounts disks below /Volumes."""
    options = {"queueUrl": URL, "journalLocation": path}
    monkeypatch.delenv("DATABRICKS_RUNTIME_VERSION", raising=False)
    assert parse_source_options(options).journal_location == path
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "17.3")
    assert refusal(options) == f"option 'journalLocation' is '{path}'; {NO_DBFS}"


@each_side
@pytest.mark.parametrize("queue", [URL.removesuffix(".fifo"), "bids", "arn:aws:sqs:eu-west-1:123456789012:bids"])
def test_a_standard_queue_is_refused_however_it_is_named(side: str, queue: str) -> None:
    """Before any call, as the user named it."""
    with pytest.raises(NotFifoQueueError) as told:
        SIDES[side][1]({**REQUIRED, "queueUrl": queue})
    assert str(told.value) == (
        f"option 'queueUrl' is '{queue}', a standard queue: the name of a FIFO queue ends in '.fifo'. A standard queue "
        "has no message groups, and no order."
    )


@each_option
@pytest.mark.parametrize("value", ["a\x00b", "a\nb", "a\r\nX-Header: b", "a\x1b[31m"])
def test_no_option_takes_a_control_character(side: str, option: str, value: str) -> None:
    """It cannot end a path early, begin another header, or write a line of its own into a log."""
    assert refusal({option: value}, side=side).isprintable()


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("endpointUrl", "https://AKIAEXAMPLE:hidden@host/\u200b"),
        ("queueUrl", "https://h/1/q.fifo?X-Amz-Signature=hidden\u200b"),
        ("journalLocation", "s3://AKIA:hidden@bucket/x\ty"),
        ("roleExternalId", "hid\nden"),
    ],
)
def test_a_value_that_does_not_print_is_not_shown(option: str, value: str) -> None:
    """It may be a URL with a password or a signature, pasted with something unseen in it."""
    assert refusal({option: value}) == f"option '{option}' holds line breaks or other characters that do not print."


def test_line_breaks_in_a_key_do_not_break_the_line() -> None:
    """Nor do those of a key."""
    refusal({"num\nPartitions of all": "1"})


# In conflict


def idle(option: str, needed: str) -> str:
    return (
        f"option '{option}' is given without '{needed}', so it would have no effect. Give {needed}, or leave {option} "
        "out."
    )


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            {"heartbeatSeconds": "90"},
            "option 'heartbeatSeconds' is '90'; it must be at most 40, a third of 'visibilityTimeoutSeconds' (120), so "
            "that two failed renewals can be retried before SQS hands the messages to somebody else. Lower it, or "
            "raise visibilityTimeoutSeconds to 270.",
        ),
        (
            {"maxFetchSeconds": "20.5", "visibilityTimeoutSeconds": "30"},
            "option 'maxFetchSeconds' is '20.5'; it must be at most 15, half of 'visibilityTimeoutSeconds' (30), so "
            "that what was received can be written to the journal while it is still held. Lower it, or raise "
            "visibilityTimeoutSeconds to 41.",
        ),
        # There the journal may have the only copy of all of it; after a commit SQS has one, too.
        (
            {"deleteAfter": "journal", "maxBytesPerTrigger": "8g"},
            "option 'maxBytesPerTrigger' is '8589934592'; with deleteAfter=journal it must be at most 1073741824 (1g), "
            "so that one partition can take over what a query has left that died: all of it may be of one group. "
            "Lower it.",
        ),
        (
            {"journalCredentials": "chain"},
            f"option 'journalCredentials' is given, and 'journalLocation' is '{JOURNAL}', which is not on S3, so it "
            "would have no effect. Leave journalCredentials out, or set payloads to s3 if it is for payloads.",
        ),
        ({"roleSessionName": SECRET}, idle("roleSessionName", "roleArn")),
        ({"roleExternalId": SECRET}, idle("roleExternalId", "roleArn")),
        ({"stsEndpoint": "https://sts.eu-west-1.amazonaws.com"}, idle("stsEndpoint", "roleArn")),
        ({"awsAccessKeyId": SECRET}, idle("awsAccessKeyId", "awsSecretAccessKey")),
        ({"awsSecretAccessKey": SECRET}, idle("awsSecretAccessKey", "awsAccessKeyId")),
        ({"awsSessionToken": SECRET}, idle("awsSessionToken", "awsAccessKeyId")),
    ],
)
def test_what_does_not_fit_the_other_options_is_told_with_reason_and_remedy(options: dict[str, str], told: str) -> None:
    """With the numbers of this very query; what would have no effect is a mistake, too."""
    assert refusal(options) == told


@pytest.mark.parametrize(
    ("option", "value"), [("heartbeatSeconds", "90"), ("heartbeatSeconds", "33.7"), ("maxFetchSeconds", "70.3")]
)
def test_the_remedy_works(option: str, value: str) -> None:
    """Raising the visibility timeout to what the message says is enough."""
    options = {"visibilityTimeoutSeconds": "60", option: value}
    text = refusal(options)
    needed = text.rpartition("visibilityTimeoutSeconds to ")[2].rstrip(".")
    assert parse(**{**options, "visibilityTimeoutSeconds": needed})


# Defaults

NONE = (
    *("endpoint_url", "service_credential", "credentials_provider", "profile", "access_key_id", "secret_access_key"),
    *("session_token", "role_arn", "role_external_id", "sts_endpoint", "journal_endpoint_url", "max_calls_per_s"),
    "queue_owner_account_id",
)
DEFAULTS: dict[str, Any] = {
    "queue_url": URL,
    "region": "eu-west-1",
    "role_session_name": "sqs-fifo-spark",
    "journal_credentials": "queue",
    **dict.fromkeys(NONE),
}
"""Those of both sides."""


def test_defaults() -> None:
    """The options of a query with only queue and journal."""
    assert dataclasses.asdict(parse()) == {
        **DEFAULTS,
        "journal_location": JOURNAL,
        "queue_urls": (),
        "queue_name_prefix": None,
        "queue_discovery_s": 60,
        "visibility_timeout_s": 120,
        "heartbeat_s": 40.0,
        "wait_time_s": 20,
        "max_messages_per_trigger": 20_000,
        "max_bytes_per_trigger": 64 << 20,
        "max_fetch_s": 5.0,
        "num_partitions": 8,
        "link_bytes_per_s": None,
        "delete_after": "commit",
        "unwrap": "none",
        "payloads": "none",
        "max_payload_bytes": 64 << 20,
        "payload_errors": "fail",
        "delete_payloads": False,
        "fail_on_data_loss": True,
    }


@pytest.mark.parametrize("visibility", [*range(1, 31), 100, 119, 43_200])
def test_defaults_follow_from_any_visibility_timeout(visibility: int) -> None:
    """A small or an odd visibility timeout alone never conflicts with a default."""
    options = parse(visibilityTimeoutSeconds=str(visibility))
    assert 0 < options.heartbeat_s <= visibility / 3
    assert 0 < options.max_fetch_s <= min(5.0, visibility / 2)


@pytest.mark.parametrize(
    ("option", "text", "value"),
    [
        *(("maxBytesPerTrigger", text, 64 << 20) for text in ("64m", "64M", "64mb")),
        ("maxBytesPerTrigger", "1", 1),
        ("maxBytesPerTrigger", "9b", 9),
        ("maxBytesPerTrigger", "8k", 8192),
        ("maxBytesPerTrigger", "1 GiB", 1 << 30),
        ("maxBytesPerTrigger", "8g", 8 << 30),
        ("failOnDataLoss", "true", True),
        ("failOnDataLoss", "FALSE", False),
        ("failOnDataLoss", " true ", True),
        *(("unwrap", text, text.lower()) for text in ("none", "sns", "SNS")),
        *(("payloads", text, text.lower()) for text in ("none", "s3", "S3")),
        *(("deleteAfter", text, text.lower()) for text in ("commit", "journal", "Journal")),
        *(
            ("journalLocation", location, location)
            for location in (
                *("/data/journal", "/Volumes/main/streams/journal", "file:///data/journal", "s3a://bucket/x"),
                *("s3://bucket/journals/bids", "gs://bucket/x", "az://container/x"),
                "abfss://container@account.dfs.core.windows.net/x",
            )
        ),
    ],
)
def test_values_may_be_written_as_people_write_them(option: str, text: str, value: object) -> None:
    """Bytes with a unit and words in any case, as Spark's own options; and each place that can be shared."""
    field = re.sub("[A-Z]", lambda letter: f"_{letter[0].lower()}", option)
    assert getattr(parse(**{option: text}), field) == value


def test_one_partition_can_take_over_as_much_as_a_journal_may_have_alone() -> None:
    assert parse(deleteAfter="journal", maxBytesPerTrigger="1g").max_bytes_per_trigger == 1 << 30


# The region


@pytest.mark.parametrize(
    ("origin", "region"),
    [
        ("https://queue.amazonaws.com", "us-east-1"),
        ("http://localhost:9324", None),
        ("http://127.0.0.1:4566", None),
        ("http://sqs.eu-west-1.localhost.localstack.cloud:4566", None),
        ("https://queue.internal.example.com", None),
    ],
)
def test_region_and_endpoint_come_from_the_url(origin: str, region: str | None) -> None:
    """A host outside AWS has no region that AWS knows, and the calls go there. AWS's other hosts are below."""
    options = parse(queueUrl=f"{origin}/{'123456789012' if region else 'queues'}/bids.fifo")
    assert options.region == region
    if region is None:
        assert options.endpoint_url == origin


def test_every_region_of_every_partition_is_known() -> None:
    """China, the European sovereign cloud and the secret ones, too; and a queue has one key however it is spelt."""
    found = 0
    for partition in Loader().load_data("partitions")["partitions"]:
        plain, dual = (partition["outputs"][name] for name in ("dnsSuffix", "dualStackDnsSuffix"))
        for region in partition["regions"]:
            if region.endswith("-global"):
                continue
            first, *others = (f"sqs.{region}.{plain}", f"sqs.{region}.{dual}", f"sqs-fips.{region}.{plain}")
            others += [f"vpce-0a1b-6g7h{zone}.sqs.{region}.vpce.{plain}" for zone in ("", f"-{region}a")]
            for host in (first, f"{region}.queue.{plain}", *others):
                url = f"https://{host}/123456789012/bids.fifo"
                assert queue_key(url) == f"{region}.123456789012.bids.fifo"
                options = parse(queueUrl=url)
                assert options.region == region
                assert options.endpoint_url == (f"https://{host}" if host in others else None)
                found += 1
    assert found > 180


def test_the_region_of_the_first_host_is_that_of_botocore_s_data() -> None:
    """It is the one region whose certificate has a host without a region."""
    named = {
        endpoint["sslCommonName"].replace("{dnsSuffix}", partition["dnsSuffix"]): region
        for partition in Loader().load_data("endpoints")["partitions"]
        for region, endpoint in partition["services"].get("sqs", {"endpoints": {}})["endpoints"].items()
        if endpoint.get("sslCommonName", "{region}").count("{region}") == 0
    }
    assert {host: option_rules.region_of(f"https://{host}/1/a.fifo") for host in named} == named
    assert named


VPC_ENDPOINT = "https://vpce-0a1b-6g7h.sqs.eu-central-1.vpce.amazonaws.com"
PLAIN_HOST = "http://127.0.0.1:9324"


@pytest.mark.parametrize(
    ("options", "region"),
    [
        ({"queueUrl": f"{PLAIN_HOST}/1/a.fifo", "region": "us-west-2"}, "us-west-2"),
        ({"queueUrl": f"{PLAIN_HOST}/1/a.fifo", "endpointUrl": VPC_ENDPOINT}, "eu-central-1"),
        ({"queueUrl": f"{VPC_ENDPOINT}/1/a.fifo", "region": "eu-central-1"}, "eu-central-1"),
        ({"endpointUrl": PLAIN_HOST, "region": "eu-west-1"}, "eu-west-1"),
        ({"endpointUrl": "https://vpce-1-2.sqs.eu-west-1.vpce.amazonaws.com"}, "eu-west-1"),
        ({"queueUrl": "http://a-1.eu-west-1.elb.amazonaws.com:4566/1/a.fifo", "region": "us-east-1"}, "us-east-1"),
        ({"endpointUrl": "http://a-1.eu-central-1.elb.amazonaws.com:4566"}, "eu-west-1"),
    ],
)
def test_a_region_that_fits_the_urls_is_taken(options: dict[str, str], region: str) -> None:
    """The option, or whichever URL names one; a host that is not called as SQS's own fits any."""
    assert parse(**options).region == region


@pytest.mark.parametrize(
    ("options", "names", "regions"),
    [
        ({"region": "us-west-2"}, ("queueUrl", "region"), ("eu-west-1", "us-west-2")),
        (
            {"queueUrl": "https://queue.amazonaws.com/1/a.fifo", "region": "eu-west-1"},
            ("queueUrl", "region"),
            ("us-east-1", "eu-west-1"),
        ),
        ({"endpointUrl": PLAIN_HOST, "region": "us-west-2"}, ("queueUrl", "region"), ("eu-west-1", "us-west-2")),
        ({"endpointUrl": VPC_ENDPOINT}, ("endpointUrl", "queueUrl"), ("eu-central-1", "eu-west-1")),
        (
            {"queueUrl": f"{PLAIN_HOST}/1/a.fifo", "endpointUrl": VPC_ENDPOINT, "region": "eu-west-1"},
            ("endpointUrl", "region"),
            ("eu-central-1", "eu-west-1"),
        ),
    ],
)
def test_two_regions_are_refused_before_any_call(
    options: dict[str, str], names: tuple[str, str], regions: tuple[str, str]
) -> None:
    """On both sides: SQS would only say that an address is not valid."""
    said = "options '{}' and '{}' name two regions, '{}' and '{}'; a queue is called in its own only"
    assert refusal(options).startswith(said.format(*names, *regions))
    with pytest.raises(OptionError, match="name two regions"):
        parse_sink_options({"queueUrl": URL, **options})


HOSTS = [
    *("local_stack", "a.b_c.d", "a..b", "a..", ".com", "-a.com", "a-.com", "exa mple.com", "例え.テスト"),
    *(f"{'a' * 64}.com", f"{'a.' * 128}a", f"{'a.' * 127}a", f"{'a' * 63}.com"),
    *("localstack", "LOCALHOST", "a.com.", "a--b.c0m", "1.2", "127.0.0.1", "[::1]", "[fe80::1%25eth0]"),
]


@pytest.mark.parametrize("host", HOSTS)
def test_a_host_that_the_aws_sdk_does_not_take_is_refused_with_what_to_use_instead(host: str) -> None:
    """By the SDK's own rule, wherever the endpoint comes from; it would say so in the first call."""
    origin = f"http://{host}:4566"
    for given in ({"endpointUrl": origin}, {"queueUrl": f"{origin}/000000000000/bids.fifo"}):
        (name,) = given
        if is_valid_endpoint_url(origin) or is_valid_ipv6_endpoint_url(origin):
            assert parse(**given).endpoint_url == origin
            continue
        with raises_one_line(OptionError, match=f"option '{name}' is .+ the AWS SDK takes no host .+ its IP address"):
            parse(**given)


# Secrets


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("queueUrl", f"https://user:{SECRET}@sqs.eu-west-1.amazonaws.com/123456789012/bids.fifo"),
        ("queueUrl", f"arn:aws:sqs:eu-west-1:123456789012:bids.fifo?X-Amz-Security-Token={SECRET}"),
        ("queueUrl", f"ftp://user:{SECRET}@host/123456789012/bids.fifo"),
        ("queueUrl", f"https://user:{SECRET}@host:port/123456789012/bids.fifo"),
        ("endpointUrl", f"http://user:{SECRET}@127.0.0.1:9324"),
        ("endpointUrl", f"user:{SECRET}@127.0.0.1:9324"),
        ("journalLocation", f"s3://AKIA:{SECRET}@bucket/journal"),
        ("journalLocation", f"hdfs://user:{SECRET}@host/journal"),
        ("journalLocation", f"az://container/x?sig={SECRET}"),
        ("queueUrl", f"{URL}?X-Amz-Signature={SECRET}"),
        ("awsSecretAccessKey", f"{SECRET} {SECRET}"),
        ("awsSessionToken", f"{SECRET}é"),
    ],
)
@each_side
def test_a_secret_is_refused_without_being_shown(side: str, option: str, value: str) -> None:
    """A password typed into a URL, or a malformed one, does not reach a log by our hand."""
    refusal({option: value}, side=side)


def test_external_id_is_not_shown() -> None:
    """It is a shared secret: neither the repr nor an error of the same query has it."""
    assert SECRET not in repr(parse(roleArn=ROLE, roleExternalId=SECRET))
    options = {"roleArn": ROLE, "roleExternalId": SECRET}
    for wrong in ({"numPartitions": "0"}, {"heartbeatSeconds": "90"}, {"roleExternalIdd": SECRET}):
        refusal({**options, **wrong})


# Credentials

KEYS = {"awsAccessKeyId": "AKIAHIDDEN", "awsSecretAccessKey": SECRET}
BASES: list[dict[str, str]] = [{"serviceCredential": "c"}, {"credentialsProvider": "m:f"}, {"profile": "p"}, KEYS]


@pytest.mark.parametrize(("one", "other"), [*itertools.combinations(BASES, 2)])
def test_two_that_say_whose_credentials_are_used_exclude_each_other(one: dict[str, str], other: dict[str, str]) -> None:
    """Both are named, and neither value."""
    assert refusal({**other, **one}) == (
        f"options '{next(iter(one))}' and '{next(iter(other))}' are both given, and each says whose credentials are "
        "used. Give one of them."
    )


@pytest.mark.parametrize("base", BASES)
def test_each_of_them_goes_with_a_role(base: dict[str, str]) -> None:
    """It is assumed with those credentials."""
    assert parse(roleArn=ROLE, **base).identity.role_arn == ROLE


# The table


@pytest.mark.parametrize("table", [SOURCE, SINK])
def test_table_has_every_option(table: OptionTable) -> None:
    """One row for each, and the required ones first."""
    rows = [[cell.strip() for cell in row.split("|")[1:-1]] for row in table_of(table).splitlines()[2:]]
    assert [name for name, _, _ in rows] == [f"`{option.name}`" for option in table.options]
    assert all(default and meaning for _, default, meaning in rows)
    required = [default.startswith("required") for _, default, _ in rows]
    assert required == sorted(required, reverse=True)


EVERY_OPTION = {option.name: option for table in (SOURCE, SINK) for option in table.options}.values()


@pytest.mark.parametrize("option", EVERY_OPTION, ids=lambda option: option.name)
def test_every_option_is_required_or_has_one_default(option: Option) -> None:
    """A default that depends on other options has a text of its own; what has a text does not show its value."""
    assert option.is_required == option.shown_default().startswith("required")
    if option.default_from is not None:
        assert option.default_text
    elif option.default_text is not None:
        assert option.default is None
    assert option.is_required or not option.unless


@pytest.mark.parametrize(
    "option",
    [each for each in EVERY_OPTION if not each.is_required and each.shown_default() not in ("none", each.default_text)],
    ids=lambda option: option.name,
)
def test_a_default_written_as_the_readme_shows_it_is_the_default(option: Option) -> None:
    """In each of the forms shown, as in `67108864 (64m)`, and so inside its own bounds."""
    forms = option.shown_default().replace("(", " ").replace(")", " ").split()
    assert forms
    for form in forms:
        value = option.rule(option, form)
        assert value == option.default
        assert type(value) is type(option.default)


@pytest.mark.parametrize(
    ("arn", "host"),
    [
        ("arn:aws:sqs:eu-west-1", "sqs.eu-west-1.amazonaws.com"),
        ("arn:aws-us-gov:sqs:us-gov-west-1", "sqs.us-gov-west-1.amazonaws.com"),
        ("arn:aws-cn:sqs:cn-north-1", "sqs.cn-north-1.amazonaws.com.cn"),
    ],
)
@pytest.mark.parametrize("endpoint", ["", "http://127.0.0.1:9324"])
def test_an_arn_says_url_and_region(arn: str, host: str, endpoint: str) -> None:
    """The queue is called in its own region, unless an endpoint is given."""
    options = parse(queueUrl=f"{arn}:123456789012:bids.fifo", **({"endpointUrl": endpoint} if endpoint else {}))
    assert options.queue_url == f"https://{host}/123456789012/bids.fifo"
    assert (options.region, options.endpoint_url or "") == (arn.rpartition(":")[2], endpoint)
    assert options.queue_name == "bids.fifo"


@pytest.mark.parametrize(
    "arn",
    [
        "arn:aws:sns:eu-west-1:123456789012:bids.fifo",
        "arn:aws:sqs:eu-west-1:bids.fifo",
        "arn:aws:sqs::123456789012:bids.fifo",
        "arn:aws-none:sqs:eu-west-1:123456789012:bids.fifo",
        "arn:aws:sqs:cn-north-1:123456789012:bids.fifo",
        "arn:aws:sqs:eu-west-1:123456789012:bids/1.fifo",
    ],
)
@pytest.mark.parametrize("option", ["queueUrl", "badRecordsQueueUrl"])
def test_an_arn_of_something_else_is_refused(option: str, arn: str) -> None:
    rule = "it must be a queue's ARN, such as arn:aws:sqs:eu-west-1:123456789012:bids.fifo."
    assert refusal({option: arn}, side="sink") == f"option '{option}' is {arn!r}; {rule}"


@pytest.mark.parametrize("side", ["source", "sink"])
def test_a_name_may_be_that_of_another_account_s_queue(side: str) -> None:
    """URL and ARN say the account themselves."""
    given = {"queueUrl": "bids.fifo", "queueOwnerAccountId": "123456789012"}
    options: Any = SIDES[side][1]({**REQUIRED, **given})
    assert (options.queue_url, options.queue_owner_account_id) == ("bids.fifo", "123456789012")
    assert (options.queue_name, options.region, options.endpoint_url) == ("bids.fifo", None, None)
    assert "Leave queueOwnerAccountId out" in refusal({"queueOwnerAccountId": "123456789012"}, side=side)


def test_the_host_of_a_queue_url_is_free_where_an_endpoint_is_given() -> None:
    """No call is made to it: a container's name, say, behind a port of this machine."""
    url = "http://sqs_local:9324/000000000000/bids.fifo"
    given = {"queueUrl": url, "endpointUrl": "http://127.0.0.1:9324", "journalLocation": "/journal"}
    assert parse_source_options(given).endpoint_url == "http://127.0.0.1:9324"
    with pytest.raises(OptionError, match=r"option 'queueUrl' is .+ the AWS SDK takes no host"):
        parse_source_options({"queueUrl": url, "journalLocation": "/journal"})
