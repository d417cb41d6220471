#!/usr/bin/env bash
# pyspark 4.3.0, transformWithState in Python; needs Java 17
# Bet: a Row that handleInputRows yields goes into the result's columns by place, as with createDataFrame and a schema,
#   or a name that the schema has not is an error. A Row that is put into state is taken by its names.
# Behaviour: the result is taken by names, and a column whose name the Row has not, in just that case, is NULL. What the
#   Row has besides is dropped. There is no error. State is taken by place, and names count for nothing.
# Cost: who renames a column in the schema of the result, or writes "messageid" in one of the two places, has NULL in
#   each row from then on, in a query that is green, and the source is committed. Who hands a Row from the one to the
#   other swaps two values of one type. Build both with one class of Row, made by Row("lot", "total"), in the order of
#   the schema.
# Seen: Total for total, createDataFrame: lot 7, total 42
#       Total for total, result of transformWithState: lot 7, total None
#       low 20 and high 22, state given as a Row that begins with high: low 22, high 20
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check pyspark==4.3.0 pyarrow==21.0.0 pandas==2.2.3 \
    protobuf==7.36.2
cat > "$place/run.py" <<'PY'
import json
import pathlib
import sys

from pyspark.sql import Row, SparkSession
from pyspark.sql.streaming import StatefulProcessor

MESSAGES = pathlib.Path("messages").resolve()
RESULT = "lot STRING, total INT"


class Total(StatefulProcessor):
    def init(self, handle):
        pass

    def handleInputRows(self, key, rows, timerValues):
        yield Row(lot=key[0], Total=sum(row.bid for row in rows))

    def close(self):
        pass


class Range(StatefulProcessor):
    """Keeps the lowest and the highest bid, as a named Row."""

    def init(self, handle):
        self.range = handle.getValueState("range", "low INT, high INT")

    def handleInputRows(self, key, rows, timerValues):
        bids = [row.bid for row in rows]
        self.range.update(Row(high=max(bids), low=min(bids)))
        low, high = self.range.get()
        yield Row(low=low, high=high)

    def close(self):
        pass


def said(row):
    return ", ".join(f"{name} {value}" for name, value in row.asDict().items())


MESSAGES.mkdir()
(MESSAGES / "0.json").write_text("\n".join(json.dumps({"lot": "7", "bid": bid}) for bid in (20, 22)))
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


def run(name, results):
    rows = []
    query = results.writeStream.foreachBatch(lambda frame, batch: rows.extend(frame.collect()))
    query = query.trigger(availableNow=True).option("checkpointLocation", f"checkpoint {name}").start()
    query.awaitTermination()
    return said(rows[0])


lots = spark.readStream.schema("lot STRING, bid INT").json(str(MESSAGES)).groupBy("lot")
frame = spark.createDataFrame([Row(lot="7", Total=42)], RESULT)
total = lots.transformWithState(Total(), RESULT, "Append", "None")
state = lots.transformWithState(Range(), "low INT, high INT", "Append", "None")
seen = {
    "Total for total, createDataFrame": said(frame.first()),
    "Total for total, result of transformWithState": run("result", total),
    "low 20 and high 22, state given as a Row that begins with high": run("state", state),
}
spark.stop()
with open("seen", "w") as file:
    for what, value in seen.items():
        print(f"{what}: {value}", file=file)
sys.exit(list(seen.values()) != ["lot 7, total 42", "lot 7, total None", "low 22, high 20"])
PY
cd "$place"
export PYSPARK_PYTHON="$place/venv/bin/python" PYSPARK_DRIVER_PYTHON="$place/venv/bin/python"
"$place/venv/bin/python" "$place/run.py" >"$place/log" 2>&1 || { cat "$place/seen" || tail -5 "$place/log"; exit 1; }
cat "$place/seen"
