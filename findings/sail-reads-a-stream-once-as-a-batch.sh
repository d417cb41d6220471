#!/usr/bin/env bash
# pysail 0.7.2 (Sail, an engine for Spark's API), with pyspark-client 4.2.0
# Bet: readStream of a Python data source asks its streamReader() for offsets and commits them, writeStream writes with
#   its streamWriter(), and what Sail cannot do yet it refuses, as it refuses foreachBatch.
# Behaviour: the query reads what the batch reader() gives, once, and writes it with the batch writer(). Neither
#   streamReader() nor streamWriter() is called, and there is no checkpoint where one is asked for. The query ends
#   without an exception, with a trigger of one second as well. Started again, it writes all again.
# Cost: a source whose batch reader only looks into a queue, or reads all that is there, gives its messages with each
#   start, and none of them is deleted. The query has ended well and isStreaming is True. Keep streams of Python sources
#   on Spark.
# Seen: isStreaming: True
#       foreachBatch: refused
#       availableNow: ended, no exception; reader, writer, wrote 1 2; no checkpoint
#       availableNow, again: ended, no exception; reader, writer, wrote 1 2; no checkpoint
#       each second: ended, no exception; reader, writer, wrote 1 2; no checkpoint
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check pysail==0.7.2 pyspark-client==4.2.0 \
    grpcio==1.85.3 grpcio-status==1.85.3 pyarrow==21.0.0 pandas==2.2.3
cat > "$place/run.py" <<'PY'
import os
import pathlib

from pysail.spark import SparkConnectServer
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
    WriterCommitMessage,
)

CALLS = pathlib.Path("calls").resolve()


def note(call):
    with CALLS.open("a") as file:
        print(call, file=file)


class Source(DataSource):
    """Has one reader for batches, and one for streams, and writers alike."""

    @classmethod
    def name(cls):
        return "queue"

    def schema(self):
        return "number INT"

    def reader(self, schema):
        note("reader")
        return Reader()

    def streamReader(self, schema):
        note("streamReader")
        return StreamReader()

    def writer(self, schema, overwrite):
        note("writer")
        return Writer()

    def streamWriter(self, schema, overwrite):
        note("streamWriter")
        return StreamWriter()


class Reader(DataSourceReader):
    def partitions(self):
        return [InputPartition(0)]

    def read(self, partition):
        yield (1,)
        yield (2,)


class StreamReader(DataSourceStreamReader):
    def initialOffset(self):
        note("initialOffset")
        return {"at": 0}

    def latestOffset(self):
        note("latestOffset")
        return {"at": 2}

    def partitions(self, start, end):
        return [InputPartition(0)]

    def read(self, partition):
        yield (1,)
        yield (2,)

    def commit(self, end):
        note("commit")


class Writer(DataSourceWriter):
    def write(self, rows):
        note(" ".join(["wrote", *(str(row.number) for row in rows)]))
        return WriterCommitMessage()


class StreamWriter(DataSourceStreamWriter):
    write = Writer.write


server = SparkConnectServer("127.0.0.1", 0)
server.start(background=True)
spark = SparkSession.builder.remote(f"sc://127.0.0.1:{server.listening_address[1]}").create()
spark.dataSource.register(Source)
rows = spark.readStream.format("queue").load()
checkpoint = pathlib.Path("checkpoint").resolve()


def run(**trigger):
    CALLS.unlink(missing_ok=True)
    writer = rows.writeStream.format("queue").trigger(**trigger).option("checkpointLocation", str(checkpoint))
    query = writer.start()
    ended = "ended" if query.awaitTermination(60) else "runs on"
    exception = "an exception" if query.exception() else "no exception"
    calls = ", ".join(CALLS.read_text().splitlines())
    return f"{ended}, {exception}; {calls}; {'a' if checkpoint.exists() else 'no'} checkpoint"


try:
    rows.writeStream.foreachBatch(lambda rows, batch: None).start().stop()
    refusal = "taken"
except Exception:
    refusal = "refused"
seen = {
    "isStreaming": str(rows.isStreaming),
    "foreachBatch": refusal,
    "availableNow": run(availableNow=True),
    "availableNow, again": run(availableNow=True),
    "each second": run(processingTime="1 second"),
}
with open("seen", "w") as file:
    for case, end in seen.items():
        print(f"{case}: {end}", file=file)
once = "ended, no exception; reader, writer, wrote 1 2; no checkpoint"
# Sail's server would keep the process.
os._exit(list(seen.values()) != ["True", "refused", once, once, once])
PY
cd "$place"
"$place/venv/bin/python" "$place/run.py" >"$place/log" 2>&1 || { cat "$place/seen" || tail -5 "$place/log"; exit 1; }
cat "$place/seen"
