"""Tables of the format: what Spark adds to their options harms nothing, and the page's way to use them works."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.spark.sink import Held, held_in
from tests.spark.support import SPARK_VERSION, Rig, failure, recipe


@pytest.fixture(autouse=True)
def no_tables(rig: Rig) -> Iterator[None]:
    yield
    for name in ("bids", "accepted"):
        rig.spark.sql(f"DROP TABLE IF EXISTS {name}")


def test_tables_are_read_and_written_as_the_page_says(rig: Rig) -> None:
    """A message that is sent comes out of the one, and a row goes into the other."""
    accepted_url = rig.create_queue("accepted.fifo")
    given = {"spark": rig.spark, "queue_url": rig.url, "accepted_url": accepted_url, "home": rig.home}
    exec(recipe("options.md", "## Tables"), given)
    assert held_in(rig.server, accepted_url) == [Held("lot-1", "bid-7", "7")]

    rig.send(20, groups=4)
    frame: Any = given["bids"]
    assert {row.messageId for row in rig.drained(frame)} == rig.sent.keys()


def test_what_spark_adds_to_a_table_s_options_is_no_option(rig: Rig) -> None:
    """Location, comment, owner and the user's own properties; what is missing later is told with where to give it."""
    rig.spark.sql(
        f"CREATE TABLE bids USING sqsfifo OPTIONS (queueUrl '{rig.url}', journalLocation '{rig.journal}') "
        f"LOCATION '{rig.home}/table' COMMENT 'bids' TBLPROPERTIES ('team' = 'auctions', 'a.b' = 'c')"
    )
    with rig.to_parquet(rig.spark.readStream.table("bids")) as query:
        assert re.search(r"'queueUrl' is missing\. .+ spark\.readStream\.option\(\.\.\.\)\.table", failure(query))
    with pytest.raises(Exception, match=r"unknown option 'queueurlx'\. Did you mean 'queueUrl"):
        rig.spark.sql(f"CREATE TABLE accepted USING sqsfifo OPTIONS (queueUrlx '{rig.url}')")
    rig.spark.sql("CREATE TABLE accepted (body STRING, messageGroupId STRING) USING sqsfifo")
    with pytest.raises(Exception, match=r"'queueUrl' is missing\. .+ INSERT INTO \.\.\. WITH"):
        rig.spark.sql("INSERT INTO accepted VALUES ('7', 'lot-1')")
    assert not rig.server.requests.counts()


@pytest.mark.skipif(SPARK_VERSION < (4, 3), reason="Spark 4.0 has no such syntax")
def test_a_stream_in_sql_takes_options(rig: Rig) -> None:
    """As the page says of Spark 4.3."""
    options = ", ".join(f"'{name}' = '{value}'" for name, value in rig.options().items())
    rig.spark.sql("CREATE TABLE bids (body STRING, messageId STRING, messageGroupId STRING) USING sqsfifo")
    rig.send(3)
    rows = rig.drained(rig.spark.sql(f"SELECT * FROM STREAM bids WITH ({options})"))
    assert {row.messageId for row in rows} == rig.sent.keys()
