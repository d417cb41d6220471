#!/usr/bin/env bash
# pyspark 4.3.0, `foreach`, `foreachPartition`, and write() of a Python data source; needs Java 17
# Bet: Python that consumes a partition is not told "that was all" when the rows end because something before it has
#   failed: a source, a cast, a UDF. close(error) of a foreach writer "is called with error (if any) seen while
#   processing rows", so one that commits in close(None), under partition and epoch, is exactly once, as its docs say.
# Behaviour: only an error of process() itself is handed to close(). After any other, close(None) is called with the
#   rows that came through, as if the partition were whole, and only then does the task fail. In foreachPartition and
#   write() the iterator likewise just ends.
# Cost: a writer commits a part of the partition, and knows it as done. The next attempt has the same partition and
#   epoch, so open() refuses it, and the other rows are lost: the query goes on, and its source is committed. A
#   function that ends with a commit, or a mark that says "done", makes it too early. Do that on the driver, once the
#   job has succeeded.
# Seen: foreach: open, process 1, process 2, close(None), open, close(None); committed: [1, 2] of [1, 2, 3, 4]
#       foreachPartition: the rows ended without an error, not all of them
#       write() of a data source: the rows ended without an error, not all of them
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check pyspark==4.3.0 pyarrow==21.0.0 pandas==2.2.3
cat > "$place/run.py" <<'PY'
import json
import pathlib
import sys
import time

from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamReader,
    DataSourceWriter,
    InputPartition,
    WriterCommitMessage,
)

# The calls to the writer, the partitions that it has committed, the source's one failure, and how a consumer ended.
CALLS, COMMITTED, FAILED, END = (pathlib.Path(name).resolve() for name in ("calls", "committed", "failed", "end"))
ROWS = [1, 2, 3, 4]


class Source(DataSource):
    @classmethod
    def name(cls):
        return "source"

    def schema(self):
        return "x INT"

    def streamReader(self, schema):
        return Reader()

    def writer(self, schema, overwrite):
        return Consumer()


class Reader(DataSourceStreamReader):
    def initialOffset(self):
        return {"at": 0}

    def latestOffset(self):
        return {"at": 1}

    def partitions(self, start, end):
        return [InputPartition(0)]

    def read(self, partition):
        for x in ROWS:
            if x == 3 and not FAILED.exists():
                FAILED.touch()
                raise OSError("no connection, this once")
            yield (x,)


class Writer:
    """Commits each partition of each epoch once, as the documentation of `foreach` proposes."""

    def note(self, call):
        with open(CALLS, "a") as calls:
            calls.write(f"{call}\n")

    def open(self, partition, epoch):
        self.note("open")
        self.file, self.rows = COMMITTED / f"{epoch} {partition}", []
        return not self.file.exists()

    def process(self, row):
        self.note(f"process {row.x}")
        self.rows.append(row.x)

    def close(self, error):
        self.note(f"close({error})")
        if error is None and not self.file.exists():
            self.file.write_text(json.dumps(self.rows))


class Consumer(DataSourceWriter):
    def write(self, iterator):
        consume(iterator)
        return WriterCommitMessage()


def consume(iterator):
    try:
        count = sum(1 for row in iterator)
    except BaseException as error:
        END.write_text(f"an error: {error!r}")
        raise
    END.write_text("the rows ended without an error, " + ("all of them" if count == 200_000 else "not all of them"))


COMMITTED.mkdir()
spark = (
    SparkSession.builder.master("local[1,2]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.sql.execution.arrow.maxRecordsPerBatch", "2")
    .getOrCreate()
)
spark.dataSource.register(Source)
query = spark.readStream.format("source").load().writeStream.foreach(Writer()).trigger(availableNow=True)
query.option("checkpointLocation", "checkpoint").start().awaitTermination()
calls = ", ".join(CALLS.read_text().split("\n")[:-1])
committed = [x for file in COMMITTED.iterdir() for x in json.loads(file.read_text())]

spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "10000")
rows = spark.range(0, 200_000, 1, 1).selectExpr("IF(id < 190000, id, CAST('none' AS BIGINT)) AS id")


def run(action):
    END.unlink(missing_ok=True)
    try:
        action()
    except Exception as error:
        assert "CAST_INVALID_INPUT" in str(error), error
    deadline = time.monotonic() + 60
    while not END.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    return END.read_text() if END.exists() else "nothing"


partition = run(lambda: rows.foreachPartition(consume))
write = run(lambda: rows.write.format("source").mode("append").save())
spark.stop()
with open("seen", "w") as seen:
    print(f"foreach: {calls}; committed: {committed} of {ROWS}", file=seen)
    print("foreachPartition:", partition, file=seen)
    print("write() of a data source:", write, file=seen)
cut = "the rows ended without an error, not all of them"
expected = ("open, process 1, process 2, close(None), open, close(None)", [1, 2], cut, cut)
sys.exit((calls, committed, partition, write) != expected)
PY
cd "$place"
export PYSPARK_PYTHON="$place/venv/bin/python" PYSPARK_DRIVER_PYTHON="$place/venv/bin/python"
"$place/venv/bin/python" "$place/run.py" >"$place/log" 2>&1 || { cat "$place/seen" || tail -5 "$place/log"; exit 1; }
cat "$place/seen"
