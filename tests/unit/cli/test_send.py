"""`send` adds messages, each group's in order, or says why not, in one line."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sqs_fifo_spark.cli.output import Status
from sqs_fifo_spark.local import Faults
from tests.unit.cli.conftest import Rig, error_of, lines, output_of


def line(body: Any, number: Any, group: Any = "g", **more: Any) -> str:
    return json.dumps({"body": body, "messageGroupId": group, "messageDeduplicationId": number, **more}) + "\n"


def test_one_message_is_sent_once_however_often_the_command_runs(rig: Rig) -> None:
    """Within SQS's 5 minutes, by its id."""
    for _ in range(2):
        told = output_of(rig.on_queue("send", "--group", "a", "--body", "hello", "--dedup-id", "1"))
        assert re.fullmatch(r"[0-9a-f-]{36}  a  [0-9]{1,20}\n1 of 1 messages sent\n", told)
    assert rig.receive() == [("hello", "a", 1)]


def test_a_queue_that_goes_by_content_needs_no_id(rig: Rig) -> None:
    rig.set(ContentBasedDeduplication="true")
    output_of(rig.on_queue("send", "--group", "a", "--body", "hello"))
    assert rig.receive() == [("hello", "a", 1)]


@pytest.mark.parametrize("from_stdin", [True, False])
def test_the_lines_of_a_file_are_sent_in_order(rig: Rig, tmp_path: Path, from_stdin: bool) -> None:
    """Each with its own group, and all messages of a group one after the other."""
    text = "".join(line(f"{group}{number}", f"{group}{number}", group) for number in range(8) for group in "abc")
    file = tmp_path / "lines"
    file.write_text(text)
    given = {"input": text} if from_stdin else {}
    result = rig.on_queue("send", "--file", "-" if from_stdin else str(file), "--json", **given)
    assert result.exit_code == Status.OK
    told = lines(result)
    assert sorted(each["line"] for each in told) == list(range(1, 25))
    assert all(each["messageId"] and each["sequenceNumber"].isdigit() for each in told)
    left = rig.receive(delete=True)
    for group in "abc":
        assert [body for body, its, _ in left if its == group] == [f"{group}{number}" for number in range(8)]


def test_one_group_can_be_given_to_all_lines(rig: Rig) -> None:
    output_of(rig.on_queue("send", "--file", "-", "--group", "all", input=line("1", "1", "a") + line("2", "2", None)))
    assert rig.receive() == [("1", "all", 1), ("2", "all", 1)]


def test_attributes_and_the_sources_other_columns_are_taken(rig: Rig) -> None:
    """The output of `peek --bodies --json` can be sent again."""
    attributes = {"text": "a", "bytes": {"dataType": "Binary.x", "binaryValue": "AAE="}}
    rig.on_queue("send", "--file", "-", input=line("1", "1", messageAttributes=attributes, awsTraceHeader="Root=1"))
    shown = rig.on_queue("peek", "--bodies", "--json").stdout
    assert json.loads(shown)["messageAttributes"]["bytes"] == attributes["bytes"]
    other = rig.create("other")
    assert rig.run("send", "--queue-url", other, "--file", "-", input=shown).exit_code == Status.OK
    names = {"MessageAttributeNames": ["All"], "MessageSystemAttributeNames": ["AWSTraceHeader"]}
    (sent,) = rig.sqs.receive_message(QueueUrl=other, **names)["Messages"]
    assert sent["Attributes"] == {"AWSTraceHeader": "Root=1"}
    assert sent["MessageAttributes"] == {
        "text": {"DataType": "String", "StringValue": "a"},
        "bytes": {"DataType": "Binary.x", "BinaryValue": b"\x00\x01"},
    }


GOOD = line("good", "good")


@pytest.mark.parametrize(
    ("arguments", "text", "status", "says"),
    [
        (["--body", "x", "--file", "-"], "", Status.USAGE, "give either --body or --file"),
        (["--file", "-", "--dedup-id", "1"], GOOD, Status.USAGE, "--dedup-id is for the one message of --body"),
        (["--file", "/nowhere"], "", Status.USAGE, "No such file"),
        (["--body", "x", "--group", "g"], "", Status.USAGE, "the queue has no ContentBasedDeduplication"),
        (["--body", "x", "--group", "a b", "--dedup-id", "1"], "", Status.USAGE, "'messageGroupId' is 'a b'"),
        (["--body", "x", "--dedup-id", "1"], "", Status.USAGE, "--group is missing: the message of --body needs"),
        (["--body", "x", "--group", ""], "", Status.USAGE, "--group is missing"),
        (["--body", "", "--group", "g", "--dedup-id", "1"], "", Status.PROBLEM, "its body is empty"),
        (["--file", "-"], "", Status.USAGE, "there is no line, so nothing to send"),
        (["--file", "-"], GOOD + "x", Status.USAGE, "line 2 is not a JSON object"),
        (["--file", "-"], GOOD + "[" * 100_000, Status.USAGE, "line 2 is not a JSON object"),
        (["--file", "-"], GOOD + "[1]", Status.USAGE, "line 2 is not a JSON object"),
        (["--file", "-"], GOOD + '{"text": "x"}', Status.USAGE, "line 2 has 'text', which is no column"),
        (["--file", "-"], GOOD + line("", "2"), Status.PROBLEM, "line 2 cannot be sent: its body is empty"),
        (["--file", "-"], GOOD + line({}, "2"), Status.PROBLEM, "line 2 cannot be sent"),
        (["--file", "-"], GOOD + line("x", None), Status.PROBLEM, "its messageDeduplicationId is null"),
        (["--file", "-"], GOOD + line("x", 2), Status.PROBLEM, "must be strings"),
        (["--file", "-"], GOOD + line("x", "2", messageAttributes=[1]), Status.USAGE, "must be an object of strings"),
        (["--file", "-"], GOOD + line("x", "2", messageAttributes={"a": 1}), Status.USAGE, "of strings or objects"),
        (
            ["--file", "-"],
            GOOD + line("x", "2", messageAttributes={"a": {"dataType": 1}}),
            Status.USAGE,
            "must have strings",
        ),
        (
            ["--file", "-"],
            GOOD + line("x", "2", messageAttributes={"a": {"dataType": "Binary", "binaryValue": "?"}}),
            Status.USAGE,
            "must be base64",
        ),
    ],
)
def test_what_cannot_be_sent_is_told_before_anything_is_sent(
    rig: Rig, arguments: list[str], text: str, status: Status, says: str
) -> None:
    """One line; not even the good messages before it have left."""
    result = rig.on_queue("send", *arguments, input=text)
    assert says in error_of(result, status)
    assert result.stdout == ""
    assert rig.receive() == []


def test_a_failure_says_how_far_it_came_and_a_repeat_sends_the_rest(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is there twice then."""
    text = "".join(line(str(number), str(number)) for number in range(3))
    before = rig.server.requests.counts().get("SendMessageBatch", 0)
    rig.server.faults = Faults(deny=frozenset({"SendMessageBatch"}))
    told = error_of(rig.on_queue("send", "--file", "-", input=text), Status.REFUSED)
    assert "0 of 3 messages were confirmed before." in told
    assert rig.server.requests.counts()["SendMessageBatch"] == before + 1
    rig.server.faults = Faults(seed=5, drop_answer=0.3, fail_entry=0.3, actions=frozenset({"SendMessageBatch"}))
    assert rig.on_queue("send", "--file", "-", input=text).exit_code == Status.OK
    rig.server.faults = Faults()
    assert rig.on_queue("send", "--file", "-", input=text).exit_code == Status.OK
    assert rig.receive() == [("0", "g", 1), ("1", "g", 1), ("2", "g", 1)]


@pytest.mark.slow
@pytest.mark.parametrize("form", [(), ("--json",)])
@pytest.mark.parametrize("output", ["closed", "/dev/full"])
def test_a_full_output_hides_not_what_was_sent(rig: Rig, tmp_path: Path, form: tuple[str, ...], output: str) -> None:
    """Such as that of `| head -1`, or a full disk."""
    file = tmp_path / "lines"
    file.write_text("".join(line(str(number), str(number)) for number in range(3)))
    command = [sys.executable, "-m", "sqs_fifo_spark", "send", "--queue-url", rig.url, "--file", str(file), *form]
    end, out = os.pipe() if output == "closed" else (None, os.open(output, os.O_WRONLY))
    if end is not None:
        os.close(end)
    done = subprocess.run(command, stdout=out, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    os.close(out)
    told, *more = done.stderr.splitlines()
    assert told == "1 of 3 messages were confirmed before."
    assert (done.returncode, bool(more)) == ((Status.PROBLEM, False) if output == "closed" else (Status.REFUSED, True))
    assert [body for body, *_ in rig.receive()] == ["0"]


def test_an_interruption_tells_how_much_was_sent(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(each: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("sqs_fifo_spark.cli.send._print", interrupt)
    result = rig.on_queue("send", "--file", "-", input=GOOD + line("2", "2"))
    assert result.exit_code == Status.INTERRUPTED
    assert result.stderr.split("\n")[0] == "1 of 2 messages were confirmed before."
    assert result.stderr.endswith("\nerror: interrupted\n")


def test_a_message_that_sqs_takes_for_a_copy_of_another_is_told_of(rig: Rig) -> None:
    """Two lines of one deduplication id are one message: it is not said that both were sent."""
    lines = [{"body": body, "messageGroupId": "a", "messageDeduplicationId": "1"} for body in ("x", "y")]
    result = rig.on_queue("send", "--file", "-", input="\n".join(map(json.dumps, lines)))
    assert result.exit_code == Status.PROBLEM
    assert "1 of 2 messages sent" in result.stdout
    assert "SQS took 1 of the messages for copies of others" in result.stderr
    assert [body for body, *_ in rig.receive()] == ["x"]
