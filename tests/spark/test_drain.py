"""A query drains its queue: everything, once, in order, without a wait that only time ends."""

from __future__ import annotations

from collections import defaultdict

import pytest

from tests.helpers import wait_until
from tests.spark.support import (
    LONG_S,
    Rig,
    gaps_s,
    in_both_modes,
    micro_batches,
    require_alive,
)

pytestmark = pytest.mark.law("source-1", "source-4", "source-5", "source-6")


@in_both_modes
def test_many_groups_reach_parquet_once_and_in_order_and_leave_nothing_behind(rig: Rig) -> None:
    """Messages of 200 groups, by at least four partitions; queue and journal end empty by themselves."""
    sent = rig.send(3_000, groups=200)
    # 200 for each of the 8 partitions: on few cores the first tasks would take what all free groups have.
    with rig.to_parquet(rig.source(maxMessagesPerTrigger=1_600)) as query:
        rig.drain(query, timeout_s=120)
        wait_until(lambda: not rig.journal_epochs(), LONG_S, "the journal holds no epoch")
        require_alive(query)
        # Nothing comes again, though the query goes on.
        assert rig.depth() == (0, 0)
        progress = micro_batches(query)
    rows = rig.require_each_once_in_order()
    assert {(row.message_group_id, row.sequence_number) for row in rows} == {
        (each.message_group_id, each.sequence_number) for each in sent.values()
    }
    files: defaultdict[int, set[str]] = defaultdict(set)
    for row in rows:
        files[row.batch_id].add(row.place)
    widest = max(map(len, files.values()))
    print(f"{len(sent)} messages: {len(progress)} micro-batches, up to {widest} files in one")
    assert widest >= 4


@in_both_modes
def test_one_group_drains_without_waiting_for_time_to_pass(rig: Rig) -> None:
    """A group gives ten messages, and the next ten as soon as these are deleted: after the epoch, or in it."""
    sent = rig.send({"commit": 60, "journal": 250}[rig.delete_after])
    with rig.to_parquet(rig.source(waitTimeSeconds=20)) as query:
        rig.drain(query, timeout_s=120)
        progress = micro_batches(query)
    rig.require_each_once_in_order()
    largest = max(gaps_s(progress), default=0)
    print(f"{len(sent)} messages of one group: {len(progress)} micro-batches, largest gap {largest:.3f} s")
    # A noisy machine may take its time; a wrong wait would be the 20 s of the long poll, or 120 s of visibility.
    assert largest < 5
    filled = [each for each in progress if each["numInputRows"]]
    assert len(filled) == 6 if rig.delete_after == "commit" else len(filled) < 10
