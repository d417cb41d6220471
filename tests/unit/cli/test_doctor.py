"""`doctor` names what is missing and what to do about it, and harms nothing."""

from __future__ import annotations

import json
import os
import socket
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from sqs_fifo_spark.aws import client as aws
from sqs_fifo_spark.cli import journal_checks, python_checks, queue_checks
from sqs_fifo_spark.cli import slow_calls as waiting
from sqs_fifo_spark.cli.output import Status
from sqs_fifo_spark.clock import SYSTEM_CLOCK
from sqs_fifo_spark.errors import AccessDeniedError, JournalUnavailableError, TransientQueueError
from sqs_fifo_spark.journal.file_store import FileStore
from sqs_fifo_spark.local import Faults
from tests.unit.cli.conftest import Rig, lines

SENDS, RECEIVES = "sqs:SendMessage", "sqs:ReceiveMessage"


@pytest.fixture
def interpreters() -> None:
    """Tests that ask for it are about the interpreters that Spark takes; no other starts one."""


@pytest.fixture(autouse=True)
def this_python_only(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    if "interpreters" not in request.fixturenames:
        monkeypatch.setattr(python_checks, "ask", lambda python, names: ([], "3.10.0"))


def found(rig: Rig, *arguments: str, status: int = Status.OK) -> dict[str, tuple[str, str]]:
    """Return level and text of each check of a `doctor`, which ends with `status`."""
    result = rig.on_queue("doctor", "--json", *arguments)
    assert result.exit_code == status, result.output
    assert result.stderr == ""
    return findings_of(result)


def findings_of(result: Result) -> dict[str, tuple[str, str]]:
    return {each["check"]: (each["level"], f"{each['says']}. {each['remedy']}") for each in lines(result)}


def levels(findings: dict[str, tuple[str, str]], level: str) -> set[str]:
    return {check for check, (its, _) in findings.items() if its == level}


def test_all_is_well_but_for_what_cannot_be_told(rig: Rig) -> None:
    """Only a message shows for certain whether one may be received or sent."""
    findings = found(rig, "--role", "both", "--journal-location", str(rig.journal))
    assert levels(findings, "failure") == set()
    assert levels(findings, "warning") == {RECEIVES, SENDS}
    assert "only receiving a message would show" in findings[RECEIVES][1]
    assert "peek" in findings[RECEIVES][1]
    assert "only sending a message would show" in findings[SENDS][1]
    assert {"sqs:DeleteMessage", "sqs:ChangeMessageVisibility", "sqs:GetQueueAttributes"} <= levels(findings, "ok")


def test_people_read_a_line_for_each_check(rig: Rig) -> None:
    """Level, check, what was found, remedy."""
    rig.server.faults = Faults(deny=frozenset({"DeleteMessageBatch"}))
    result = rig.on_queue("doctor")
    assert result.exit_code == Status.PROBLEM
    (line,) = [line for line in result.stdout.splitlines() if line.startswith("failure")]
    assert line.startswith("failure  sqs:DeleteMessage: denied. Grant sqs:DeleteMessage on the queue: ")
    assert all(line.split()[0] in ("ok", "warning", "failure") for line in result.stdout.splitlines())


@pytest.mark.parametrize(
    ("denied", "check", "role"),
    [("ReceiveMessage", RECEIVES, "source"), ("SendMessageBatch", SENDS, "sink")],
)
def test_a_denied_action_is_named_with_its_remedy(rig: Rig, denied: str, check: str, role: str) -> None:
    """And all else is still looked at."""
    rig.server.faults = Faults(deny=frozenset({denied}))
    findings = found(rig, "--role", role, status=Status.PROBLEM)
    assert levels(findings, "failure") == {check}
    assert "conf/iam-source.json and conf/iam-sink.json are policies" in findings[check][1]
    assert check in findings[check][1]


def test_no_message_is_touched(rig: Rig) -> None:
    """None is received, hidden, deleted or added: the first receive of each is still to come, in order."""
    rig.send("1", "2", group="a")
    rig.send("3", group="b")
    before = rig.server.run(lambda model: model.has_deliverable(rig.url))
    for _ in range(2):
        found(rig, "--role", "both", "--journal-location", str(rig.journal))
    assert before
    assert sorted(rig.receive()) == [("1", "a", 1), ("2", "a", 1), ("3", "b", 1)]
    found(rig, "--role", "both")
    assert rig.receive() == [], "what others hold stays held"


@pytest.mark.parametrize(
    ("attributes", "check", "level", "says"),
    [
        ({}, "throughput", "ok", "300 calls a second"),
        ({"DeduplicationScope": "messageGroup"}, "throughput", "warning", "set FifoThroughputLimit=perMessageGroupId"),
        (
            {"DeduplicationScope": "messageGroup", "FifoThroughputLimit": "perMessageGroupId"},
            "throughput",
            "ok",
            "high throughput",
        ),
        ({"MessageRetentionPeriod": "60"}, "retention", "warning", "drops a message that has waited 60 s"),
        ({"VisibilityTimeout": "77"}, "VisibilityTimeout", "ok", "77 s"),
        ({"ContentBasedDeduplication": "true"}, "deduplication", "ok", "is on"),
        ({}, "deduplication", "ok", "is off"),
        ({"KmsMasterKeyId": "alias/mine"}, "encryption", "warning", "kms:Decrypt and kms:GenerateDataKey"),
        ({"KmsMasterKeyId": "alias/aws/sqs"}, "encryption", "ok", "AWS's own key"),
        ({}, "encryption", "ok", "by SQS itself"),
        ({}, "redrive policy", "ok", "none"),
    ],
)
def test_settings_are_judged(rig: Rig, attributes: dict[str, str], check: str, level: str, says: str) -> None:
    rig.set(**attributes)
    findings = found(rig, "--role", "both")
    assert findings[check][0] == level
    assert says in findings[check][1]


@pytest.mark.parametrize(
    ("count", "level"), [(1, "failure"), (2, "failure"), (3, "warning"), (9, "warning"), (10, "ok")]
)
def test_a_low_max_receive_count_is_told(rig: Rig, count: int, level: str) -> None:
    """3 at the least, better 10."""
    arn = rig.arn(rig.create("dead"))
    rig.set(RedrivePolicy=json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": count}))
    findings = found(rig, status=Status.PROBLEM if level == "failure" else Status.OK)
    assert findings["maxReceiveCount"][0] == level
    assert f"after {count} receives" in findings["maxReceiveCount"][1]
    assert findings["dead-letter queue"] == ("ok", f"{arn}. ")


def test_a_dead_letter_queue_that_is_gone_is_told(rig: Rig) -> None:
    url = rig.create("dead")
    arn = rig.arn(url)
    rig.set(RedrivePolicy=json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 10}))
    rig.sqs.delete_queue(QueueUrl=url)
    findings = found(rig, status=Status.PROBLEM)
    assert levels(findings, "failure") == {"dead-letter queue"}
    assert "does not exist" in findings["dead-letter queue"][1]


@pytest.mark.parametrize(
    ("attributes", "check"),
    [
        ({"FifoQueue": "false"}, "FIFO"),
        ({"RedrivePolicy": "{"}, "redrive policy"),
        ({"RedrivePolicy": '{"deadLetterTargetArn": "arn:aws:sqs:r:1:x", "maxReceiveCount": 10}'}, "dead-letter queue"),
    ],
)
def test_what_no_real_queue_says_is_a_failure_too(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, attributes: dict[str, str], check: str
) -> None:
    """A stand-in for SQS may say anything."""
    attributes_of = queue_checks.CheckedQueue.attributes
    monkeypatch.setattr(queue_checks.CheckedQueue, "attributes", lambda self: {**attributes_of(self), **attributes})
    assert levels(found(rig, status=Status.PROBLEM), "failure") == {check}


AWS_URL = "https://sqs.eu-west-1.amazonaws.com/123456789012/bids.fifo"


@pytest.mark.parametrize(
    ("answer", "level", "says"),
    [
        ("arn:aws:sts::123456789012:assumed-role/reader/x", "ok", "assumed-role/reader"),
        (AccessDeniedError("there are no usable AWS credentials (NoCredentialsError)."), "failure", "no usable AWS"),
        (TransientQueueError("STS does not say who the caller is (ConnectTimeoutError)."), "warning", "does not say"),
    ],
)
def test_sts_is_asked_who_calls(rig: Rig, monkeypatch: pytest.MonkeyPatch, answer: Any, level: str, says: str) -> None:
    """On AWS. A network without STS is no failure."""

    def caller(config: Any) -> str:
        if isinstance(answer, Exception):
            raise answer
        return str(answer)

    monkeypatch.setattr("sqs_fifo_spark.aws.client.caller_arn", caller)
    monkeypatch.setattr(queue_checks.CheckedQueue, "_retrying", lambda *given, **named: {"Attributes": {}})
    rig.url = AWS_URL
    its, text = found(rig, status=Status.PROBLEM)["credentials"]
    assert its == level
    assert says in text


def test_the_journals_place_is_tried_and_left_as_it_was(rig: Rig) -> None:
    """Each step by itself; what was written is gone, and a journal that stands there is untouched."""
    rig.send("1")
    rig.read_epoch()
    before = rig.stored()
    findings = found(rig, "--journal-location", str(rig.journal))
    steps = {"journal: write", "journal: put if absent", "journal: read", "journal: list", "journal: delete"}
    assert steps | {"journal: queue"} <= levels(findings, "ok")
    assert rig.stored() == before


def put_over(self: FileStore, name: str, data: bytes) -> bool:
    path = Path(self.location, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return True


def be_full(self: FileStore, name: str, data: bytes) -> bool:
    raise JournalUnavailableError("No space left on device")


@pytest.mark.parametrize(
    ("method", "broken", "check", "says"),
    [
        ("put_if_absent", be_full, "write", "No space left on device"),
        ("put_if_absent", put_over, "put if absent", "was taken"),
        ("list", lambda *given: [], "list", "is not listed"),
        ("delete", lambda *given: None, "delete", "is still listed"),
        ("get", lambda *given: None, "read", "is not found"),
        ("a file", None, "write", "Not a directory"),
        ("another's", None, "queue", "belongs to the queue"),
        ("a later format", None, "queue", "has format 99"),
    ],
)
def test_a_place_that_does_not_do_is_told_by_the_step_that_fails(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, method: str, broken: Any, check: str, says: str
) -> None:
    """Where a method of the store is broken, or something else stands in the journal's place."""
    if broken:
        monkeypatch.setattr(FileStore, method, broken)
    elif method == "a file":
        rig.journal.write_text("")
    elif method == "another's":
        rig.driver()
        rig.url = rig.create("other")
    else:
        rig.journal.mkdir()
        (rig.journal / "journal.json").write_text('{"format": 99}')
    findings = found(rig, "--journal-location", str(rig.journal), status=Status.PROBLEM)
    assert f"journal: {check}" in levels(findings, "failure")
    assert says in findings[f"journal: {check}"][1]
    if check == "write":
        assert not levels(findings, "ok") & {"journal: read", "journal: list", "journal: delete"}


def test_whose_journal_it_is_stays_open_without_the_queues_arn(rig: Rig) -> None:
    rig.driver()
    rig.server.faults = Faults(deny=frozenset({"GetQueueAttributes"}))
    findings = found(rig, "--journal-location", str(rig.journal), status=Status.PROBLEM)
    assert findings["journal: queue"][0] == "warning"


def test_java_is_found_without_starting_it(rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its version stands in a file beside it."""
    program = tmp_path / "jdk" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text("")
    program.chmod(stat.S_IRWXU)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    assert found(rig)["java"] == ("ok", f"version not known, {program}. ")
    (tmp_path / "jdk" / "release").write_text('IMPLEMENTOR="x"\nJAVA_VERSION="17.0.9"\n')
    assert found(rig)["java"] == ("ok", f"17.0.9, {program}. ")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert found(rig)["java"][0] == "warning"


def an_interpreter(path: Path, *, has: bool) -> str:
    """Make a Python that has this package, or nothing."""
    path.write_text(f'#!/bin/sh\nexec {sys.executable} {"" if has else "-S -E"} "$@"\n')
    path.chmod(stat.S_IRWXU)
    return str(path)


@pytest.mark.usefixtures("interpreters")
@pytest.mark.parametrize(
    ("driver", "worker", "format_level", "workers_level"),
    [
        (None, "full", "ok", "ok"),
        ("full", None, "ok", "warning"),
        ("bare", "full", "warning", "ok"),
        (None, "bare", "warning", "failure"),
        ("missing", "full", "warning", "ok"),
        (None, "missing", "warning", "failure"),
        (None, None, "warning", "warning"),
    ],
)
def test_the_interpreters_that_spark_takes_are_asked(
    rig: Rig,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    driver: str | None,
    worker: str | None,
    format_level: str,
    workers_level: str,
) -> None:
    """By PYSPARK_DRIVER_PYTHON, else PYSPARK_PYTHON, else python3, Spark looks formats up."""
    an_interpreter(tmp_path / "full", has=True)
    an_interpreter(tmp_path / "bare", has=False)
    an_interpreter(tmp_path / "python3", has=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/usr/bin{os.pathsep}/bin")
    for name, chosen in (("PYSPARK_DRIVER_PYTHON", driver), ("PYSPARK_PYTHON", worker)):
        monkeypatch.delenv(name, raising=False)
        if chosen:
            monkeypatch.setenv(name, str(tmp_path / chosen))
    is_failure = "failure" in (format_level, workers_level)
    findings = found(rig, status=Status.PROBLEM if is_failure else Status.OK)
    assert (findings["format"][0], findings["workers"][0]) == (format_level, workers_level)
    assert ("register" in findings["format"][1]) == (format_level != "ok")
    assert ("PYSPARK_PYTHON" in findings["workers"][1]) == (workers_level != "ok" or worker is not None)


@pytest.mark.usefixtures("interpreters")
@pytest.mark.long
def test_a_spark_that_is_started_finds_the_format(rig: Rig) -> None:
    assert found(rig, "--start-spark")["spark"] == ("ok", "a Spark was started, and found 'sqsfifo'. ")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "says"), [("import sys; sys.exit('boom')", "boom"), ("import time; time.sleep(60)", "within 1 s")]
)
def test_a_spark_that_does_not_start_is_told(rig: Rig, monkeypatch: pytest.MonkeyPatch, script: str, says: str) -> None:
    monkeypatch.setattr(python_checks, "_SPARK", script)
    monkeypatch.setattr(python_checks, "_SPARK_S", 1.0)
    its, text = found(rig, "--start-spark", status=Status.PROBLEM)["spark"]
    assert its == "failure"
    assert says in text


NOT_CHECKED = "not checked, because "
HOST_S = "sqs_fifo_spark.cli.doctor.HOST_S"


def answered_within(monkeypatch: pytest.MonkeyPatch, silent_s: float, *silent: str) -> None:
    """Wait for the answers of hosts whose names begin so for `silent_s`, and a minute for any other.

    A machine that stands still uses up one of many short waits, not all.
    """
    is_over = waiting.is_over

    def answer(call: Callable[[], Any], whose: str, budget_s: float) -> Any:
        return waiting.answer(call, whose, silent_s if whose.startswith(silent) else 60.0)

    for module in (queue_checks, journal_checks):
        monkeypatch.setattr(module, "answer", answer)
    monkeypatch.setattr(
        waiting, "is_over", lambda future, within_s: any(is_over(future, within_s / 20) for _ in range(20))
    )


def not_checked(findings: dict[str, tuple[str, str]]) -> set[str]:
    return {check for check, (level, text) in findings.items() if level == "warning" and text.startswith(NOT_CHECKED)}


PERMISSIONS = {RECEIVES, SENDS, "sqs:DeleteMessage", "sqs:ChangeMessageVisibility"}
STEPS = {f"journal: {step}" for step in ("put if absent", "read", "list", "delete", "queue")}
PLACE = "the journal's place"


def test_a_queue_that_stops_answering_is_asked_no_more(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is its dead-letter queue, which is in the same place; what was told before is judged."""
    arn = rig.arn(rig.create("dead"))
    rig.set(RedrivePolicy=json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 10}))
    monkeypatch.setattr(HOST_S, 0.5)
    answered_within(monkeypatch, 60.0)
    rig.server.faults = Faults(reset=1.0, actions=frozenset({"ReceiveMessage"}))
    findings = found(rig, "--role", "both", status=Status.PROBLEM)
    assert levels(findings, "failure") == {RECEIVES}
    assert not_checked(findings) == {*PERMISSIONS - {RECEIVES}, "dead-letter queue"}
    assert findings["maxReceiveCount"][0] == "ok"


@pytest.mark.parametrize("url", [None, AWS_URL], ids=["elsewhere", "on AWS"])
def test_missing_credentials_are_told_once_and_no_permission_is_advised(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, url: str | None
) -> None:
    """A grant would be of no use to nobody."""
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    aws.forget_clients()
    rig.url = url or rig.url
    findings = found(rig, "--role", "both", status=Status.PROBLEM)
    aws.forget_clients()
    assert levels(findings, "failure") == {"credentials"}
    assert "no usable AWS credentials" in findings["credentials"][1]
    assert "by environment, profile, instance role" in findings["credentials"][1]
    assert not_checked(findings) == {*PERMISSIONS, "sqs:GetQueueAttributes"}
    assert not any("rant" in text for _, text in findings.values())


def test_credentials_that_aws_does_not_take_are_no_matter_of_a_grant(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """STS needs no permission, so what it refuses are the credentials."""

    def refuse(*given: Any, **named: Any) -> Any:
        raise AccessDeniedError("AWS does not take the credentials (InvalidClientTokenId).")

    monkeypatch.setattr("sqs_fifo_spark.aws.client.caller_arn", refuse)
    monkeypatch.setattr(queue_checks.CheckedQueue, "_retrying", refuse)
    rig.url = AWS_URL
    findings = found(rig, "--role", "both", status=Status.PROBLEM)
    assert levels(findings, "failure") == {"credentials", "sqs:GetQueueAttributes"}
    assert not_checked(findings) == PERMISSIONS
    assert not any("rant" in text for _, text in findings.values())


@pytest.fixture
def silent() -> Iterator[str]:
    """Return the address of a host that takes connections, and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def test_hosts_that_never_answer_are_given_up_in_time(rig: Rig, silent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the queue and of the journal: each is waited for once, and each line says why.

    While that lasts, the standard error says so; nothing is said to be well that was not seen.
    """
    answered_within(monkeypatch, 0.5, "the queue", PLACE)
    monkeypatch.setattr(waiting, "NOTICE_AFTER_S", 0.2)
    rig.url = f"{silent}/000000000000/bids.fifo"
    began_at = SYSTEM_CLOCK.monotonic()
    journal = ("--journal-location", "s3://any/x", "--journal-endpoint-url", silent)
    result = rig.on_queue("doctor", "--json", "--role", "both", *journal)
    findings = findings_of(result)
    assert SYSTEM_CLOCK.monotonic() - began_at < 10
    assert f"waiting for an answer of {PLACE}, 's3://any/x', for up to" in result.stderr
    assert levels(findings, "failure") == {"sqs:GetQueueAttributes", "journal: write"}
    assert "had no answer within 4 s" in findings["sqs:GetQueueAttributes"][1]
    assert "'s3://any/x' gave no answer within 4 s" in findings["journal: write"][1]
    assert not_checked(findings) == PERMISSIONS | STEPS


def test_a_journal_whose_credentials_never_come_is_given_up_in_time(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The place itself is not got to: STS, an instance's metadata or a program of the user's may be what is silent."""
    is_over = threading.Event()
    monkeypatch.setattr("sqs_fifo_spark.cli.journal_checks.open_store", lambda *given: is_over.wait(60))
    monkeypatch.setattr(HOST_S, 0.3)
    began_at = SYSTEM_CLOCK.monotonic()
    threading.Timer(5, is_over.set).start()
    findings = found(rig, "--journal-location", "s3://any/x", status=1)
    assert not is_over.is_set(), f"{SYSTEM_CLOCK.monotonic() - began_at:.1f} s"
    is_over.set()
    assert "'s3://any/x' gave no answer within 0.3 s" in findings["journal"][1]


def test_an_sts_that_never_answers_is_given_up_in_time(rig: Rig, silent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And is not asked where the queue itself is silent."""
    is_over = threading.Event()
    asked: list[bool] = []
    monkeypatch.setattr("sqs_fifo_spark.aws.client.caller_arn", lambda config: asked.append(is_over.wait(60)))
    monkeypatch.setattr(queue_checks, "region_of", lambda url: "us-east-1")
    answered_within(monkeypatch, 0.3, "STS")
    level, text = found(rig)["credentials"]
    is_over.set()
    assert level == "warning"
    assert text.startswith("STS gave no answer within 4 s. A network without a way to STS")
    answered_within(monkeypatch, 0.2, "the queue")
    rig.url = f"{silent}/000000000000/bids.fifo"
    assert "credentials" in not_checked(found(rig, status=Status.PROBLEM))
    assert len(asked) == 1
