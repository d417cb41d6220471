#!/usr/bin/env bash
# pyspark 4.3.0, transformWithStateInPandas; needs Java 17
# Bet: with a BIGINT as its key, a row whose key is NULL makes a group of its own, with a state of its own. The other
#   groups of the micro-batch keep theirs, as they do with transformWithState.
# Behaviour: pandas makes a column with a NULL in it one of floats, and the keys of all groups in the same Arrow batch,
#   of up to 10,000 rows, are taken from it. State of a BIGINT key that is a float is that of NULL: all these groups
#   read and write one state, one after the other. Their own states stay as they were, and are used again in the next
#   micro-batch. Nothing says so.
# Cost: one message whose body from_json cannot read, or that lacks the field, has such a key. The balance of an account
#   goes on from that of another one, and what this micro-batch has added is missing from its own for good; the source
#   is committed. Filter such rows out before groupBy, or use transformWithState.
# Seen: transformWithState: 1: 1, 2: 1 / 1: 2, 2: 2, None: 1 / 1: 3, 2: 3
#       transformWithStateInPandas: 1: 1, 2: 1 / 1.0: 2, 2.0: 3, nan: 1 / 1: 2, 2: 2
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check pyspark==4.3.0 pyarrow==21.0.0 pandas==2.2.3 \
    protobuf==7.36.2
cat > "$place/run.py" <<'PY'
import json
import os
import pathlib
import sys

from pyspark.sql import Row, SparkSession
from pyspark.sql.streaming import StatefulProcessor

MESSAGES = pathlib.Path("messages").resolve()
RESULT = "account STRING, count BIGINT"
# A file and a micro-batch each. Each account has one message in each micro-batch.
BATCHES = [[1, 2], [1, 2, None], [1, 2]]


class Rows(StatefulProcessor):
    def init(self, handle):
        self.count = handle.getValueState("count", "count BIGINT")

    def add(self, rows):
        count = (self.count.get() if self.count.exists() else (0,))[0] + rows
        self.count.update((count,))
        return count

    def handleInputRows(self, key, rows, timerValues):
        yield Row(account=str(key[0]), count=self.add(len(list(rows))))

    def close(self):
        pass


class Pandas(Rows):
    def handleInputRows(self, key, rows, timerValues):
        import pandas

        count = self.add(sum(len(frame) for frame in rows))
        yield pandas.DataFrame({"account": [str(key[0])], "count": [count]})


MESSAGES.mkdir()
for i, accounts in enumerate(BATCHES):
    file = MESSAGES / f"{i}.json"
    file.write_text("\n".join(json.dumps({"account": account}) for account in accounts))
    # Spark takes them by their age.
    os.utime(file, (1_800_000_000 + i,) * 2)
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
messages = spark.readStream.schema("account BIGINT").option("maxFilesPerTrigger", 1).json(str(MESSAGES))
accounts = messages.groupBy("account")


def run(name, results):
    counts = []

    def keep(frame, batch):
        counts.append([f"{row.account}: {row['count']}" for row in frame.sort("account").collect()])

    query = results.writeStream.foreachBatch(keep)
    query = query.trigger(availableNow=True).option("checkpointLocation", f"checkpoint {name}").start()
    query.awaitTermination()
    return " / ".join(", ".join(batch) for batch in counts)


pandas = accounts.transformWithStateInPandas(Pandas(), RESULT, "Append", "None")
seen = {
    "transformWithState": run("rows", accounts.transformWithState(Rows(), RESULT, "Append", "None")),
    "transformWithStateInPandas": run("pandas", pandas),
}
spark.stop()
with open("seen", "w") as file:
    for what, value in seen.items():
        print(f"{what}: {value}", file=file)
expected = {
    "transformWithState": "1: 1, 2: 1 / 1: 2, 2: 2, None: 1 / 1: 3, 2: 3",
    "transformWithStateInPandas": "1: 1, 2: 1 / 1.0: 2, 2.0: 3, nan: 1 / 1: 2, 2: 2",
}
sys.exit(seen != expected)
PY
cd "$place"
export PYSPARK_PYTHON="$place/venv/bin/python" PYSPARK_DRIVER_PYTHON="$place/venv/bin/python"
"$place/venv/bin/python" "$place/run.py" >"$place/log" 2>&1 || { cat "$place/seen" || tail -5 "$place/log"; exit 1; }
cat "$place/seen"
