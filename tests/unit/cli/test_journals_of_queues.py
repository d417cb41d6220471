"""Where a source reads several queues, each has a journal below its location: `show` lists them, others take one."""

from __future__ import annotations

from pathlib import Path

import pytest

from sqs_fifo_spark.cli.output import Status
from sqs_fifo_spark.options import parse_queue, queue_key
from tests.unit.cli.conftest import Rig, error_of, lines, output_of


def read_queues(rig: Rig, *names: str) -> list[str]:
    """Let a query read one message more of each of these queues than of the one before. Return the queues' keys."""
    keys, shared = [], rig.location
    for number, name in enumerate(names, 1):
        rig.url = rig.create(name)
        given = {"queueUrls": rig.url, "journalLocation": shared}
        rig.location = parse_queue(given, rig.url).journal_location
        rig.send(*"abcdef"[:number])
        rig.read_epoch()
        keys.append(queue_key(rig.url))
    rig.location = shared
    return keys


def test_show_lists_the_journals_of_the_queues(rig: Rig) -> None:
    """One line for each, by the queue's key, and the command that shows more of one."""
    keys = read_queues(rig, "bids", "lots")
    head, *rows, last = output_of(rig.on_journal("show")).splitlines()
    assert head.split()[0] == "queue"
    assert [row.split()[0] for row in rows] == keys
    assert [row.split()[-5:-3] for row in rows] == [["1", "1"], ["1", "2"]]
    assert [row.split()[-2:] for row in rows] == [["0", "0"]] * 2
    assert last == f"for one of them: sqs-fifo-spark journal show --journal-location {rig.location}/queues/{keys[0]}"


def test_show_gives_programs_all_of_each_journal(rig: Rig) -> None:
    """As it does of one, and the key."""
    keys = read_queues(rig, "bids", "lots")
    shown = lines(rig.on_journal("show", "--json"))
    assert [each["key"] for each in shown] == keys
    assert [each["plans"][0]["messages"] for each in shown] == [1, 2]
    (alone,) = lines(rig.run("journal", "show", "--json", "--journal-location", shown[1]["location"]))
    del alone["plans"], shown[1]["plans"], shown[1]["key"]  # the plans have ages
    assert shown[1] == alone


def test_a_journal_that_cannot_be_read_hides_no_other(rig: Rig) -> None:
    keys = read_queues(rig, "bids", "lots", "more")
    (Path(rig.location) / "queues" / keys[1] / "journal.json").write_text("{}")
    result = rig.on_journal("show")
    assert f"{keys[1]}: " in error_of(result, Status.PROBLEM)
    assert [row.split()[0] for row in result.stdout.splitlines()[1:-1]] == [keys[0], keys[2]]
    assert [each["key"] for each in lines(rig.on_journal("show", "--json"))] == [keys[0], keys[2]]


def test_a_damaged_object_is_a_problem_of_the_list_too(rig: Rig) -> None:
    keys = read_queues(rig, "bids", "lots")
    (segment, *_) = sorted((Path(rig.location) / "queues" / keys[0] / "epochs").rglob("*-*"))
    segment.write_bytes(b"x")
    rows = output_of(rig.on_journal("show"), Status.PROBLEM).splitlines()[1:-1]
    assert [row.split()[-1] for row in rows] == ["1", "0"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("cat", "--epoch", "1"),
        ("export", "--epoch", "1", "--to-file", "{folder}/x.jsonl"),
        ("skip", "--epoch", "1", "--message-id", "m", "--to-file", "{folder}/x.jsonl"),
        ("release", "--queue-url", "{url}"),
        ("forget", "--writer", "w"),
    ],
)
def test_other_commands_say_that_they_take_one_journal(rig: Rig, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """And name some; nothing is written."""
    keys = read_queues(rig, "a", "b", "c", "d")
    before = rig.stored()
    told = error_of(rig.on_journal(*(each.format(folder=tmp_path, url=rig.url) for each in arguments)), Status.REFUSED)
    below = f"{rig.location}/queues"
    assert f"has no journal of its own, but 4 of queues that one source reads, below '{below}'" in told
    assert f"{', '.join(keys[:3])}, ..." in told
    assert f"'{below}/{keys[0]}'" in told
    assert rig.stored() == before


def test_a_journal_of_its_own_is_shown_alone(rig: Rig) -> None:
    """Whatever stands below: the location may have been one queue's before."""
    read_queues(rig, "bids")
    rig.send("1")
    rig.read_epoch()
    assert "up to epoch 0" in output_of(rig.on_journal("show"))


def test_where_there_is_no_journal_at_all_show_says_so(rig: Rig) -> None:
    """Folders alone are none."""
    (Path(rig.location) / "queues" / "eu-west-1.1.a.fifo" / "epochs").mkdir(parents=True)
    assert "there is no journal at" in error_of(rig.on_journal("show"), Status.REFUSED)
