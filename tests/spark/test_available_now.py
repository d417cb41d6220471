"""`Trigger.AvailableNow` takes what waits, deletes it, and ends."""

from __future__ import annotations

import pytest

from tests.spark.support import LONG_S, SPARK_VERSION, Rig, in_both_modes

pytestmark = [
    pytest.mark.skipif(
        SPARK_VERSION < (4, 2), reason="before 4.2 Spark never commits the one micro-batch of AvailableNow"
    ),
    pytest.mark.law("source-6"),
]


@in_both_modes
def test_available_now_ends_by_itself_with_everything_deleted(rig: Rig) -> None:
    """All that waits by SQS's time is taken, though this machine's clock is behind; a second run finds nothing.

    Where the commit deletes, either group comes in three answers, one for each micro-batch.
    """
    rig.server.advance(31)
    rig.send(60, groups=2)
    for _ in range(2):
        with rig.to_parquet(rig.source(), availableNow=True) as query:
            assert query.awaitTermination(int(LONG_S))
        assert rig.depth() == (0, 0)
        assert not rig.journal_epochs()
        rig.require_each_once_in_order()
