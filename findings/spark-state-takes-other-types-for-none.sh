#!/usr/bin/env bash
# pyspark 4.3.0, transformWithState in Python; needs Java 17
# Bet: a value that is put into state comes back equal, or update() raises. A result of the same processor is converted
#   where it can be, 100 for a DOUBLE, and refused where it cannot.
# Behaviour: update() takes anything. What is not of the type itself is kept as NULL: an int for a DOUBLE or a BOOLEAN,
#   a number beyond BIGINT, a float for an INT. An INT wraps round, and bytes for a STRING become the name of a Java
#   object. exists() is True, and get() gives a tuple with None in it. List and map state do the same.
# Cost: a processor that passes only what is above the last sequence number of its group, and keeps that one in a
#   BIGINT, gets None back for each one of SQS, for they are above 2**63: it takes every repeat for the first message,
#   and the payment is made twice. A flag that is set to 1 is never seen. Convert each value before update(), and keep
#   numbers of unknown size as STRING.
# Seen: state: 100 for DOUBLE: None
#       state: 1 for BOOLEAN: None
#       state: 2**64 - 1 for BIGINT: None
#       state: 2**31 for INT: -2147483648
#       state: 1.9 for INT: None
#       state: b'paid' for STRING: [B@...
#       list state: 100 for DOUBLE: None
#       map state: 100 for DOUBLE: None
#       result: 100 for DOUBLE: 100.0
#       result: 2**64 - 1 for BIGINT: error
#       the same sequence number twice, the last one kept in BIGINT: passed twice
#       the same sequence number twice, the last one kept in STRING: passed once
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

# The messages of one group, a file and a micro-batch each: one message, and the same again.
MESSAGES = pathlib.Path("messages").resolve()
NUMBER = "18870496460467696128"
VALUES = {
    "100 for DOUBLE": 100,
    "1 for BOOLEAN": 1,
    "2**64 - 1 for BIGINT": 2**64 - 1,
    "2**31 for INT": 2**31,
    "1.9 for INT": 1.9,
    "b'paid' for STRING": b"paid",
}


class Keep(StatefulProcessor):
    """Puts values into state, and yields what comes back."""

    def init(self, handle):
        self.states = {
            case: handle.getValueState(f"state{i}", f"value {case.split()[-1]}") for i, case in enumerate(VALUES)
        }
        self.list = handle.getListState("list", "value DOUBLE")
        self.map = handle.getMapState("map", "key STRING", "value DOUBLE")

    def handleInputRows(self, key, rows, timerValues):
        for case, value in VALUES.items():
            self.states[case].update((value,))
            assert self.states[case].exists()
            yield self.row(f"state: {case}", self.states[case].get())
        self.list.put([(100,)])
        yield self.row("list state: 100 for DOUBLE", *self.list.get())
        self.map.updateValue(("key",), (100,))
        yield self.row("map state: 100 for DOUBLE", self.map.getValue(("key",)))

    def row(self, case, value):
        # The rest of a Java object's name is a number of the heap.
        return Row(case=case, value="[B@..." if str(value[0]).startswith("[B@") else str(value[0]))

    def close(self):
        pass


class Result(StatefulProcessor):
    def __init__(self, value):
        self.value = value

    def init(self, handle):
        pass

    def handleInputRows(self, key, rows, timerValues):
        yield Row(value=self.value)

    def close(self):
        pass


class Pass(StatefulProcessor):
    """Passes the messages of a group that are above the last one."""

    def __init__(self, kind):
        self.kind = kind

    def init(self, handle):
        self.last = handle.getValueState("last", f"number {self.kind}")

    def handleInputRows(self, key, rows, timerValues):
        number = self.last.get()[0] if self.last.exists() else None
        last = None if number is None else int(number)
        for row in rows:
            number = int(row.number)
            if last is None or number > last:
                last = number
                yield Row(number=row.number)
        self.last.update((str(last) if self.kind == "STRING" else last,))

    def close(self):
        pass


MESSAGES.mkdir()
for i in range(2):
    (MESSAGES / f"{i}.json").write_text(json.dumps({"group": "account 7", "number": NUMBER}))
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


def run(processor, schema, name):
    messages = spark.readStream.schema("group STRING, number STRING").option("maxFilesPerTrigger", 1)
    results = messages.json(str(MESSAGES)).groupBy("group").transformWithState(processor, schema, "Update", "None")
    rows = []
    query = results.writeStream.foreachBatch(lambda frame, batch: rows.extend(frame.collect()))
    query = query.outputMode("update").trigger(availableNow=True).option("checkpointLocation", f"checkpoint {name}")
    query.start().awaitTermination()
    return rows


def result(value, kind):
    try:
        return run(Result(value), f"value {kind}", kind)[0].value
    except Exception:
        return "error"


def passed(kind):
    return {1: "once", 2: "twice"}[len(run(Pass(kind), "number STRING", f"last {kind}"))]


# The second micro-batch shows the same.
kept = run(Keep(), "case STRING, value STRING", "keep")
seen = {row.case: row.value for row in kept[: len(kept) // 2]}
seen["result: 100 for DOUBLE"] = str(result(100, "DOUBLE"))
seen["result: 2**64 - 1 for BIGINT"] = str(result(2**64 - 1, "BIGINT"))
for kind in ("BIGINT", "STRING"):
    seen[f"the same sequence number twice, the last one kept in {kind}"] = f"passed {passed(kind)}"
spark.stop()
with open("seen", "w") as file:
    for case, result in seen.items():
        print(f"{case}: {result}", file=file)
expected = ["None", "None", "None", "-2147483648", "None", "[B@...", "None", "None"]
sys.exit(list(seen.values()) != [*expected, "100.0", "error", "passed twice", "passed once"])
PY
cd "$place"
export PYSPARK_PYTHON="$place/venv/bin/python" PYSPARK_DRIVER_PYTHON="$place/venv/bin/python"
"$place/venv/bin/python" "$place/run.py" >"$place/log" 2>&1 || { cat "$place/seen" || tail -5 "$place/log"; exit 1; }
cat "$place/seen"
