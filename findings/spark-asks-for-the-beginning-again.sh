#!/usr/bin/env bash
# pyspark 4.3.0, Python Data Source API for streams; needs Java 17
# Bet: a new query asks its source once where it begins (`initialOffset`), and a restart goes on "from the
#   check-pointed offset rather than the initial one", as the docstring says.
# Behaviour: initialOffset() is asked before latestOffset(), and again when the first micro-batch is planned. The
#   checkpoint has no more than the end of a micro-batch: if the first one fails, the restart asks a third time. Each
#   answer is believed, and nothing says that the micro-batch now begins elsewhere.
# Cost: a source that begins at "now", such as the newest position of a stream, loses what came between the first
#   question and the last: hours, if the sink was down. It may even be told to read backwards. Let initialOffset() give
#   a constant, and find the place in latestOffset(), whose answer is kept.
# Seen: start: initialOffset 100, latestOffset 103 after 100, initialOffset 101, read 101 to 103, then the sink fails
#       restart: initialOffset 102, read 102 to 103
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check pyspark==4.3.0 pyarrow==21.0.0 pandas==2.2.3
cat > "$place/run.py" <<'PY'
import pathlib
import sys

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

# The newest position of the stream, which grows with each question, and the calls; the reader runs in another process.
NEWEST, CALLS = pathlib.Path("newest").resolve(), pathlib.Path("calls").resolve()


def note(call):
    with open(CALLS, "a") as calls:
        calls.write(f"{call}\n")


class Source(DataSource):
    @classmethod
    def name(cls):
        return "source"

    def schema(self):
        return "x INT"

    def streamReader(self, schema):
        return Reader()


class Reader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Begins at the newest position, with at most three rows in the first micro-batch."""

    def prepareForTriggerAvailableNow(self):
        pass

    def initialOffset(self):
        newest = int(NEWEST.read_text())
        NEWEST.write_text(str(newest + 1))
        note(f"initialOffset {newest}")
        return {"at": newest}

    def latestOffset(self, start, limit):
        if start["at"] == 103:
            return start
        note(f"latestOffset 103 after {start['at']}")
        return {"at": 103}

    def partitions(self, start, end):
        return [InputPartition((start["at"], end["at"]))]

    def read(self, partition):
        start, end = partition.value
        note(f"read {start} to {end}")
        for x in range(start, end):
            yield (x,)


spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .getOrCreate()
)
spark.dataSource.register(Source)
NEWEST.write_text("100")


def run(sink):
    CALLS.write_text("")
    query = spark.readStream.format("source").load().writeStream.foreachBatch(sink).trigger(availableNow=True)
    try:
        query.option("checkpointLocation", "checkpoint").start().awaitTermination()
    except StreamingQueryException as error:
        assert "the sink is down" in str(error), error
        note("then the sink fails")
    return ", ".join(CALLS.read_text().split("\n")[:-1])


def down(rows, batch):
    rows.collect()
    raise OSError("the sink is down")


def up(rows, batch):
    rows.collect()


seen = {"start": run(down), "restart": run(up)}
spark.stop()
with open("seen", "w") as file:
    for what, calls in seen.items():
        print(f"{what}: {calls}", file=file)
expected = [
    "initialOffset 100, latestOffset 103 after 100, initialOffset 101, read 101 to 103, then the sink fails",
    "initialOffset 102, read 102 to 103",
]
sys.exit(list(seen.values()) != expected)
PY
cd "$place"
export PYSPARK_PYTHON="$place/venv/bin/python" PYSPARK_DRIVER_PYTHON="$place/venv/bin/python"
"$place/venv/bin/python" "$place/run.py" >"$place/log" 2>&1 || { cat "$place/seen" || tail -5 "$place/log"; exit 1; }
cat "$place/seen"
