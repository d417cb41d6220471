#!/usr/bin/env bash
# pyspark 4.3.0, Trigger.AvailableNow with transformWithState or applyInPandasWithState; needs Java 17
# Bet: a query with trigger(availableNow=True) ends once it has processed what was there, whatever it does with it.
# Behaviour: with time mode "ProcessingTime", or a ProcessingTimeTimeout, it never ends, though no timer was set and no
#   state is kept. Each micro-batch without a row is followed by another one, as fast as they run. With time mode "None"
#   it ends, and so it does with `spark.sql.streaming.noDataMicroBatches.enabled` set to false.
# Cost: the hourly job that has begun to use a timer does not come back, and is still at work when the next one starts
#   on the same checkpoint. Several times a second it asks its source for news and adds files to its checkpoint. With
#   that setting at false, a timer waits for a run that has rows.
# Seen: None: ended, 2 rows
#       ProcessingTime: at work after 10 micro-batches without a row, 2 rows
#       ProcessingTimeTimeout: at work after 10 micro-batches without a row, 2 rows
#       ProcessingTime, noDataMicroBatches false: ended, 2 rows
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check pyspark==4.3.0 pyarrow==21.0.0 pandas==2.2.3 \
    protobuf==7.36.2
cat > "$place/run.py" <<'PY'
import sys
import threading
import time

import pandas
from pyspark.sql import Row, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

NO_DATA = "spark.sql.streaming.noDataMicroBatches.enabled"


class Source(DataSource):
    """Two rows, one in each micro-batch, and then no more."""

    @classmethod
    def name(cls):
        return "source"

    def schema(self):
        return "key STRING, x INT"

    def streamReader(self, schema):
        return Reader()


class Reader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def prepareForTriggerAvailableNow(self):
        pass

    def initialOffset(self):
        return {"at": 0}

    def latestOffset(self, start, limit):
        return {"at": min(start["at"] + 1, 2)}

    def partitions(self, start, end):
        return [InputPartition(x) for x in range(start["at"], end["at"])]

    def read(self, partition):
        yield ("key", partition.value)


class Count(StatefulProcessor):
    """Keeps nothing, and sets no timer."""

    def init(self, handle):
        pass

    def handleInputRows(self, key, rows, timerValues):
        yield Row(count=sum(1 for row in rows))

    def close(self):
        pass


def count(key, frames, state):
    yield pandas.DataFrame({"count": [sum(map(len, frames))]})


spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.sql.shuffle.partitions", "1")
    .config(
        "spark.sql.streaming.stateStore.providerClass",
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    )
    .getOrCreate()
)
spark.dataSource.register(Source)


def run(case):
    groups = spark.readStream.format("source").load().groupBy("key")
    mode, _, setting = case.partition(", ")
    spark.conf.set(NO_DATA, "false" if setting else "true")
    if mode == "ProcessingTimeTimeout":
        counts = groups.applyInPandasWithState(count, "count INT", "n INT", "update", mode)
    else:
        counts = groups.transformWithState(Count(), "count INT", "Update", mode)
    seen, enough = {"rows": 0, "empty": 0}, threading.Event()

    def function(frame, batch):
        rows = sum(row["count"] for row in frame.collect())
        seen["rows"] += rows
        seen["empty"] += rows == 0
        if seen["empty"] == 10:
            enough.set()

    query = counts.writeStream.foreachBatch(function).outputMode("update").trigger(availableNow=True)
    query = query.option("checkpointLocation", f"checkpoint {case}").start()
    deadline = time.monotonic() + 300
    while query.isActive and not enough.is_set():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    at_work = query.isActive
    query.stop()
    end = "at work after 10 micro-batches without a row" if at_work else "ended"
    return f"{case}: {end}, {seen['rows']} rows"


cases = ("None", "ProcessingTime", "ProcessingTimeTimeout", "ProcessingTime, noDataMicroBatches false")
seen = [run(case) for case in cases]
spark.stop()
with open("seen", "w") as file:
    print(*seen, sep="\n", file=file)
ends = [line.partition(": ")[2] for line in seen]
endless = "at work after 10 micro-batches without a row, 2 rows"
sys.exit(ends != ["ended, 2 rows", endless, endless, "ended, 2 rows"])
PY
cd "$place"
export PYSPARK_PYTHON="$place/venv/bin/python" PYSPARK_DRIVER_PYTHON="$place/venv/bin/python"
"$place/venv/bin/python" "$place/run.py" >"$place/log" 2>&1 || { cat "$place/seen" || tail -5 "$place/log"; exit 1; }
cat "$place/seen"
