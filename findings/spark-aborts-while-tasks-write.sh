#!/usr/bin/env bash
# pyspark 4.3.0, Python Data Source API, writers; needs Java 17
# Bet: abort() is called when no task writes any more, so that what it undoes stays undone, and it gets the messages of
#   all that was written, "collected from the write method call from each task".
# Behaviour: abort() comes as soon as one task has failed, or query.stop() is called, while others are at work. They
#   stand as None in the messages, like the failed one, and write on for `spark.python.task.killTimeout`: two seconds by
#   default, a minute here, so that a slow machine sees the same. A write() that returns in that time has written all of
#   its rows, and its message goes nowhere.
# Cost: a sink whose tasks stage files, and whose abort() empties the staging area of the micro-batch, has a file in it
#   again afterwards. The restart has the same batch id: if commit() takes what lies there, a partition is written
#   twice. If it sends at once, it has sent what nobody was told of. Give the files of each attempt another name, and
#   commit those that the messages name.
# Seen: a task fails: write 0 at work, write 1 fails, abort [None, None], write 0 ends; staged: 0
#       query.stop(): write 0 at work, write 1 ends, abort [None, 1], write 0 ends; staged: 0
#       a task of a batch fails: write 0 at work, write 1 fails, abort [None, None], write 0 ends; staged: 0
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check pyspark==4.3.0 pyarrow==21.0.0 pandas==2.2.3
cat > "$place/run.py" <<'PY'
import pathlib
import sys
import time
from dataclasses import dataclass

from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
    WriterCommitMessage,
)


def wait(condition):
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


class Source(DataSource):
    @classmethod
    def name(cls):
        return "source"

    def schema(self):
        return "x INT"

    def streamReader(self, schema):
        return Reader()

    def streamWriter(self, schema, overwrite):
        return StreamWriter(self.options["place"])

    def writer(self, schema, overwrite):
        return BatchWriter(self.options["place"])


class Reader(DataSourceStreamReader):
    def initialOffset(self):
        return {"at": 0}

    def latestOffset(self):
        return {"at": 1}

    def partitions(self, start, end):
        return [InputPartition(0), InputPartition(1)]

    def read(self, partition):
        yield (partition.value,)


@dataclass
class Message(WriterCommitMessage):
    x: int


class Sink:
    """Stages a file for each partition; abort() removes what is staged."""

    def __init__(self, place):
        self.place = pathlib.Path(place)
        self.calls, self.staging = self.place / "calls", self.place / "staging"

    def note(self, call):
        with open(self.calls, "a") as calls:
            calls.write(f"{call}\n")

    def has(self, call):
        return self.calls.exists() and call in self.calls.read_text()

    def write(self, rows):
        (row,) = rows
        if row.x == 0:
            self.note("write 0 at work")
            wait(lambda: self.has("abort"))
        else:
            wait(lambda: self.has("write 0 at work"))
            if self.place.name != "query.stop()":
                self.note("write 1 fails")
                raise OSError("no connection")
        (self.staging / str(row.x)).touch()
        self.note(f"write {row.x} ends")
        return Message(row.x)

    def abort(self, messages, batchId=None):
        for file in self.staging.iterdir():
            file.unlink()
        self.note(f"abort {[message and message.x for message in messages]}")


class StreamWriter(Sink, DataSourceStreamWriter):
    pass


class BatchWriter(Sink, DataSourceWriter):
    pass


spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.python.task.killTimeout", "60s")
    .getOrCreate()
)
spark.dataSource.register(Source)
tracker = spark.sparkContext.statusTracker()


def completed():
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    return sum(stage.numCompletedTasks for stage in stages if stage)


def run(case):
    sink = Sink(pathlib.Path(case).resolve())
    sink.staging.mkdir(parents=True)
    try:
        if case == "a task of a batch fails":
            rows = spark.range(0, 2, 1, 2).selectExpr("CAST(id AS INT) AS x")
            rows.write.format("source").option("place", str(sink.place)).mode("append").save()
        else:
            writer = spark.readStream.format("source").load().writeStream.format("source")
            writer = writer.option("place", str(sink.place)).option("checkpointLocation", f"checkpoint {case}")
            query = writer.start()
            if case == "query.stop()":
                wait(lambda: completed() == 1)
                query.stop()
            else:
                query.awaitTermination()
    except Exception as error:
        assert "no connection" in str(error), error
    wait(lambda: sink.has("write 0 ends"))
    staged = " ".join(file.name for file in sink.staging.iterdir())
    return ", ".join(sink.calls.read_text().split("\n")[:-1]) + f"; staged: {staged}"


seen = {case: run(case) for case in ("a task fails", "query.stop()", "a task of a batch fails")}
spark.stop()
with open("seen", "w") as file:
    for case, calls in seen.items():
        print(f"{case}: {calls}", file=file)
fails = "write 0 at work, write 1 fails, abort [None, None], write 0 ends; staged: 0"
stop = "write 0 at work, write 1 ends, abort [None, 1], write 0 ends; staged: 0"
sys.exit(list(seen.values()) != [fails, stop, fails])
PY
cd "$place"
export PYSPARK_PYTHON="$place/venv/bin/python" PYSPARK_DRIVER_PYTHON="$place/venv/bin/python"
"$place/venv/bin/python" "$place/run.py" >"$place/log" 2>&1 || { cat "$place/seen" || tail -5 "$place/log"; exit 1; }
cat "$place/seen"
