"""The kit of facts: our queue holds all of them, a queue with a broken rule fails the right one, verdicts are fair."""

from __future__ import annotations

import _thread
import dataclasses
import itertools
import json
import os
import re
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, EndpointConnectionError
from click.testing import CliRunner

from sqs_fifo_spark.cli.commands import commands
from sqs_fifo_spark.clock import SYSTEM_CLOCK, SystemClock
from sqs_fifo_spark.conformance.bench import Bench
from sqs_fifo_spark.conformance.case import API, Case, Differs, NotDecided, NotSupported
from sqs_fifo_spark.conformance.grounds import find_cases
from sqs_fifo_spark.conformance.kit import (
    DIFFERS,
    HOLDS,
    NOT_DECIDED,
    NOT_SUPPORTED,
    Kit,
    Result,
    make_client,
    most_calls,
    report,
)
from sqs_fifo_spark.conformance.refusals import require_refusal, said
from sqs_fifo_spark.local import Faults, LocalQueueServer, PlannedFault, errors, fifo, validation
from sqs_fifo_spark.local.errors import SqsError
from sqs_fifo_spark.local.fifo import FifoQueue
from sqs_fifo_spark.local.message_store import Group, MessageStore, StoredMessage
from sqs_fifo_spark.local.quota import Quota
from sqs_fifo_spark.local.recent import Recent
from sqs_fifo_spark.local.redrive import MoveTasks
from sqs_fifo_spark.local.settings import Settings

ROOT = Path(__file__).resolve().parents[3]
_SHORT_S = 60


class Leap(SystemClock):
    """A clock whose waits set the server's clock ahead instead."""

    def __init__(self, server: LocalQueueServer) -> None:
        self._server = server

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        self._server.advance(timeout_s)
        return event.is_set()


def kit_for(server: LocalQueueServer, **given: Any) -> Kit:
    return Kit(make_client(server.endpoint_url, "us-east-1", 32), "kit", **given)


def judge(case: Case) -> Result:
    """Judge one case on a queue of its own, in leaps of time."""
    with LocalQueueServer() as server:
        return kit_for(server, clock=Leap(server)).judge(case)


def failed(results: list[Result]) -> list[str]:
    return [str(each) for each in results if each.verdict != HOLDS]


@pytest.mark.slow
def test_local_queue_holds_every_fact() -> None:
    """Each case holds, within its calls, in real time where it is short, and by the policy in `conf`; none is left."""
    cases = [case for case in find_cases() if case.seconds <= _SHORT_S]
    text = (ROOT / "conf" / "iam-conformance.json").read_text(encoding="utf-8")
    policy = text.replace("REGION", "us-east-1").replace("ACCOUNT_ID", "000000000000")
    names: list[str] = []
    with LocalQueueServer(policies={os.environ["AWS_ACCESS_KEY_ID"]: json.loads(policy)}) as server:
        kit = kit_for(server)
        kit.prefix = "conformance"
        kit.client.meta.events.register(
            "provide-client-params.sqs.CreateQueue", lambda params, **_: names.append(params["QueueName"])
        )
        with kit.run(cases, jobs=32) as run:
            results = list(run)
        assert failed(results) == []
        assert [name for name in names if not name.startswith("conformance-")] == []
        assert server.run(lambda model: model.queue_names) == kit.left == []


@pytest.mark.slow
def test_local_queue_holds_the_facts_of_minutes() -> None:
    long_ones = [case for case in find_cases() if case.seconds > _SHORT_S]
    assert len(long_ones) == 4
    assert failed([judge(case) for case in long_ones]) == []


def interrupt_a_case(server: LocalQueueServer) -> None:
    while len(server.run(lambda model: model.queue_names)) < 2:
        SYSTEM_CLOCK.sleep(0.01)
    threading.Timer(0.5, _thread.interrupt_main).start()
    raise KeyboardInterrupt


def test_run_that_is_broken_off_leaves_no_queue() -> None:
    """Ctrl-C ends cases at their next call or wait, and their queues are deleted, also when it comes twice."""
    cases = find_cases(["deduplication.five-minutes", "polls.empty-answer"])
    with LocalQueueServer() as server:
        kit, began = kit_for(server), SYSTEM_CLOCK.monotonic()
        run = kit.run(cases)
        with pytest.raises(KeyboardInterrupt), run:
            interrupt_a_case(server)
        assert {result.verdict for result in run} <= {NOT_DECIDED, HOLDS}
        assert server.run(lambda model: model.queue_names) == kit.left == []
        assert SYSTEM_CLOCK.monotonic() - began < 60


def test_queue_whose_creation_was_not_answered_is_deleted() -> None:
    faults = Faults(drop_answer=1, actions=frozenset(["CreateQueue"]))
    with LocalQueueServer(faults=faults) as server:
        kit = kit_for(server)
        (case,) = find_cases(["locks.order"])
        assert kit.judge(case).verdict == DIFFERS
        assert server.run(lambda model: model.queue_names) == kit.left == []


def test_queue_is_deleted_whose_creation_was_refused_after_a_lost_answer() -> None:
    lost = PlannedFault("drop_answer", "CreateQueue", number=1)
    throttled = PlannedFault("throttle", "CreateQueue", number=2)
    with LocalQueueServer(faults=Faults(planned=(lost, throttled))) as server:
        again = Config(retries={"total_max_attempts": 2, "mode": "standard"})
        client = boto3.client("sqs", endpoint_url=server.endpoint_url, region_name="us-east-1", config=again)
        kit = Kit(client, "kit", is_aws=True)
        (case,) = find_cases(["locks.order"])
        assert kit.judge(case).verdict == NOT_DECIDED
        assert server.run(lambda model: model.queue_names) == kit.left == []


def test_delete_that_fails_is_tried_again() -> None:
    with LocalQueueServer(
        faults=Faults(planned=(PlannedFault("server_error", "DeleteQueue", number=1, times=3),))
    ) as server:
        kit = kit_for(server)
        (case,) = find_cases(["locks.order"])
        assert kit.judge(case).verdict == HOLDS
        assert server.run(lambda model: model.queue_names) == kit.left == []


# Rules of the queue, broken one at a time


def no_lock(patch: pytest.MonkeyPatch) -> None:
    def enqueue(self: FifoQueue, message: StoredMessage, delay_s: int, now: float) -> None:
        self._store.append(message, message.sequence)

    patch.setattr(FifoQueue, "_enqueue", enqueue)


def tail_past_held_head(patch: pytest.MonkeyPatch) -> None:
    def first_shown(store: MessageStore, group: Group) -> StoredMessage | None:
        return next((message for message in group.messages.values() if message.hidden_until is None), None)

    def settle(self: MessageStore, group: Group) -> None:
        self._free.pop(group, None)
        if first_shown(self, group) is not None:
            self._free[group] = None

    patch.setattr(MessageStore, "_settle", settle)
    patch.setattr(MessageStore, "deliverable", lambda self, group, most: [first_shown(self, group)])
    patch.setattr(
        MessageStore, "first_free", lambda self: first_shown(self, next(iter(self._free))) if self._free else None
    )


def lapsed_handle_deletes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FifoQueue, "_in_flight", lambda self, sequence, receive: self._store.get(sequence))


def _after(patch: pytest.MonkeyPatch, name: str, then: Callable[..., None]) -> None:
    """Let `then` run after the queue's method."""
    method = getattr(FifoQueue, name)

    def both(self: FifoQueue, *given: Any, **named: Any) -> Any:
        done = method(self, *given, **named)
        then(self, *given)
        return done

    patch.setattr(FifoQueue, name, both)


def delete_forgets_id(patch: pytest.MonkeyPatch) -> None:
    _after(patch, "delete", lambda self, *_: self._remembered.clear())


def ids_of_the_whole_queue(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FifoQueue, "settings", property(_settings, _set_settings), raising=False)


def _settings(self: FifoQueue) -> Settings:
    settings: Settings = self.__dict__["settings"]
    return dataclasses.replace(settings, deduplicates_per_group=False)


def _set_settings(self: FifoQueue, settings: Settings) -> None:
    self.__dict__["settings"] = settings


def numbers_fall(patch: pytest.MonkeyPatch) -> None:
    def next_sequence(self: FifoQueue) -> int:
        self.last_sequence -= 1
        return self.last_sequence

    patch.setattr(FifoQueue, "_next_sequence", next_sequence)


def count_stands(patch: pytest.MonkeyPatch) -> None:
    def reset(self: FifoQueue, message: StoredMessage, *_: Any) -> None:
        message.receive_count = 1

    _after(patch, "_hand_out", reset)


def purge_keeps_ids(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Recent, "clear", lambda self: None)


def no_delay(patch: pytest.MonkeyPatch) -> None:
    enqueue = FifoQueue._enqueue
    patch.setattr(FifoQueue, "_enqueue", lambda self, message, delay_s, now: enqueue(self, message, 0, now))


def no_attempts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FifoQueue, "_delivered_by", lambda self, attempt_id: None)


def change_refuses_nothing(patch: pytest.MonkeyPatch) -> None:
    change = FifoQueue.change_visibility

    def accept(self: FifoQueue, *given: Any) -> None:
        with suppress(SqsError):
            change(self, *given)

    patch.setattr(FifoQueue, "change_visibility", accept)


def move_knows_no_destination(patch: pytest.MonkeyPatch) -> None:
    start = MoveTasks.start
    patch.setattr(MoveTasks, "start", lambda self, request: start(self, {"SourceArn": request["SourceArn"]}))


def throttles_by_another_code(patch: pytest.MonkeyPatch) -> None:
    calls = itertools.count()
    patch.setattr(Quota, "admits", lambda self, action, *_: action != "ReceiveMessage" or next(calls) < 100)
    patch.setattr(errors, "throttled", lambda: SqsError("SlowDown", "Rate exceeded"))


def _set(owner: object, name: str, value: object) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda patch: patch.setattr(owner, name, value)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plant", "case_id"),
    [
        (no_lock, "locks.lock"),
        (tail_past_held_head, "locks.held-head"),
        (lapsed_handle_deletes, "receipts.expired-delete"),
        (delete_forgets_id, "deduplication.after-delete"),
        (ids_of_the_whole_queue, "deduplication.scope-of-the-group"),
        (numbers_fall, "sequence.rise"),
        (count_stands, "receipts.receive-count"),
        (purge_keeps_ids, "deduplication.purge"),
        (no_delay, "delays.of-the-queue"),
        (no_attempts, "attempts.repeat"),
        (change_refuses_nothing, "receipts.lapsed-change-in-batch"),
        (move_knows_no_destination, "redrive.move-elsewhere"),
        (throttles_by_another_code, "wire.burst"),
        (_set(MessageStore, "delay_unreceived", lambda *_: None), "delays.lengthened"),
        (_set(MessageStore, "first_free", MessageStore.oldest_free), "locks.no-starvation"),
        (_set(fifo, "ATTEMPT_S", 100), "attempts.nearly-five-minutes"),
        (_set(validation, "entries", lambda request, action: request["Entries"]), "batches.of-receipts"),
        (_set(validation, "_ATTRIBUTE_NAME", re.compile(".*")), "sizes.attribute-name"),
        (_set(validation, "MAX_VISIBILITY_TIMEOUT_S", 43_199), "receipts.timeout-range"),
    ],
)
def test_broken_rule_fails_its_case(
    monkeypatch: pytest.MonkeyPatch, plant: Callable[[pytest.MonkeyPatch], None], case_id: str
) -> None:
    """The case about a rule differs on a queue without it, in the case's own words, and holds on a whole one."""
    (case,) = find_cases([case_id])
    assert judge(case).verdict == HOLDS
    plant(monkeypatch)
    result = judge(case)
    assert (result.verdict, result.expected.startswith("an answer of SQS's form")) == (DIFFERS, False)


# Cases and verdicts


def test_cases_are_declared_whole() -> None:
    """Ids are distinct, every fact is a sentence, and all together make fewer than 5,000 calls."""
    cases = find_cases()
    assert len({case.id for case in cases}) == len(cases) >= 80
    assert [case.id for case in cases if not case.fact.endswith(".") or not case.source] == []
    assert most_calls(cases) < 5_000


@pytest.mark.parametrize(
    "error",
    [
        ClientError({"Error": {"Code": "ExpiredToken"}}, "SendMessage"),
        ClientError({"Error": {"Code": "AccessDenied"}}, "SendMessage"),
        ClientError({"Error": {"Code": "RequestThrottled"}}, "SendMessage"),
        ClientError({"Error": {"Code": "Odd"}, "ResponseMetadata": {"HTTPStatusCode": 503}}, "SendMessage"),
        EndpointConnectionError(endpoint_url="https://sqs.eu-west-1.amazonaws.com"),
    ],
    ids=["expired", "denied", "throttled", "ill", "no network"],
)
@pytest.mark.parametrize("call", [lambda call: call(), lambda call: require_refusal("InvalidParameterValue", call)])
def test_what_any_call_may_meet_on_aws_says_nothing_of_a_fact(
    error: Exception, call: Callable[[Callable[[], None]], None]
) -> None:
    def fail() -> None:
        raise error

    case = Case("a.b", "A fact.", API, 8, 0, 1, False, lambda bench: call(fail))
    assert Kit(None, "kit", is_aws=True).judge(case).verdict == NOT_DECIDED


def test_want_of_a_region_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    done = run("--against", "aws", "--yes")
    assert (done.exit_code, "Give --region, or set AWS_DEFAULT_REGION." in done.output) == (2, True)


def test_price_on_the_page_is_that_of_the_command() -> None:
    """The page on AWS shows what the command says before it calls, and says how many cases take minutes."""
    page = (ROOT / "sqs_fifo_spark" / "docs" / "on-aws.md").read_text(encoding="utf-8")
    assert run("--against", "aws").output.partition("\n")[0] in page


def test_report_names_no_account_by_its_endpoint() -> None:
    assert json.loads(report("http://127.0.0.1:9/123456789012?key=x", [])) == {
        "endpoint": "http://127.0.0.1:9",
        "cases": [],
    }


def test_aws_is_not_what_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    assert make_client(None, "eu-west-1", 1).meta.endpoint_url == "https://sqs.eu-west-1.amazonaws.com"


@pytest.mark.parametrize(
    "private",
    ["arn:aws:iam::123456789012:user/a", "https://sqs.eu-west-1.amazonaws.com/123456789012/q.fifo", "123456789012"],
)
def test_reason_names_no_account(private: str) -> None:
    reason = f"User: {private} is not authorized"
    error = ClientError({"Error": {"Code": "AccessDenied", "Message": reason}}, "CreateQueue")
    assert said(error) == "AccessDenied: User: ... is not authorized"


def _raise(error: Exception) -> Callable[[Bench], None]:
    def check(bench: Bench) -> None:
        raise error

    return check


def unknown_action(bench: Bench) -> None:
    bench.client.meta.events.register("before-sign", lambda request, **_: request.headers.__setitem__(*_OTHER))
    bench.call("ListQueues")


_OTHER = ("X-Amz-Target", "AmazonSQS.NoSuchAction")


def too_many_calls(bench: Bench) -> None:
    for _ in range(9):
        bench.call("ListQueues")


def refused(bench: Bench) -> None:
    bench.queue().call("DeleteMessage", ReceiptHandle="secret" * 20)


@pytest.mark.parametrize(
    ("check", "verdict", "seen"),
    [
        (_raise(Differs("1", "2")), DIFFERS, "2"),
        (_raise(NotSupported("it")), NOT_SUPPORTED, "it"),
        (_raise(NotDecided("it")), NOT_DECIDED, "it"),
        (_raise(KeyError("Messages")), DIFFERS, "KeyError: 'Messages'"),
        (_raise(ValueError("arn:aws:iam::123456789012:user/me of 123456789012")), DIFFERS, "ValueError: ... of ..."),
        (_raise(IndexError("none")), DIFFERS, "IndexError: none"),
        (unknown_action, NOT_SUPPORTED, "AWS.SimpleQueueService.UnsupportedOperation"),
        (too_many_calls, NOT_DECIDED, "8 calls did not decide it"),
        (refused, DIFFERS, "ReceiptHandleIsInvalid: The input receipt handle ... is not a valid receipt handle."),
    ],
)
def test_end_of_a_case_is_a_verdict(check: Callable[[Bench], None], verdict: str, seen: str) -> None:
    """A case never ends the run, and an error is shown without what the request held."""
    result = judge(Case("a.b", "A fact.", API, 8, 0, 1, False, check))
    assert result.verdict == verdict
    assert result.seen.startswith(seen)


# The command


def run(*arguments: str) -> Any:
    return CliRunner().invoke(commands, ["conformance", *arguments])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "give either --endpoint-url or --against"),
        (["--endpoint-url", "https://sqs.eu-west-1.amazonaws.com"], "use --against aws"),
        (["--endpoint-url", "http://user:secret@127.0.0.1:9"], "give the endpoint without a user"),
        (["--against", "aws"], "agree with --yes"),
        (["--only", "wire", "--only", "none"], "--only none: there is no such case"),
        (["--only", "wire", "--max-seconds", "0"], "each takes longer than --max-seconds"),
        (["--endpoint-url", "http://127.0.0.1:9", "--queue-prefix", "a b"], "--queue-prefix has 1 to 40 letters"),
        (["--against", "local", "--json", "/no/such/place"], "--json /no/such/place cannot be written"),
        (["--endpoint-url", "localhost", "--only", "wire"], "there is no client for it: Invalid endpoint"),
    ],
)
def test_command_asks_before_it_calls(arguments: list[str], said: str) -> None:
    done = run(*arguments)
    assert done.exit_code == 2
    assert said in done.output
    assert ("USD" in done.output) == (arguments == ["--against", "aws"])


def test_report_has_a_stable_form(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The status tells whether all hold; the report names each case with its verdict."""
    file = tmp_path / "report.json"
    arguments = ["--against", "local", "--only", "sequence.rise", "--only", "wire.json", "--json", str(file)]
    assert run(*arguments).exit_code == 0
    numbers_fall(monkeypatch)
    done = run(*arguments)
    assert done.exit_code == 1
    assert "1 holds, 1 differs" in done.output
    found = json.loads(file.read_text())
    assert found["endpoint"] == "local"
    assert found["cases"][0] == {
        "id": "sequence.rise",
        "fact": "Sequence numbers rise within a group, compared as numbers.",
        "source": "API text",
        "verdict": "differs",
        "expected": "rise: True",
        "seen": "rise: False",
    }


def test_endpoint_without_an_answer_is_one_line() -> None:
    done = run("--endpoint-url", "http://127.0.0.1:9", "--only", "wire")
    assert done.exit_code == 3
    assert "the endpoint gives no answer of SQS's: EndpointConnectionError" in done.output
    assert "Traceback" not in done.output


def test_list_shows_every_case() -> None:
    done = run("--list")
    assert done.exit_code == 0
    assert all(case.id in done.output for case in find_cases())
