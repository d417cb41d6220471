#!/usr/bin/env bash
# pyspark 4.3.0, transformWithState and applyInPandas in Python; needs Java 17
# Bet: where a group stands in one partition in the order of its messages, its rows reach handleInputRows, or a function
#   of applyInPandas, in that order: one partition is one stream of rows, and rows are brought together by a sort whose
#   key they share.
# Behaviour: it is so while the rows of a task fit into memory. If that sort spills, the rows of one group come from
#   several spilled runs, in no order of the runs: later messages before earlier ones. Nothing in the query's progress
#   says so. `spark.shuffle.spill.numElementsForceSpillThreshold` stands here for memory that runs short.
# Cost: it works in tests, and each day until a backlog comes, or larger bodies: then "the last row of the group" is an
#   older one, and the state keeps a balance that has been overwritten already. Sort the rows of a group within the
#   function, by a sequence number.
# Seen: transformWithState: 3 of 3 groups in order
#       applyInPandas: 3 of 3 groups in order
#       transformWithState, spilled: 0 of 3 groups in order
#       applyInPandas, spilled: 0 of 3 groups in order
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check pyspark==4.3.0 pyarrow==21.0.0 pandas==2.2.3 \
    protobuf==7.36.2
cat > "$place/run.py" <<'PY'
import sys

import pandas
from pyspark.sql import Row, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming import StatefulProcessor

spills = sys.argv[1] == "spilled"


class Source(DataSource):
    """A partition of 15,000 messages, in order."""

    @classmethod
    def name(cls):
        return "source"

    def schema(self):
        return "group STRING, number INT"

    def streamReader(self, schema):
        return Reader()


class Reader(DataSourceStreamReader):
    def initialOffset(self):
        return {"at": 0}

    def latestOffset(self):
        return {"at": 1}

    def partitions(self, start, end):
        return [InputPartition(0)]

    def read(self, partition):
        for number in range(15_000):
            yield (f"customer number {number % 3}", number)


class InOrder(StatefulProcessor):
    """Says of each group whether its messages came in order."""

    def init(self, handle):
        pass

    def handleInputRows(self, key, rows, timerValues):
        numbers = [row.number for row in rows]
        yield Row(in_order=numbers == sorted(numbers))

    def close(self):
        pass


def in_order(frame):
    return pandas.DataFrame({"in_order": [frame["number"].is_monotonic_increasing]})


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
    .config("spark.shuffle.spill.numElementsForceSpillThreshold", "4000" if spills else "1000000")
    .getOrCreate()
)
spark.dataSource.register(Source)
stream = spark.readStream.format("source").load()
seen = {}


def run(operator, stream, function):
    def count(frame, batch):
        answers = [row.in_order for row in function(frame).collect()]
        seen[f"{operator}{', spilled' if spills else ''}"] = f"{sum(answers)} of {len(answers)} groups in order"

    query = stream.writeStream.foreachBatch(count).outputMode("update").trigger(availableNow=True)
    query.option("checkpointLocation", f"checkpoint {operator} {spills}").start().awaitTermination()


processed = stream.groupBy("group").transformWithState(InOrder(), "in_order BOOLEAN", "Update", "None")
run("transformWithState", processed, lambda frame: frame)
run("applyInPandas", stream, lambda frame: frame.groupBy("group").applyInPandas(in_order, "in_order BOOLEAN"))
spark.stop()
with open("seen", "a") as file:
    for case, result in seen.items():
        print(f"{case}: {result}", file=file)
expected = f"{0 if spills else 3} of 3 groups in order"
sys.exit(list(seen.values()) != [expected, expected])
PY
cd "$place"
export PYSPARK_PYTHON="$place/venv/bin/python" PYSPARK_DRIVER_PYTHON="$place/venv/bin/python"
for memory in enough spilled; do
    "$place/venv/bin/python" "$place/run.py" "$memory" >"$place/log" 2>&1 ||
        { cat "$place/seen" || tail -5 "$place/log"; exit 1; }
done
cat "$place/seen"
