"""The policies in `conf`: enough for source and sink, with nothing to spare, and what is missing is told by name."""

from __future__ import annotations

import json
import pickle
import re
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from click.testing import CliRunner

from sqs_fifo_spark.aws import client as aws
from sqs_fifo_spark.cli.commands import commands
from sqs_fifo_spark.clock import SYSTEM_CLOCK
from sqs_fifo_spark.errors import AccessDeniedError, JournalUnavailableError, PayloadError
from sqs_fifo_spark.journal.location import BY_ENVIRONMENT, S3Access, open_store
from sqs_fifo_spark.journal.store import Store
from sqs_fifo_spark.local import LocalQueueServer
from sqs_fifo_spark.options import parse_sink_options, parse_source_options
from sqs_fifo_spark.payloads.buckets import Buckets
from sqs_fifo_spark.payloads.pointer import Pointer, pointer_in
from sqs_fifo_spark.sink.sink_queue import SinkQueue
from sqs_fifo_spark.sink.write import Place, Sent, draft, plan_for_tasks, send_partition
from sqs_fifo_spark.source.driver.driver import Driver
from sqs_fifo_spark.source.queue import Queue
from sqs_fifo_spark.source.task.partition import read_partition
from tests.helpers import depth, moto_server
from tests.unit.local.caller import Caller
from tests.unit.sending import batch

CONF = Path(__file__).resolve().parents[2] / "conf"
KEY = "CONNECTOR"
JOURNAL = "s3://orders-bucket/journals/orders"
PLACES = {
    "arn:aws:sqs:REGION:ACCOUNT_ID:QUEUE.fifo": "arn:aws:sqs:us-east-1:000000000000:q.fifo",
    "arn:aws:s3:::BUCKET/PREFIX/*": "arn:aws:s3:::orders-bucket/journals/orders/*",
    "arn:aws:s3:::BUCKET": "arn:aws:s3:::orders-bucket",
    "arn:aws:s3:::PAYLOADS_BUCKET/PAYLOADS_PREFIX/*": "arn:aws:s3:::orders-bucket/payloads/orders/*",
    "arn:aws:s3:::PAYLOADS_BUCKET/*": "arn:aws:s3:::orders-bucket/*",
    "arn:aws:s3:::PAYLOADS_BUCKET": "arn:aws:s3:::orders-bucket",
}


def shipped(who: str, *, without: str | None = None) -> dict[str, Any]:
    """Return a policy of `conf` with its places filled in, and one of its actions taken out."""
    policy: dict[str, Any] = json.loads((CONF / f"iam-{who}.json").read_text(encoding="utf-8"))
    for statement in policy["Statement"]:
        statement["Resource"] = PLACES[statement["Resource"]]
        statement["Action"] = [action for action in statement["Action"] if action != without]
    policy["Statement"] = [statement for statement in policy["Statement"] if statement["Action"]]
    return policy


def actions(who: str, service: str) -> list[str]:
    found = [action for statement in shipped(who)["Statement"] for action in statement["Action"]]
    return [action for action in found if action.startswith(f"{service}:")]


class Rig(Caller):
    """A queue of a connector that has a policy; the calls made here are another's, who has none."""

    def __init__(self, server: LocalQueueServer, journal: str) -> None:
        super().__init__(server)
        self.journal = journal

    def grant(self, who: str, *, without: str | None = None) -> None:
        self.server.set_policies({KEY: shipped(who, without=without)})

    def send_all(self) -> None:
        for body in MESSAGES:
            self.send(body, body[0])

    def depth(self) -> tuple[int, int]:
        return depth(lambda **request: self.call("GetQueueAttributes", **request)[1], self.url)

    def drain(self, delete_after: str = "commit") -> list[str]:
        """Run a query until nothing waits, and return the bodies that it gave."""
        places = {"queueUrl": self.url, "journalLocation": self.journal}
        options = parse_source_options({**places, "waitTimeSeconds": "1", "deleteAfter": delete_after})
        driver = Driver(
            options,
            queue=Queue(options, SYSTEM_CLOCK),
            store=lambda: open_store(options.journal_location),
            clock=SYSTEM_CLOCK,
        )
        found: list[str] = []
        try:
            end = driver.initial_offset()
            while (start := end) != (end := driver.latest_offset(start)):
                for plan in driver.plan(start, end):
                    for part in read_partition(options, plan):
                        found += part.column("body").to_pylist()
                driver.commit(end)
        finally:
            driver.stop()
        return found

    def write(self, *bodies: str) -> Sent:
        """Send rows as one task of a micro-batch."""
        return self._write({"journalLocation": self.journal}, bodies, lambda: open_store(self.journal))

    def write_large(self, *bodies: str) -> Sent:
        """Send rows whose bodies go to S3 as one task of a micro-batch, without a journal."""
        given = {"payloadLocation": "s3://orders-bucket/payloads/orders", "payloadThresholdBytes": "1"}
        return self._write(given, bodies, lambda: None, write_payload=Buckets(BY_ENVIRONMENT).write)

    def _write(
        self, given: dict[str, str], bodies: tuple[str, ...], open_journal: Callable[[], Store | None], **more: Any
    ) -> Sent:
        options = parse_sink_options({"queueUrl": self.url, **given})

        def outside() -> dict[str, Any]:
            return {"queue": SinkQueue(options, SYSTEM_CLOCK), "open_journal": open_journal}

        made = draft(options, by_column=True, clock=SYSTEM_CLOCK)
        plan = pickle.loads(pickle.dumps(plan_for_tasks(made, **outside())))
        place = Place(0, "query", 0)
        return send_partition(plan, [batch(*bodies)], place, **outside(), **more, clock=SYSTEM_CLOCK)


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    aws.forget_clients()
    with LocalQueueServer(queues=["q.fifo"]) as server:
        yield Rig(server, str(tmp_path / "journal"))
    aws.forget_clients()


MESSAGES = [f"{group}{number}" for number in range(4) for group in "abc"]
OPERATIONS = {
    "sqs:GetQueueAttributes": "get_queue_attributes",
    "sqs:ReceiveMessage": "receive_message",
    "sqs:DeleteMessage": "delete_message_batch",
    "sqs:ChangeMessageVisibility": "change_message_visibility_batch",
    "sqs:SendMessage": "send_message_batch",
}


def denied(rig: Rig, action: str, rest: str = "") -> Any:
    """Expect the one line that says so, and ends with `rest`."""
    line = (
        f"AWS denied {OPERATIONS[action]} on '{rig.url}': AccessDenied. Grant the permission '{action}' on the queue, "
        "or correct the credentials."
    )
    return pytest.raises(AccessDeniedError, match=rf"\A{re.escape(line)}{rest}\Z")


def assert_each_once(came: list[str]) -> None:
    """And each group in order."""
    assert sorted(came, key=lambda body: body[0]) == sorted(MESSAGES, key=lambda body: body[0])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("action", "delete_after"),
    [(None, "commit"), (None, "journal"), *((action, "commit") for action in actions("source", "sqs"))],
)
def test_a_source_needs_each_permission_of_its_policy_and_no_other(
    rig: Rig, action: str | None, delete_after: str
) -> None:
    """One line names a missing permission before a message is hidden from others; once granted, each comes once."""
    rig.send_all()
    rig.grant("source", without=action)
    if action is not None:
        with denied(rig, action):
            rig.drain(delete_after)
        assert rig.depth() == (len(MESSAGES), 0)
        rig.grant("source")
    assert_each_once(rig.drain(delete_after))
    assert rig.depth() == (0, 0)


@pytest.mark.parametrize("action", [None, *actions("sink", "sqs")])
def test_a_sink_needs_each_permission_of_its_policy_and_no_other(rig: Rig, action: str | None) -> None:
    """One line names a missing permission, and no row is sent; once granted, each row is sent once, in order."""
    rig.grant("sink", without=action)
    if action is not None:
        with denied(rig, action, "( 0 rows of partition 0 were sent.*)?"):
            rig.write(*MESSAGES)
        assert rig.depth() == (0, 0)
        rig.grant("sink")
    assert rig.write(*MESSAGES).rows == len(MESSAGES)
    assert_each_once(rig.held())


class Bucket:
    """moto's S3, which asks moto's IAM what a user may do.

    It judges a DeleteObjects by the ARN of the bucket, and not as S3 does by that of each object. So each statement on
    objects counts for the bucket, too.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._set_free_calls(1_000_000)
        self._iam, s3 = (boto3.client(name, endpoint_url=self.url) for name in ("iam", "s3"))
        s3.create_bucket(Bucket="orders-bucket")
        s3.close()
        self._iam.create_user(UserName="connector")
        self.key: dict[str, str] = self._iam.create_access_key(UserName="connector")["AccessKey"]

    def grant(self, who: str, *, without: str | None = None) -> None:
        policy = shipped(who, without=without)
        policy["Statement"] = [each for each in policy["Statement"] if each["Sid"].startswith(("Journal", "Payloads"))]
        for statement in policy["Statement"]:
            statement["Resource"] = [statement["Resource"], PLACES["arn:aws:s3:::BUCKET"]]
        self._set_free_calls(1_000_000)
        self._iam.put_user_policy(UserName="connector", PolicyName="policy", PolicyDocument=json.dumps(policy))
        self._set_free_calls(0)

    def _set_free_calls(self, count: int) -> None:
        """Let moto look at nobody's permissions for so many calls from now on."""
        headers = {"Content-Type": "text/plain"}
        asked = urllib.request.Request(f"{self.url}/moto-api/reset-auth", str(count).encode(), headers)
        urllib.request.urlopen(asked).close()

    def close(self) -> None:
        self._set_free_calls(1_000_000)
        self._iam.close()


@pytest.fixture(scope="module")
def bucket() -> Iterator[Bucket]:
    with moto_server() as url:
        made = Bucket(url)
        yield made
        made.close()


@pytest.fixture
def s3_rig(bucket: Bucket, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Rig]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", bucket.key["AccessKeyId"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", bucket.key["SecretAccessKey"])
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", bucket.url)
    monkeypatch.setattr("sqs_fifo_spark.cli.doctor.HOST_S", 60.0)  # a machine may be busy
    aws.forget_clients()
    bucket.grant("source")
    with LocalQueueServer(queues=["q.fifo"]) as server:
        yield Rig(server, f"{JOURNAL}/{tmp_path.name}")
    aws.forget_clients()


def assert_s3_denies(action: str, call: Callable[[], object]) -> None:
    """In one line."""
    place = "bucket" if action == "s3:ListBucket" else "prefix"
    with pytest.raises(JournalUnavailableError) as told:
        call()
    assert f"Grant the permission '{action}' on the {place}" in str(told.value)
    assert "\n" not in str(told.value)


@pytest.mark.slow
@pytest.mark.parametrize("action", [None, *actions("source", "s3")])
def test_a_source_needs_each_permission_on_its_journal_and_no_other(
    s3_rig: Rig, bucket: Bucket, action: str | None
) -> None:
    """One line names a missing permission before a message is hidden from others; once granted, each comes once."""
    s3_rig.send_all()
    bucket.grant("source", without=action)
    if action is not None:
        assert_s3_denies(action, s3_rig.drain)
        assert s3_rig.depth() == (len(MESSAGES), 0)
        bucket.grant("source")
    assert_each_once(s3_rig.drain())
    assert s3_rig.depth() == (0, 0)


@pytest.mark.slow
@pytest.mark.parametrize("action", [None, *actions("sink", "s3")])
def test_a_sink_needs_each_permission_on_its_journal_and_no_other(
    s3_rig: Rig, bucket: Bucket, action: str | None
) -> None:
    """One line names a missing permission; once granted, each row is in the queue once."""
    bucket.grant("sink", without=action)
    if action is not None:
        assert_s3_denies(action, lambda: s3_rig.write(*MESSAGES))
        bucket.grant("sink")
    s3_rig.write(*MESSAGES)
    assert_each_once(s3_rig.held())


@pytest.mark.slow
def test_a_sink_needs_one_permission_for_large_bodies(s3_rig: Rig, bucket: Bucket) -> None:
    """One line names it with the object, and no row is sent; once granted, each row is sent once."""
    assert actions("sink-payloads", "s3") == ["s3:PutObject"]
    bucket.grant("sink")  # which is for a journal
    with pytest.raises(PayloadError) as told:
        s3_rig.write_large(*MESSAGES)
    line = (
        r"cannot write the body of row \d+ to 's3://orders-bucket/payloads/orders/[0-9a-f]{64}': S3 refuses "
        r"s3:PutObject with AccessDenied\. It is not sent\. Grant the permission 's3:PutObject' on the prefix, correct "
        r"payloadLocation \(bucket 'orders-bucket'\), or the credentials\. 0 rows of partition 0 were sent\."
    )
    assert re.fullmatch(line, str(told.value))
    bucket.grant("sink-payloads")
    assert s3_rig.write_large(*MESSAGES).rows == len(MESSAGES)
    held = s3_rig.held()
    assert len(held) == len(MESSAGES)
    assert all(pointer_in(body, {"ExtendedPayloadSize": "2"}) for body in held)


@pytest.mark.slow
def test_a_source_needs_two_permissions_for_payloads(s3_rig: Rig, bucket: Bucket) -> None:
    """Each is named where it is missing. A third shows that an object is missing, rather than forbidden."""
    assert actions("source-payloads", "s3") == ["s3:GetObject", "s3:DeleteObject", "s3:ListBucket"]
    pointer = Pointer("orders-bucket", "payloads/orders/one")
    buckets = Buckets(S3Access("us-east-1", endpoint_url=bucket.url))
    bucket.grant("sink-payloads")
    buckets.write(pointer, b"body")
    with pytest.raises(PayloadError, match="S3 refuses s3:GetObject with AccessDenied") as told:
        buckets.read(pointer, 10)
    assert told.value.is_final
    (denied,) = buckets.delete([pointer]).values()
    assert (str(denied), denied.is_final) == ("S3 refuses s3:DeleteObject with AccessDenied", True)
    bucket.grant("source-payloads")
    assert buckets.read(pointer, 10) == b"body"
    assert not buckets.delete([pointer])


def failures(rig: Rig) -> dict[str, str]:
    """Return what the doctor finds wrong, by check, and what it says to it."""
    arguments = ("doctor", "--queue-url", rig.url, "--journal-location", rig.journal, "--role", "both", "--json")
    found = [json.loads(line) for line in CliRunner().invoke(commands, arguments).stdout.splitlines()]
    assert {"sqs:GetQueueAttributes", "journal: delete"} <= {each["check"] for each in found}
    return {each["check"]: f"{each['says']} {each['remedy']}" for each in found if each["level"] == "failure"}


@pytest.mark.slow
@pytest.mark.parametrize("action", [None, *actions("doctor", "sqs"), *actions("doctor", "s3")])
def test_the_doctor_s_policy_lets_it_look_at_everything(s3_rig: Rig, bucket: Bucket, action: str | None) -> None:
    """Without one of the actions, it names that one; and no message is received, deleted or sent."""
    s3_rig.send("a1", "a")
    s3_rig.server.set_policies({bucket.key["AccessKeyId"]: shipped("doctor", without=action)})
    bucket.grant("doctor", without=action)
    found = failures(s3_rig)
    if action is None:
        assert found == {}
    else:
        assert action in " ".join(found.values())
        assert {check for check in found if check.startswith("sqs:")} == {action} & set(OPERATIONS)
    assert s3_rig.depth() == (1, 0)
    (message,) = s3_rig.receive(AttributeNames=["All"])
    assert message["Attributes"]["ApproximateReceiveCount"] == "1"
