#!/usr/bin/env bash
# pyspark 4.3.0, Python Data Source API for streams; needs Java 17
# Bet: the stream writer that commits a micro-batch is the one whose write() ran, so that what its __init__ has set, such as
#   a run id, is the same in both. It is so with the writer of a batch. abort() is for failed tasks, as its docstring says.
# Behaviour: Spark calls streamWriter() anew for each commit and each abort. Only the options of the query and the messages
#   of the tasks link them. When commit() raises, abort() comes after it on a third writer, with the messages of all tasks,
#   none of which has failed.
# Cost: a sink that names files or deduplication ids after an id of its own commits none of what its tasks wrote, and no
#   error says so. One whose abort() undoes the messages it is given undoes what a commit has half done. Send such an id in
#   the message of each task, or take it from the batch id.
# Seen: batch: write A, commit A of 1
#       stream: write A, commit B of 1
#       stream, commit raises: write A, commit B of 1, abort C of 1
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check pyspark==4.3.0 pyarrow==21.0.0 pandas==2.2.3
cat > "$place/run.py" <<'PY'
import pathlib
import sys
import uuid

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamWriter, DataSourceWriter, WriterCommitMessage

# The calls to the sink, which run in other processes.
CALLS = pathlib.Path("calls").resolve()


class Calls:
    """The calls that both kinds of writer note, each under the id of its writer."""

    def __init__(self, options):
        self.fails = options.get("fails") == "true"
        self.id = uuid.uuid4().hex

    def note(self, call):
        with open(CALLS, "a") as calls:
            calls.write(f"{call.format(self.id)}\n")

    def write(self, rows):
        list(rows)
        self.note("write {}")
        return WriterCommitMessage()

    def commit(self, messages, batch=None):
        self.note(f"commit {{}} of {len(messages)}")
        if self.fails:
            raise OSError("no connection")

    def abort(self, messages, batch=None):
        self.note(f"abort {{}} of {len(messages)}")


class Writer(Calls, DataSourceWriter):
    pass


class StreamWriter(Calls, DataSourceStreamWriter):
    pass


class Sink(DataSource):
    @classmethod
    def name(cls):
        return "sink"

    def writer(self, schema, overwrite):
        return Writer(self.options)

    def streamWriter(self, schema, overwrite):
        return StreamWriter(self.options)


spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .getOrCreate()
)
spark.dataSource.register(Sink)
spark.range(1).coalesce(1).write.parquet("rows")


def batch():
    spark.range(1).coalesce(1).write.format("sink").mode("append").save()


def stream(checkpoint, **options):
    rows = spark.readStream.schema("id LONG").parquet("rows").coalesce(1)
    query = rows.writeStream.format("sink").options(**options).trigger(availableNow=True)
    try:
        query.option("checkpointLocation", checkpoint).start().awaitTermination()
    except StreamingQueryException as error:
        assert "no connection" in str(error), error


def run(case, *arguments, **options):
    CALLS.write_text("")
    case(*arguments, **options)
    calls = CALLS.read_text().split("\n")[:-1]
    letters = {}
    for call in calls:
        letters.setdefault(call.split()[1], "ABC"[len(letters)])
    return ", ".join(" ".join(letters.get(word, word) for word in call.split()) for call in calls)


seen = {
    "batch": run(batch),
    "stream": run(stream, "checkpoint"),
    "stream, commit raises": run(stream, "checkpoint of the failure", fails="true"),
}
spark.stop()
with open("seen", "w") as file:
    for what, calls in seen.items():
        print(f"{what}: {calls}", file=file)
expected = ["write A, commit A of 1", "write A, commit B of 1", "write A, commit B of 1, abort C of 1"]
sys.exit(list(seen.values()) != expected)
PY
cd "$place"
export PYSPARK_PYTHON="$place/venv/bin/python" PYSPARK_DRIVER_PYTHON="$place/venv/bin/python"
"$place/venv/bin/python" "$place/run.py" >"$place/log" 2>&1 || { cat "$place/seen" || tail -5 "$place/log"; exit 1; }
cat "$place/seen"
