"""The commands on moto's SQS and S3: what they say, their status, and what a second call says and changes.

moto proves neither order nor leases: it draws sequence numbers at random, and takes receipt handles that have expired.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from click.testing import Result

from sqs_fifo_spark.cli import python_checks
from sqs_fifo_spark.cli.output import Status
from sqs_fifo_spark.cli.peek import HIDDEN_S
from sqs_fifo_spark.journal.location import open_store
from sqs_fifo_spark.source import owner as owners
from tests.helpers import depth, moto_server
from tests.unit.cli.conftest import QueueRig, lines

BINARY = {"key": {"DataType": "Binary", "BinaryValue": b"\x00"}}
BODIES = ["a1", "a2", "a3", "b1", "b2"]

_began = owners._began
_numbers = itertools.count(1)

BUCKET = "commands"
"""Of this file alone: within a process moto's servers share their buckets, and `open_store` keeps what it opened."""


@pytest.fixture(scope="module")
def moto() -> Iterator[tuple[str, Any]]:
    """The URL of moto's server, which has a bucket, and a client of its SQS."""
    with moto_server() as url:
        s3, sqs = (boto3.client(service, endpoint_url=url) for service in ("s3", "sqs"))
        s3.create_bucket(Bucket=BUCKET)
        s3.close()
        yield url, sqs
        sqs.close()


@pytest.fixture
def rig(moto: tuple[str, Any], monkeypatch: pytest.MonkeyPatch) -> Iterator[QueueRig]:
    """A queue on moto; its journal is on moto's S3."""
    url, sqs = moto
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", url)
    monkeypatch.setattr(python_checks, "ask", lambda python, names: ([], "3.10.0"))
    made = QueueRig(sqs, f"s3://{BUCKET}/{next(_numbers)}", "123456789012")
    yield made
    for driver in made.drivers:
        driver.stop()


@pytest.fixture
def rows(rig: QueueRig, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The rows, by their bodies, of a query that has read five messages, and has not committed them."""
    rig.send("a1", "a2", "a3", group="a", MessageAttributes=BINARY)
    rig.send("b1", "b2", group="b")
    return by_body(rig.read_and_die(monkeypatch))


def by_body(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows in an order that does not hang on moto's sequence numbers."""
    return sorted(rows, key=lambda row: str(row["body"]))


def run(rig: QueueRig, line: str, **places: Any) -> Result:
    """Run a command line; what stands in braces is a place."""
    known = {"queue": rig.url, "journal": rig.location, "missing": rig.url.replace("bids", "missing"), **places}
    return rig.run(*(each.format(**known) for each in line.split()))


def expect(result: Result, status: Status, *says: str) -> None:
    """Fail unless the command has ended so, and all patterns are found in what it has printed.

    Nothing stands on the standard error of a command that did what it was asked, or that prints findings; of any
    other, one line.
    """
    assert result.exit_code == status, result.output
    for pattern in says:
        assert re.search(pattern, result.stdout + result.stderr, re.MULTILINE), (pattern, result.output)
    has_findings = bool(re.search("^failure  ", result.stdout, re.MULTILINE))
    assert len(result.stderr.splitlines()) == int(status is not Status.OK and not has_findings)


def state(rig: QueueRig) -> tuple[Any, ...]:
    """Return what the journal holds, and how many messages of the queue are free and in flight."""
    store = open_store(rig.location)
    return {name: store.get(name) for name in store.list("")}, depth(rig.sqs.get_queue_attributes, rig.url)


ON_JOURNAL = "--journal-location {journal}"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "status", "says"),
    [
        (
            f"doctor --queue-url {{queue}} --role both {ON_JOURNAL}",
            Status.OK,
            # Nothing at moto tells of a permission to receive; entries of batches it judges, as SQS does.
            [
                *("^ok .* credentials: not asked", "^warning  sqs:ReceiveMessage: not denied"),
                *("^warning  sqs:SendMessage: not denied", "^ok .* sqs:DeleteMessage", "^ok .* FIFO: a FIFO"),
                *(f"^ok .* journal: {step}: " for step in ("write", "put if absent", "read", "list", "delete")),
                "^ok .* journal: queue: it is this queue's, and has been used",
            ],
        ),
        ("doctor --queue-url {missing}", Status.PROBLEM, ["^failure  sqs:GetQueueAttributes: .* does not exist"]),
        (
            f"journal show {ON_JOURNAL}",
            Status.OK,
            ["^queue +{arn}$", "^owner .* not running$", "^1 +[0-9]+ +1 of 1 +1 +yes +5 "],
        ),
        (f"journal show {ON_JOURNAL} --queue-url {{other}}", Status.PROBLEM, ["belongs to the queue"]),
        (f"journal release {ON_JOURNAL} --queue-url {{other}}", Status.PROBLEM, ["belongs to the queue"]),
        (
            "send --queue-url {missing} --group g --body x --dedup-id 1",
            Status.REFUSED,
            ["does not exist .* 0 of 1 messages were confirmed before"],
        ),
    ],
)
def test_what_only_looks_or_is_refused_says_so_twice_and_changes_nothing(
    rig: QueueRig, rows: list[dict[str, Any]], line: str, status: Status, says: list[str]
) -> None:
    other = rig.create("other")
    before = state(rig)
    assert before[1] == (0, len(BODIES))
    for _ in range(2):
        expect(run(rig, line, other=other), status, *(each.format(arn=rig.arn(rig.url)) for each in says))
    assert state(rig) == before


@pytest.mark.slow
@pytest.mark.parametrize("to", ["file", "queue"])
def test_a_poison_row_is_moved_aside_and_the_query_goes_on_with_all_others(
    rig: QueueRig, rows: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, to: str
) -> None:
    """Nothing else is lost, before or after it; and a second call moves nothing."""
    poison = rows[1]["messageId"]
    with monkeypatch.context() as starts_again:
        starts_again.setattr(owners, "_began", _began)
        driver, _, again = rig.read_again()
    driver.stop()
    assert by_body(again) == rows  # each start meets the row anew

    place = rig.create("aside") if to == "queue" else str(tmp_path / "aside.jsonl")
    skip = f"journal skip {ON_JOURNAL} --epoch 1 --message-id {poison} --to-{to} {place}"
    expect(run(rig, skip), Status.OK, f"^message {poison} of epoch 1 is in '{re.escape(place)}'")
    before = state(rig)
    (told,) = lines(run(rig, f"{skip} --json"))
    assert (told["messageId"], told["to"], told["messageGroupId"]) == (poison, place, "a")
    expect(run(rig, skip), Status.OK, f"was moved to '{re.escape(place)}' before, .*; nothing was changed")
    assert state(rig) == before
    expect(run(rig, f"journal show {ON_JOURNAL}"), Status.OK, f"^skipped +{poison}$", "^owner .* of a command")

    driver, end, served = rig.read_again()
    assert by_body(served) == [row for row in rows if row["messageId"] != poison]
    driver.commit(end)
    rig.send("c1", group="c")
    after = driver.latest_offset(end)
    assert [row["body"] for row in rig.read(driver, end, after)] == ["c1"]
    driver.commit(after)
    assert state(rig)[1] == (0, 0)

    if to == "queue":
        rig.url = place
        (aside,) = lines(run(rig, "peek --queue-url {queue} --bodies --json"))
    else:
        (aside,) = map(json.loads, Path(place).read_text().splitlines())
    assert (aside["body"], aside["messageGroupId"]) == ("a2", "a")
    assert aside["messageAttributes"] == {"key": {"dataType": "Binary", "binaryValue": "AA=="}}


def test_what_has_no_sequence_number_is_sent_and_not_shown(rig: QueueRig) -> None:
    """moto numbers no message that it recognises by its content: neither `peek` nor a source can read it."""
    rig.set(ContentBasedDeduplication="true")
    for _ in range(2):
        told = rig.on_queue("send", "--group", "g", "--body", "x", "--json")
        assert [each["sequenceNumber"] for each in lines(told)] == [None]
        expect(told, Status.OK)
    told = rig.on_queue("peek")
    assert (told.exit_code, told.stdout) == (Status.REFUSED, "")
    hidden, why = told.stderr.splitlines()
    assert hidden.endswith(f"are not released; they stay hidden for up to {HIDDEN_S} s")
    assert "has left SequenceNumber out of its answer to receive_message" in why
    expect(rig.on_queue("peek"), Status.OK, "others hold the heads of its groups")
