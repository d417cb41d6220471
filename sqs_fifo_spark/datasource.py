"""The format `sqsfifo`, and the readers and writers that Spark builds under this name.

Spark imports this module in every application of its environment, so it imports boto3, Arrow and the rest only when a
stream is really read or written.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqs_fifo_spark.boundary import called_by_spark
from sqs_fifo_spark.errors import UnsupportedReadError, UnsupportedWriteError, needs_spark
from sqs_fifo_spark.logs import set_subject
from sqs_fifo_spark.option_rules import is_name
from sqs_fifo_spark.options import SinkOptions, parse_sink_options, parse_source_options

with needs_spark():
    from pyspark.sql.datasource import (
        DataSource,
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

    from sqs_fifo_spark.schema import schema_of


_READ_A_TABLE = (
    " Spark hands a table's OPTIONS to no Python source: for a table, give them with "
    "spark.readStream.option(...).table(...)."
)
_WRITE_TO_A_TABLE = (
    " Spark hands a table's OPTIONS to no Python sink: for a table, give them with INSERT INTO ... WITH (...), or "
    "writeStream.option(...).toTable(...)."
)
_OF_TABLE = "option."


class SqsFifoDataSource(DataSource):
    """The format `sqsfifo`: a FIFO queue of Amazon SQS as a stream, in order and replayable, and as a sink.

    Spark builds this for reading and for writing alike, so options are checked where it is known which: those of a
    source, and its queue, at `.load()` or, with the user's schema, at the start; those of a sink before its first task.
    """

    @classmethod
    def name(cls) -> str:
        return "sqsfifo"

    @called_by_spark
    def schema(self) -> StructType:
        given = _without_properties(self.options)
        options = parse_source_options(given)
        if given is self.options:  # else a table is created, and its options reach no query
            from sqs_fifo_spark.aws.look import look_at_queues

            set_subject(options.queue_name)
            look_at_queues(options, given)
        return schema_of(options)

    @called_by_spark
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from sqs_fifo_spark.source.reader import SqsFifoStreamReader

        options = parse_source_options(self.options, beside_missing=_READ_A_TABLE)
        if options.has_many_queues:
            return SqsFifoStreamReader(options, schema, given=dict(self.options))
        if is_name(options.queue_url):
            from sqs_fifo_spark.aws.named import with_url

            options = with_url(parse_source_options, self.options)
        return SqsFifoStreamReader(options, schema)

    @called_by_spark
    def reader(self, schema: StructType) -> DataSourceReader:
        raise UnsupportedReadError(
            "'sqsfifo' is a stream: use spark.readStream, with trigger(availableNow=True) for messages that wait now."
        )

    @called_by_spark
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from sqs_fifo_spark.sink.writer import SqsFifoStreamWriter

        if overwrite:
            raise UnsupportedWriteError(
                "output mode 'complete' writes the whole result anew each time, but messages can only be added to a "
                "queue. Use output mode 'append', or a batch write inside foreachBatch."
            )
        return SqsFifoStreamWriter(self._sink_options(), schema)

    @called_by_spark
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from sqs_fifo_spark.sink.writer import SqsFifoWriter

        if overwrite:
            raise UnsupportedWriteError("messages can only be added to a queue: use mode('append').")
        return SqsFifoWriter(self._sink_options(), schema)

    def _sink_options(self) -> SinkOptions:
        """Return a sink's options. What the driver says of its queue, as it plans the write, names the queue."""
        from sqs_fifo_spark.aws.named import with_url

        options = with_url(parse_sink_options, self.options, beside_missing=_WRITE_TO_A_TABLE)
        set_subject(options.queue_name)
        return options


def _without_properties(given: Mapping[str, str]) -> Mapping[str, str]:
    """Return the options alone. Where a table is created, its properties come with them.

    Seen on Spark 4.0 and 4.3: `provider`, `owner`, `location` and the user's own TBLPROPERTIES stand there beside the
    options, and each option once more, with `option.` before its name.
    """
    if not {"provider", "owner"} <= given.keys():
        return given
    return {key[len(_OF_TABLE) :]: value for key, value in given.items() if key.startswith(_OF_TABLE)}
