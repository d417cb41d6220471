"""A backlog of large messages, drained by a real query over a slow link, and audited."""

from __future__ import annotations

import base64
import functools
import random
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.types import StructType

from sqs_fifo_spark.aws.calls import MAX_ENTRIES
from sqs_fifo_spark.clock import SYSTEM_CLOCK
from sqs_fifo_spark.datasource import SqsFifoDataSource
from sqs_fifo_spark.local import Event, FifoModel, LocalQueueServer
from sqs_fifo_spark.source.driver import planning
from tests.helpers import moto_bucket, wait_until
from tests.links.proxy import Link, Trouble
from tests.spark.support import Rig, Sent, assert_each_once, assert_in_order, micro_batches, require_alive

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOST_RECEIVES = 2
_PAUSE_S = 0.5


@dataclass(frozen=True, kw_only=True)
class Load:
    """One drain: the messages, the mode and journal, and the link."""

    messages: int
    body_bytes: int
    groups: int
    bytes_per_s: float
    delay_s: float
    journal: str
    """`path`, or `s3`, which is reached over the same link."""
    delete_after: str

    @property
    def fastest_s(self) -> float:
        """Return the time that the bodies alone take."""
        return self.messages * self.body_bytes / self.bytes_per_s


class SpreadSource(SqsFifoDataSource):
    """`format("spread")`: the source, with so many partitions that all tasks share the link, for few messages, too."""

    @classmethod
    def name(cls) -> str:
        return "spread"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        planning.MESSAGES_PER_PARTITION = MAX_ENTRIES
        return super().streamReader(schema)


def fill(server: LocalQueueServer, url: str, load: Load) -> dict[str, Sent]:
    """Send messages that hardly compress, to the groups in turn, without HTTP."""
    dice = random.Random(0)

    def send(group: str, number: int, body: str, model: FifoModel) -> dict[str, Any]:
        return model.call(
            "SendMessage",
            {"QueueUrl": url, "MessageBody": body, "MessageGroupId": group, "MessageDeduplicationId": str(number)},
        )

    sent = {}
    for number in range(load.messages):
        body = base64.b64encode(dice.randbytes(load.body_bytes)).decode()[: load.body_bytes]
        group = f"group-{number % load.groups}"
        answer = server.run(functools.partial(send, group, number, body))
        sent[answer["MessageId"]] = Sent(group, int(answer["SequenceNumber"]))
    return sent


def drain(spark: SparkSession, home: Path, load: Load, *, timeout_s: float, options: dict[str, object]) -> str:
    """Drain the load into files, and return what it took. Raises AssertionError unless each came once and in order."""
    home.mkdir()
    counts: Counter[str] = Counter()
    with ExitStack() as stack:
        server = stack.enter_context(LocalQueueServer())
        link = stack.enter_context(
            Link(
                up_bytes_per_s=load.bytes_per_s,
                down_bytes_per_s=load.bytes_per_s,
                troubles={"": Trouble(delay_s=load.delay_s)},
            )
        )
        rig = Rig(spark, server, home, delete_after=load.delete_after)
        rig.sent.update(fill(server, rig.url, load))

        def listen(event: Event) -> None:
            counts[event.message_id] = max(counts[event.message_id], event.receive_count)

        server.run(lambda model: model.on_event(listen))
        given = {"queueUrl": link.front(rig.url), **options}
        if load.journal == "s3":
            s3_url = stack.enter_context(moto_bucket("links"))
            given |= {"journalLocation": "s3://links/journal", "journalEndpointUrl": link.front(s3_url)}
        began = SYSTEM_CLOCK.monotonic()
        spark.dataSource.register(SpreadSource)
        source = spark.readStream.format("spread").options(**rig.options(**given)).load()
        frame = source.selectExpr("messageId", "messageGroupId", "sequenceNumber", "length(body) AS characters")
        with rig.to_parquet(frame) as query:

            def is_drained() -> bool:
                require_alive(query)
                return rig.depth() == (0, 0) and len(rig.rows()) >= len(rig.sent)

            try:
                wait_until(is_drained, timeout_s, "the queue is drained", pause_s=_PAUSE_S)
            except AssertionError as error:
                raise AssertionError(
                    f"{error}; {len(rig.rows())} of {len(rig.sent)} came; receive counts {_histogram(counts)}; visible "
                    f"and in flight {rig.depth()}; requests {dict(link.requests)}"
                ) from None
            took_s = SYSTEM_CLOCK.monotonic() - began
            batches = sum(int(each["numInputRows"]) > 0 for each in micro_batches(query))
        rows = rig.rows()
        assert_each_once((row.message_id for row in rows), rig.sent)
        assert_in_order(rows, may_split=rig.may_split)
        assert max(counts.values()) <= MOST_RECEIVES, f"receive counts {_histogram(counts)}"
        return (
            f"{took_s:.0f} s (bodies alone {load.fastest_s:.0f} s)  micro-batches {batches}  receive counts "
            f"{_histogram(counts)}  up {link.up.carried / 1e6:.0f} MB  down {link.down.carried / 1e6:.0f} MB"
        )


def _histogram(counts: Counter[str]) -> dict[int, int]:
    """Return how many messages were received how often."""
    return dict(sorted(Counter(counts.values()).items()))
