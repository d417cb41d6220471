"""Whose credentials reach queue and journal: each way that an option names, a role over it, and what expires."""

from __future__ import annotations

import logging
import pickle
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from datetime import datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import boto3
import botocore.session
import pytest
from botocore.credentials import Credentials, RefreshableCredentials

from sqs_fifo_spark.aws import client as aws
from sqs_fifo_spark.aws.credentials import (
    RENEW_EVERY_S,
    ChainError,
    Keys,
    S3Credentials,
    find_credentials,
    open_session,
)
from sqs_fifo_spark.clock import SYSTEM_CLOCK
from sqs_fifo_spark.errors import AccessDeniedError, JournalUnavailableError, OptionError, SqsFifoError
from sqs_fifo_spark.journal.location import journal_access, open_store
from sqs_fifo_spark.local import Faults, LocalQueueServer
from sqs_fifo_spark.options import AWS_CHAIN, Identity, SourceOptions, parse_sink_options, parse_source_options
from sqs_fifo_spark.sink.sink_queue import SinkQueue
from sqs_fifo_spark.source.queue import Queue
from tests.helpers import wait_until
from tests.manual_clock import ManualClock
from tests.simulation.spark import Query
from tests.unit.aws.answering import Answering
from tests.unit.aws.standins import S3, SECRET, TOKEN, TokenService, now, s3_server
from tests.unit.by_hand import World

ROLE = "arn:aws:iam::123456789012:role/reader"
KEYS = {"awsAccessKeyId": "AKIDMINE", "awsSecretAccessKey": SECRET, "awsSessionToken": TOKEN}
DATABRICKS = "databricks.service_credentials"


@pytest.fixture(autouse=True)
def own_stores() -> Iterator[None]:
    """Stores built under a test's options are forgotten after it."""
    yield
    open_store.cache_clear()


@pytest.fixture
def bucket(sts: TokenService) -> Iterator[S3]:
    """It refuses the expired keys of `sts`."""
    with s3_server() as running:
        running.is_expired = lambda key: key in sts.expired
        yield running


@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let a module be there with these functions."""

    def plant(name: str, **functions: object) -> None:
        module = ModuleType(name)
        vars(module).update(functions)
        for part in (name.partition(".")[0], name):
            monkeypatch.setitem(sys.modules, part, module)

    return plant


def options_of(queue_url: str, **given: str) -> SourceOptions:
    return parse_source_options({"queueUrl": queue_url, "journalLocation": "s3://journals/bids", **given})


def identity_of(**given: str) -> Identity:
    return options_of("http://127.0.0.1:1/1/q.fifo", **given).identity


def botocore_session() -> Any:
    session = botocore.session.Session()
    session.set_credentials("AKIDMINE", SECRET, TOKEN)
    return session


def keys(**more: object) -> dict[str, object]:
    return {"access_key": "AKIDMINE", "secret_key": SECRET, "token": TOKEN, **more}


FUNCTIONS: dict[str, Callable[[], object]] = {
    "botocore session": botocore_session,
    "boto3 session": lambda: boto3.Session("AKIDMINE", SECRET, TOKEN),
    "credentials": lambda: Credentials("AKIDMINE", SECRET, TOKEN),
    "dict": keys,
    "dict that expires": lambda: keys(expiry_time=(now() + timedelta(hours=1)).isoformat()),
    "dict with a time": lambda: keys(expiry_time=now() + timedelta(hours=1)),
}


@pytest.fixture
def mine(way: str, plant: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The options of this way to the key AKIDMINE."""
    if way == "keys":
        return KEYS
    if way == "profile":
        lines = ("[mine]", "aws_access_key_id=AKIDMINE", f"aws_secret_access_key={SECRET}")
        (tmp_path / "credentials").write_text("\n".join((*lines, f"aws_session_token={TOKEN}")))
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
        return {"profile": "mine"}
    if way == "service credential":
        plant(DATABRICKS, getServiceCredentialsProvider={"sqs reader": botocore_session()}.__getitem__)
        return {"serviceCredential": "sqs reader"}
    plant("mine.aws", give=FUNCTIONS[way])
    return {"credentialsProvider": "mine.aws:give"}


@pytest.mark.slow
@pytest.mark.usefixtures("transport")
@pytest.mark.parametrize("way", ["keys", "profile", "service credential", *FUNCTIONS])
def test_each_way_signs_the_calls_to_queue_and_journal(server: Answering, mine: dict[str, str]) -> None:
    """With its key and token, though the environment has another key; also after the options were pickled."""
    options = pickle.loads(pickle.dumps(options_of(f"{server.url}/1/q.fifo", **mine)))
    Queue(options, SYSTEM_CLOCK)._call("receive_message")
    sink = parse_sink_options({"queueUrl": options.queue_url, **mine})
    SinkQueue(sink, SYSTEM_CLOCK)._call("send_message_batch", Entries=[{"Id": "1", "MessageBody": "b"}])
    assert [(one.access_key, one.headers["x-amz-security-token"]) for one in server.asked] == [("AKIDMINE", TOKEN)] * 2
    found = S3Credentials(options.journal_identity)()
    assert [found[name] for name in ("access_key_id", "secret_access_key", "token")] == ["AKIDMINE", SECRET, TOKEN]


@pytest.mark.slow
@pytest.mark.usefixtures("transport")
@pytest.mark.parametrize("way", ["keys", "profile", "service credential", "dict that expires"])
def test_a_role_is_assumed_with_each_of_them(sts: TokenService, server: Answering, mine: dict[str, str]) -> None:
    """The caller of the token service is that one; queue and journal see the role's key."""
    given = {"roleArn": ROLE, "roleSessionName": "bids", "roleExternalId": "x-1", "stsEndpoint": sts.url}
    options = options_of(f"{server.url}/1/q.fifo", **given, **mine)
    Queue(options, SYSTEM_CLOCK)._call("receive_message")
    assert [each.access_key for each in server.asked] == ["AKID1"]
    assert S3Credentials(options.journal_identity)()["access_key_id"] == "AKID2"
    assert sts.callers == ["AKIDMINE"] * 2
    names = ("RoleArn", "RoleSessionName", "ExternalId")
    assert [[each[name] for name in names] for each in sts.asked] == [[[ROLE], ["bids"], ["x-1"]]] * 2


@pytest.mark.parametrize(("given", "key"), [({}, "AKID1"), ({"journalCredentials": "chain"}, "test")])
def test_the_journal_is_reached_as_the_queue_is_unless_told_otherwise(
    sts: TokenService, bucket: S3, given: dict[str, str], key: str
) -> None:
    """With the role; or with what the AWS chain gives. At the endpoint that the option names."""
    role = {"roleArn": ROLE, "stsEndpoint": sts.url, "journalEndpointUrl": bucket.url}
    options = options_of("http://127.0.0.1:1/1/q.fifo", **role, **given)
    store = open_store(options.journal_location, journal_access(options))
    assert store.put_if_absent("a/x", b"1")
    assert not store.put_if_absent("a/x", b"2")
    assert store.get("a/x") == b"1"
    assert set(bucket.keys) == {key}
    assert list(bucket.objects) == ["/journals/bids/a/x"]


class Working:
    """A source, a sink and a journal that work with one role."""

    def __init__(self, sts: TokenService, bucket: S3, server: LocalQueueServer) -> None:
        given = {"roleArn": ROLE, "stsEndpoint": sts.url, "region": "us-east-1"}
        options = options_of(server.queue_url("q.fifo"), journalEndpointUrl=bucket.url, **given)
        self._sts, self._server = sts, server
        self._source = Queue(options, SYSTEM_CLOCK)
        self._sink = SinkQueue(parse_sink_options({"queueUrl": options.queue_url, **given}), SYSTEM_CLOCK)
        self._store = open_store(options.journal_location, journal_access(options))
        self.rounds = 0

    def once(self) -> None:
        """Send a message, receive it, put it into the journal, read it there, and delete it."""
        self._server.faults = Faults(expired_keys=self._sts.expired)
        body, self.rounds = f"body-{self.rounds}", self.rounds + 1
        sent = {"Id": "1", "MessageBody": body, "MessageGroupId": "a", "MessageDeduplicationId": body}
        assert self._sink._call("send_message_batch", Entries=[sent])["Successful"]
        (message,) = self._source._call("receive_message", MaxNumberOfMessages=10)["Messages"]
        assert message["Body"] == body
        assert self._store.put_if_absent(f"a/{self.rounds}", body.encode())
        assert self._store.get(f"a/{self.rounds}") == body.encode()
        entry = {"Id": "1", "ReceiptHandle": message["ReceiptHandle"]}
        assert self._source._call("delete_message_batch", Entries=[entry])["Successful"]


@pytest.fixture
def working(sts: TokenService, bucket: S3, transport: str) -> Iterator[Working]:
    with LocalQueueServer(queues=["q.fifo"]) as server:
        yield Working(sts, bucket, server)


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["lean"], indirect=True)
def test_a_role_that_expires_while_source_and_sink_work_interrupts_nothing(
    sts: TokenService, bucket: S3, working: Working, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is assumed anew before that: no call to the journal is ever refused. The SDK's minutes are fractions here."""
    monkeypatch.setattr(RefreshableCredentials, "_advisory_refresh_timeout", 1.5)
    monkeypatch.setattr(RefreshableCredentials, "_mandatory_refresh_timeout", 1.0)
    monkeypatch.setattr("botocore.credentials.CachedCredentialFetcher.DEFAULT_EXPIRY_WINDOW_SECONDS", 1.5)
    monkeypatch.setattr("sqs_fifo_spark.aws.credentials.RENEW_EVERY_S", 0.1)
    sts.lasts_s = 2.5

    def has_expired_thrice() -> bool:
        working.once()
        return len(sts.expired) >= 6

    wait_until(has_expired_thrice, 30, "keys expire")
    assert working.rounds > 10
    assert bucket.refused == 0
    assert len(set(bucket.keys)) >= 3
    assert len(sts.asked) <= 3 * len(set(bucket.keys)) + 3  # not for each call


@pytest.mark.slow
def test_keys_of_a_role_that_are_refused_before_they_expire_are_replaced_within_the_call(
    sts: TokenService, bucket: S3, working: Working
) -> None:
    """The role's sessions were revoked, or the clock of this machine is late."""
    working.once()
    sts.revoke()
    working.once()
    assert bucket.refused >= 1
    assert set(bucket.keys) - sts.expired


def test_what_a_function_gave_is_asked_for_again_before_it_expires(plant: Callable[..., None]) -> None:
    """And not before: credentials that last a few minutes are not asked for at each call."""
    asked: list[datetime] = []

    def give() -> dict[str, object]:
        asked.append(now())
        return keys(access_key=f"AKID{len(asked)}", expiry_time=now() + timedelta(minutes=4))

    plant("mine.aws", give=give)
    identity = identity_of(credentialsProvider="mine.aws:give")
    credentials = find_credentials(identity, open_session(identity), None)
    assert [credentials.get_frozen_credentials().access_key for _ in range(3)] == ["AKID1"] * 3
    credentials._expiry_time = now() + timedelta(seconds=50)
    assert [credentials.get_frozen_credentials().access_key for _ in range(3)] == ["AKID2"] * 3


def give_nothing() -> None:
    return None


def fail() -> None:
    raise ValueError(SECRET)


@pytest.mark.parametrize(
    ("give", "what"),
    [
        (lambda: SECRET, "its result is a str"),
        (lambda: {"secret_key": SECRET}, "its result has no 'access_key' or no 'secret_key'"),
        (lambda: keys(expiry_time=datetime(2099, 1, 1)), "that it returns has no time zone"),  # noqa: DTZ001
        (lambda: keys(expiry_time="2099-01-01T00:00:00"), "that it returns has no time zone"),
        (lambda: keys(expiry_time=SECRET), "that it returns is no time"),
    ],
)
def test_a_function_that_gives_no_credentials_is_told_what_it_must_give(
    plant: Callable[..., None], give: Callable[[], object], what: str
) -> None:
    """By queue and journal, in one line, without what it gave."""
    plant("mine.aws", give=give)
    for told in both_refusals(OptionError, credentialsProvider="mine.aws:give"):
        assert "option 'credentialsProvider' is 'mine.aws:give'; " in told
        assert what in told
        assert "It must return a session of boto3 or botocore" in told


def both_refusals(kind: type[SqsFifoError], **given: str) -> list[str]:
    """Return the queue's refusal, then the journal's."""
    options = options_of("http://127.0.0.1:1/1/q.fifo", **given)
    lines = []
    for call in (
        Queue(options, SYSTEM_CLOCK).describe,
        lambda: open_store(options.journal_location, journal_access(options)),
    ):
        with pytest.raises((kind, JournalUnavailableError)) as told:
            call()
        assert len(str(told.value).splitlines()) == 1
        assert SECRET not in "".join(traceback.format_exception(told.value))
        lines.append(str(told.value))
    return lines


@pytest.mark.parametrize(
    ("option", "value", "what"),
    [
        ("credentialsProvider", "no.such:give", "cannot import no.such:give (ModuleNotFoundError)"),
        ("credentialsProvider", "mine.aws:none", "cannot import mine.aws:none (AttributeError)"),
        ("credentialsProvider", "mine.aws:number", "mine.aws:number is no function. Install its module"),
        ("serviceCredential", "x", "getServiceCredentialsProvider (ModuleNotFoundError). It is Databricks"),
    ],
)
def test_a_function_that_is_not_there_is_told(plant: Callable[..., None], option: str, value: str, what: str) -> None:
    """With what to do, by queue and journal."""
    plant("mine.aws", number=7)
    for told in both_refusals(OptionError, **{option: value}):
        assert told.startswith(f"option '{option}' is '{value}'; ")
        assert what in told


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ({"credentialsProvider": "mine.aws:fail"}, "ValueError"),
        ({"credentialsProvider": "mine.aws:give_nothing"}, "NoCredentialsError"),
        ({"serviceCredential": "x"}, "ValueError"),
        ({"profile": "none"}, "ProfileNotFound"),
    ],
)
def test_a_way_that_gives_no_credentials_is_named(plant: Callable[..., None], given: dict[str, str], kind: str) -> None:
    """With the kind of the error alone: its text may hold anything. A sink's tasks may still find some."""
    plant("mine.aws", fail=fail, give_nothing=give_nothing)
    plant(DATABRICKS, getServiceCredentialsProvider=lambda name: fail())
    (name,) = given
    by_queue, by_store = both_refusals(AccessDeniedError, **given)
    assert f"no usable AWS credentials for 'http://127.0.0.1:1/1/q.fifo' from option '{name}' ({kind})" in by_queue
    assert f"option '{name}' gives no credentials for the journal on S3" in by_store
    with pytest.raises(AccessDeniedError) as told:
        Queue(options_of("http://127.0.0.1:1/1/q.fifo", **given), SYSTEM_CLOCK).describe()
    assert told.value.has_no_credentials


def test_a_role_that_may_not_be_assumed_is_named_with_the_remedy(sts: TokenService, bucket: S3) -> None:
    """It is not the queue that refuses; and who has a journal of the chain's is told how to keep it."""
    sts.refusal = "AccessDenied"
    given = {"roleArn": ROLE, "stsEndpoint": sts.url, "journalEndpointUrl": bucket.url}
    options = options_of("http://127.0.0.1:1/1/q.fifo", **given)
    with pytest.raises(AccessDeniedError) as told:
        Queue(options, SYSTEM_CLOCK).describe()
    assert str(told.value).startswith(
        f"AWS did not give the role '{ROLE}' for 'http://127.0.0.1:1/1/q.fifo' (AssumeRole: AccessDenied). The caller's"
    )
    with pytest.raises(JournalUnavailableError) as told_by_store:
        open_store(options.journal_location, journal_access(options)).get("a/x")
    assert "AssumeRole: AccessDenied" in str(told_by_store.value)
    assert f"the role {ROLE} (or set journalCredentials to chain" in str(told_by_store.value)
    assert SECRET not in f"{told.value}{told_by_store.value}"


@pytest.mark.parametrize(
    ("endpoint", "region"),
    [
        ("https://sts.amazonaws.com", "us-east-1"),
        ("https://sts.eu-west-1.amazonaws.com", "eu-west-1"),
        ("https://vpce-1a-2b.sts.eu-west-2.vpce.amazonaws.com", "eu-west-2"),
        ("http://127.0.0.1:1", "ap-south-1"),
        (None, "ap-south-1"),
    ],
)
def test_the_call_that_assumes_a_role_is_signed_for_the_region_of_its_endpoint(
    monkeypatch: pytest.MonkeyPatch, endpoint: str | None, region: str
) -> None:
    """STS refuses another one. Without an endpoint of AWS's it is the queue's, as the SDK is told of none here."""
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    given = {"roleArn": ROLE, **({"stsEndpoint": endpoint} if endpoint else {})}
    identity = identity_of(**given)
    role = find_credentials(identity, open_session(identity), "ap-south-1")
    client = role._refresh_using.__self__._create_client()
    assert client.meta.region_name == region
    assert client._request_signer._region_name == region or endpoint is None


def test_no_secret_is_in_a_repr_a_log_or_the_journal(
    make_world: Callable[..., World], server: Answering, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever holds the options: themselves, the configuration of clients and stores, the journal's objects."""
    given = {**KEYS, "roleArn": ROLE, "roleExternalId": "EXTERNAL-55cc"}
    with caplog.at_level(logging.DEBUG):
        Queue(options_of(f"{server.url}/1/q.fifo", **KEYS), SYSTEM_CLOCK)._call("receive_message")
        world = make_world(**given)
        world.send("a1", "b1")
        query = Query(world)
        query.drain()
    options = options_of("http://127.0.0.1:1/1/q.fifo", **given)
    config = aws.ClientConfig(options.region, options.endpoint_url, options.identity)
    said = [repr(each) for each in (options, options.identity, config, journal_access(options), query.driver)]
    stored = [*world.store.objects, *map(repr, world.store.objects.values())]
    assert stored
    for secret in (SECRET, TOKEN, "AKIDMINE", "EXTERNAL-55cc"):
        assert not [text for text in (*said, *stored, caplog.text) if secret in text]


def test_the_identity_of_a_query_that_names_none_is_the_chain() -> None:
    """So that its clients and stores are those of every other such query in the process."""
    assert identity_of() == AWS_CHAIN
    assert all(getattr(AWS_CHAIN, each.name) is None for each in fields(Identity) if each.name != "role_session_name")


class Renewed:
    """Keys that are due to be renewed: `renew` gives new ones."""

    def __init__(self, minutes_left: int, renew: Callable[[], object] = lambda: None) -> None:
        self.count = 0
        self.clock = ManualClock()
        self._ends = (now() + timedelta(minutes=minutes_left)).isoformat()
        self._renew = renew
        first = self._metadata("old")
        refreshable = RefreshableCredentials.create_from_metadata(first, refresh_using=self._refresh, method="test")
        self.keys = Keys(refreshable, self.clock)

    def _metadata(self, key: str) -> dict[str, str]:
        return {"access_key": key, "secret_key": "s", "token": "t", "expiry_time": self._ends}

    def _refresh(self) -> dict[str, str]:
        self.count += 1
        self._renew()
        return self._metadata(f"{self.count}")


def test_one_thread_renews_and_the_others_use_the_keys_that_are_valid() -> None:
    """However long STS takes, or whatever it says: no renewal of a hold waits for it behind others."""
    asked, may_answer = threading.Semaphore(0), threading.Event()

    def renew() -> None:
        asked.release()
        assert may_answer.wait(60)
        raise ValueError("STS has no answer")

    renewed = Renewed(8, renew)
    keys = renewed.keys
    with ThreadPoolExecutor(1) as pool:
        renewing = pool.submit(keys)
        assert asked.acquire(timeout=60)
        assert [keys().access_key for _ in range(3)] == ["old"] * 3  # at once, while that one waits
        may_answer.set()
        assert renewing.result(60).access_key == "old"
    assert (keys().access_key, renewed.count) == ("old", 1)  # nor is it tried again at once
    renewed.clock.advance(RENEW_EVERY_S)
    assert (keys().access_key, renewed.count) == ("old", 2)


def test_a_renewal_that_brings_the_same_expiry_is_not_made_for_each_call() -> None:
    """As from a function that keeps its token until shortly before it expires."""
    renewed = Renewed(8)
    assert [renewed.keys().access_key for _ in range(5)] == ["1"] * 5
    renewed.clock.advance(RENEW_EVERY_S)
    assert renewed.keys().access_key == "2"


def test_expired_keys_are_never_used() -> None:
    """There the error is raised, by each call."""
    keys = Renewed(-1, fail).keys
    for _ in range(2):
        with pytest.raises(ChainError, match=r"^ValueError$"):
            keys()
