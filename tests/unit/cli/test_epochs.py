"""An epoch by the micro-batch that has it: its number stands in the checkpoint's offset log."""

from __future__ import annotations

import errno
import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sqs_fifo_spark.cli.output import Status
from sqs_fifo_spark.journal import file_store
from tests.unit.cli.conftest import Rig, error_of, lines, output_of

OTHER_SOURCE = '{"topic": {"0": 7}}'


@pytest.fixture
def rows(rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The rows of epoch 1, not committed; a checkpoint has it as its micro-batch 4, of two sources."""
    rig.send("a1", "a2")
    found = rig.read_and_die(monkeypatch)
    own = json.dumps(rig._end.to_json())
    log = tmp_path / "checkpoint" / "offsets"
    log.mkdir(parents=True)
    earlier = json.dumps(replace(rig._end, epoch=0).to_json())
    for batch, text in {
        "2": f'v1\n{{"conf":{{}}}}\n{OTHER_SOURCE}\n-',
        "3": f'v1\n{{"conf":{{}}}}\n{OTHER_SOURCE}\n{earlier}',
        "4": f'v1\n{{"conf":{{}}}}\n{OTHER_SOURCE}\n{own}',
        "5": f'v2\n{{"conf":{{}}}}\nkafka:{OTHER_SOURCE}\nbids:{own}',
        "6": f'v2\n{{"conf":{{}}}}\nkafka:{OTHER_SOURCE}\nbids:{own.replace(rig._end.journal, "another")}',
        "8": f'v2\n{{"conf":{{}}}}\nkafka:{OTHER_SOURCE}\nbids:{own}',
    }.items():
        log.joinpath(batch).write_text(text)
    return found


def in_batch(batch: int, checkpoint: Path) -> list[str]:
    return ["--batch", str(batch), "--checkpoint-location", str(checkpoint)]


@pytest.mark.parametrize("batch", [4, 8])
def test_a_micro_batch_is_as_good_as_its_epoch(
    batch: int, rig: Rig, rows: list[dict[str, Any]], tmp_path: Path
) -> None:
    """In both versions of Spark's offset log, for `cat` and `skip`."""
    place = in_batch(batch, tmp_path / "checkpoint")
    shown = lines(rig.on_journal("cat", *place, "--json"))
    assert [each["messageId"] for each in shown] == [row["messageId"] for row in rows]
    aside = str(tmp_path / "aside.jsonl")
    done = rig.on_journal("skip", *place, "--message-id", rows[0]["messageId"], "--to-file", aside)
    assert "of epoch 1 is in" in output_of(done)


def test_a_checkpoint_is_only_read(
    rig: Rig, rows: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is it taken for a damaged disk where it is a mount whose folders have no fsync."""

    def sync(folder: Path) -> None:
        if checkpoint in (folder, *folder.parents):
            raise file_store._DoubtfulError(errno.EINVAL, os.strerror(errno.EINVAL))

    checkpoint = tmp_path / "checkpoint"
    before = sorted(checkpoint.rglob("*"))
    monkeypatch.setattr(file_store, "_sync_folder", sync)
    assert lines(rig.on_journal("cat", *in_batch(4, checkpoint), "--json"))
    assert sorted(checkpoint.rglob("*")) == before


@pytest.mark.parametrize(
    ("given", "status", "says"),
    [
        (["--batch", "4"], Status.USAGE, "give either --epoch, or --batch and --checkpoint-location"),
        ([], Status.USAGE, "give either --epoch, or --batch and --checkpoint-location"),
        (["--epoch", "1", "--batch", "4"], Status.USAGE, "give either --epoch, or --batch and --checkpoint-location"),
        (in_batch(7, Path("{here}")), Status.PROBLEM, "has no micro-batch 7: no 'offsets/7' is there"),
        (in_batch(4, Path("{here}/none")), Status.PROBLEM, "has no micro-batch 4: no 'offsets/4' is there"),
        (in_batch(2, Path("{here}")), Status.PROBLEM, "does not fit the journal .*: it has no epochs of it"),
        (in_batch(6, Path("{here}")), Status.PROBLEM, "does not fit the journal .*: it has no epochs of it"),
        (in_batch(5, Path("{here}")), Status.PROBLEM, "has nothing of the journal .* epoch 1 belongs to an earlier"),
        (["--batch", "4", "--checkpoint-location", "hdfs://h/c"], Status.USAGE, "cannot be read from here. Copy its"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(
    given: list[str], status: Status, says: str, rig: Rig, rows: list[dict[str, Any]], tmp_path: Path
) -> None:
    """Nothing is claimed or put."""
    before = rig.stored()
    arguments = [each.format(here=tmp_path / "checkpoint") for each in given]
    moved = ("--message-id", rows[0]["messageId"], "--to-file", str(tmp_path / "aside.jsonl"))
    assert re.search(says, error_of(rig.on_journal("skip", *arguments, *moved), status))
    assert rig.stored() == before
