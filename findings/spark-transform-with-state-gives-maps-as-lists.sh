#!/usr/bin/env bash
# pyspark 4.3.0, transformWithState in Python; needs Java 17
# Bet: the rows that handleInputRows gets are those that collect() gives: a MAP is a dict, a STRUCT a Row, a TIMESTAMP
#   has no zone, and one that was put into state can be compared with the next.
# Behaviour: a MAP is a list of pairs, so `"name" in row.attributes` is False for a name that is there. A STRUCT is a
#   dict. A TIMESTAMP has a zone, and comes back from state without one: comparing the two raises a TypeError.
# Cost: the attributes of a message, or the headers of a record, are such a map. A processor that looks for one of them,
#   such as "cancelled", finds it in no message, without an error. One that drops what is not later than the last row
#   passes the first micro-batch, fails in the second, and in each restart. Take dict(row.attributes), and keep the
#   timestamp in state as a number.
# Seen: 'priority' in attributes: True; in handleInputRows False
#       attributes: {'priority': 'high'}; in handleInputRows [('priority', 'high')]
#       sns: Row(subject='bid'); in handleInputRows {'subject': 'bid'}
#       sent has a zone: False; in handleInputRows True
#       second row later than the first: True; in handleInputRows TypeError, can't compare offset-naive and
#         offset-aware datetimes
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

# Two messages of one group, a file and a micro-batch each.
MESSAGES = pathlib.Path("messages").resolve()
COLUMNS = "group STRING, sent TIMESTAMP, attributes MAP<STRING, STRING>, sns STRUCT<subject: STRING>"


def look(row):
    return {
        "'priority' in attributes": str("priority" in row.attributes),
        "attributes": repr(row.attributes),
        "sns": repr(row.sns),
        "sent has a zone": str(row.sent.tzinfo is not None),
    }


class Look(StatefulProcessor):
    """Says what its rows are, and whether they come after the last one of the group, which it keeps."""

    def init(self, handle):
        self.last = handle.getValueState("last", "sent TIMESTAMP")

    def handleInputRows(self, key, rows, timerValues):
        for row in rows:
            said = look(row)
            if self.last.exists():
                try:
                    said["second row later than the first"] = str(row.sent > self.last.get()[0])
                except TypeError as error:
                    said["second row later than the first"] = f"TypeError, {error}"
            self.last.update((row.sent,))
            yield Row(said=json.dumps(said))

    def close(self):
        pass


MESSAGES.mkdir()
for second in range(2):
    message = {"group": "a", "sent": f"2026-01-01T12:00:0{second}Z", "attributes": {"priority": "high"}}
    (MESSAGES / f"{second}.json").write_text(json.dumps({**message, "sns": {"subject": "bid"}}))
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
first, second = spark.read.schema(COLUMNS).json(str(MESSAGES)).sort("sent").collect()
seen = {"collect()": {**look(first), "second row later than the first": str(second.sent > first.sent)}}
messages = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1).json(str(MESSAGES))
results = messages.groupBy("group").transformWithState(Look(), "said STRING", "Append", "None")
rows = []
query = results.writeStream.foreachBatch(lambda frame, batch: rows.extend(frame.collect()))
query = query.trigger(availableNow=True).option("checkpointLocation", "checkpoint").start()
query.awaitTermination()
spark.stop()
seen["handleInputRows"] = json.loads(rows[1].said)
with open("seen", "w") as file:
    for what, value in seen["collect()"].items():
        print(f"{what}: {value}; in handleInputRows {seen['handleInputRows'][what]}", file=file)
expected = {
    "collect()": ["True", "{'priority': 'high'}", "Row(subject='bid')", "False", "True"],
    "handleInputRows": [
        "False",
        "[('priority', 'high')]",
        "{'subject': 'bid'}",
        "True",
        "TypeError, can't compare offset-naive and offset-aware datetimes",
    ],
}
sys.exit({where: list(said.values()) for where, said in seen.items()} != expected)
PY
cd "$place"
export PYSPARK_PYTHON="$place/venv/bin/python" PYSPARK_DRIVER_PYTHON="$place/venv/bin/python"
"$place/venv/bin/python" "$place/run.py" >"$place/log" 2>&1 || { cat "$place/seen" || tail -5 "$place/log"; exit 1; }
cat "$place/seen"
