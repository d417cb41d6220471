"""A full disk under the journal stops a query, loses nothing, and is over as soon as there is room again."""

from __future__ import annotations

import re
from contextlib import suppress

import pytest

from tests.helpers import small_disk
from tests.spark.support import LONG_S, Rig, assert_each_once, assert_in_order, failure

pytestmark = [pytest.mark.long, pytest.mark.law("source-1")]


def test_a_query_on_a_full_disk_stops_with_one_line_and_drains_once_there_is_room(rig: Rig) -> None:
    """Nothing is deleted that the sink has not committed; started again, the query delivers each message once."""
    with small_disk(rig.journal, "4m") as disk:
        first = rig.send(60, groups=20)
        with rig.to_parquet(rig.source(visibilityTimeoutSeconds=20)) as query:
            rig.drain(query, timeout_s=2 * LONG_S)
            with suppress(OSError), (disk / "filler").open("wb", buffering=0) as filler:
                while filler.write(b"\0" * 4096):
                    pass
            rig.send(300, groups=50, body="x" * 2_000)
            said = failure(query)
        told = re.findall(r"sqs_fifo_spark\.errors\.(JournalUnavailableError: .+)", said)
        assert told, said
        assert re.fullmatch(
            rf"JournalUnavailableError: cannot write '(epochs|ledger)/\d{{20}}\S*' in the journal at "
            rf"'{re.escape(str(rig.journal))}': No space left on device\. The location must be writable by driver and "
            r"executors, have room, and support hard links\.",
            told[-1],
        )
        assert sum(rig.depth()) == 300, "something was deleted that is not committed"
        assert_each_once((row.message_id for row in rig.rows()), first)
        (disk / "filler").unlink()
        with rig.to_parquet(rig.source(visibilityTimeoutSeconds=20)) as query:
            rig.drain(query, timeout_s=2 * LONG_S)
        rows = rig.rows()
        assert_each_once((row.message_id for row in rows), rig.sent)
        assert_in_order(rows)
