"""The source that a user writes in an afternoon, and one that gives nothing. Neither keeps any law.

`naive` receives in `read` and deletes at once: a task that is retried, or a second action, loses rows. It polls short,
so that its micro-batches begin and end as soon as they can.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

SCHEMA = "messageId STRING, body STRING, messageGroupId STRING, sequenceNumber STRING, sentTimestamp STRING"
MAX_MESSAGES = 20_000
"""In one micro-batch, as with the connector's default."""


class NumberedReader(DataSourceStreamReader):
    """Always has another micro-batch."""

    def initialOffset(self) -> dict[str, int]:
        return {"batch": 0}

    def latestOffset(self, start: dict[str, int], limit: object) -> dict[str, int]:
        return {"batch": start["batch"] + 1}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        return iter(())


class NaiveReader(NumberedReader):
    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = options
        self._partitions = int(options.get("numPartitions", "2"))

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return [InputPartition(index) for index in range(self._partitions)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        import boto3

        sqs = boto3.client("sqs", endpoint_url=self._options["endpointUrl"], region_name="us-east-1")
        url = self._options["queueUrl"]
        for _ in range(0, MAX_MESSAGES // self._partitions, 10):
            answer = sqs.receive_message(
                QueueUrl=url, MaxNumberOfMessages=10, MessageSystemAttributeNames=["All"], MessageAttributeNames=["All"]
            )
            messages = answer.get("Messages")
            if not messages:
                return
            entries = [{"Id": str(i), "ReceiptHandle": each["ReceiptHandle"]} for i, each in enumerate(messages)]
            sqs.delete_message_batch(QueueUrl=url, Entries=entries)
            for message in messages:
                system = message["Attributes"]
                yield (
                    message["MessageId"],
                    message["Body"],
                    system["MessageGroupId"],
                    system["SequenceNumber"],
                    system["SentTimestamp"],
                )


class NaiveSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "naive"

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: object) -> DataSourceStreamReader:
        return NaiveReader(self.options)


class EmptySource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "empty"

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: object) -> DataSourceStreamReader:
        return NumberedReader()
