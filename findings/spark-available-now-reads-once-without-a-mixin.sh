#!/usr/bin/env bash
# pyspark 4.3.0, Trigger.AvailableNow with Python stream readers; needs Java 17
# Bet: AvailableNow goes on until there is nothing new, in several micro-batches where the source gives its rows in
#   parts: a simple reader is read until read() gives no row, and a reader with getDefaultReadLimit() is asked for so
#   many rows at a time.
# Behaviour: that is so only for a reader that is a SupportsTriggerAvailableNow as well. One that is not is asked once,
#   and the query ends well: a simple reader whose read() gives ten of 25 rows leaves 15 behind. The other is not told
#   its limit, so all 25 come in one micro-batch. With a trigger of 0.1 s, both go on in tens.
# Cost: a job that runs each hour over a queue, with a read() of ten messages, takes ten an hour, and its backlog grows
#   behind a green run. A limit that protects the memory of the driver fails on the first large backlog. Add the mixin,
#   and let prepareForTriggerAvailableNow() note the end.
# Seen: simple reader, each 0.1 s: 10 10 5
#       simple reader, availableNow: 10
#       simple reader with the mixin, availableNow: 10 10 5
#       reader with a limit, each 0.1 s: 10 10 5
#       reader with a limit, availableNow: 25
#       reader with a limit and the mixin, availableNow: 10 10 5
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check pyspark==4.3.0 pyarrow==21.0.0 pandas==2.2.3
cat > "$place/run.py" <<'PY'
import sys
import time

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition, SimpleDataSourceStreamReader
from pyspark.sql.streaming.datasource import ReadMaxRows, SupportsTriggerAvailableNow

ROWS = 25


class Simple(SimpleDataSourceStreamReader):
    """Gives ten rows at a time, as a receive from a queue does."""

    def initialOffset(self):
        return {"at": 0}

    def read(self, start):
        end = min(start["at"] + 10, ROWS)
        return self.readBetweenOffsets(start, {"at": end}), {"at": end}

    def readBetweenOffsets(self, start, end):
        return iter([(x,) for x in range(start["at"], end["at"])])


class SimpleWithMixin(Simple, SupportsTriggerAvailableNow):
    def prepareForTriggerAvailableNow(self):
        pass  # There are never more than ROWS.


class Limited(DataSourceStreamReader):
    def initialOffset(self):
        return {"at": 0}

    def getDefaultReadLimit(self):
        return ReadMaxRows(10)

    def latestOffset(self, start, limit):
        return {"at": min(start["at"] + (limit.max_rows if isinstance(limit, ReadMaxRows) else ROWS), ROWS)}

    def partitions(self, start, end):
        return [InputPartition((start["at"], end["at"]))]

    def read(self, partition):
        for x in range(*partition.value):
            yield (x,)


class LimitedWithMixin(Limited, SupportsTriggerAvailableNow):
    def prepareForTriggerAvailableNow(self):
        pass


READERS = {
    "simple reader": Simple,
    "simple reader with the mixin": SimpleWithMixin,
    "reader with a limit": Limited,
    "reader with a limit and the mixin": LimitedWithMixin,
}


class Base(DataSource):
    def schema(self):
        return "x INT"


class SimpleSource(Base):
    @classmethod
    def name(cls):
        return "simple"

    def simpleStreamReader(self, schema):
        return READERS[self.options["reader"]]()


class Source(Base):
    @classmethod
    def name(cls):
        return "source"

    def streamReader(self, schema):
        return READERS[self.options["reader"]]()


spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .getOrCreate()
)
spark.dataSource.register(SimpleSource)
spark.dataSource.register(Source)


def run(reader, **trigger):
    counts = []
    name = "simple" if reader.startswith("simple") else "source"
    rows = spark.readStream.format(name).option("reader", reader).load()
    writer = rows.writeStream.foreachBatch(lambda rows, batch: counts.append(rows.count())).trigger(**trigger)
    query = writer.option("checkpointLocation", f"checkpoint {reader} {' '.join(trigger)}").start()
    if "availableNow" in trigger:
        query.awaitTermination()
    else:
        deadline = time.monotonic() + 120
        while sum(counts) < ROWS:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        query.stop()
    return " ".join(map(str, counts))


EACH, NOW = {"processingTime": "100 milliseconds"}, {"availableNow": True}
seen = {
    "simple reader, each 0.1 s": run("simple reader", **EACH),
    "simple reader, availableNow": run("simple reader", **NOW),
    "simple reader with the mixin, availableNow": run("simple reader with the mixin", **NOW),
    "reader with a limit, each 0.1 s": run("reader with a limit", **EACH),
    "reader with a limit, availableNow": run("reader with a limit", **NOW),
    "reader with a limit and the mixin, availableNow": run("reader with a limit and the mixin", **NOW),
}
spark.stop()
with open("seen", "w") as file:
    for case, counts in seen.items():
        print(f"{case}: {counts}", file=file)
sys.exit(list(seen.values()) != ["10 10 5", "10", "10 10 5", "10 10 5", "25", "10 10 5"])
PY
cd "$place"
export PYSPARK_PYTHON="$place/venv/bin/python" PYSPARK_DRIVER_PYTHON="$place/venv/bin/python"
"$place/venv/bin/python" "$place/run.py" >"$place/log" 2>&1 || { cat "$place/seen" || tail -5 "$place/log"; exit 1; }
cat "$place/seen"
