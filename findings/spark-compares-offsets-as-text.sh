#!/usr/bin/env bash
# pyspark 4.3.0, Python Data Source API for streams; needs Java 17
# Bet: a micro-batch begins when the source's offset is another than the last one, and one that goes back is an error.
# Behaviour: offsets are compared as the text that json.dumps makes of them. The same dict with its keys in another order
#   is news, and so is 1.0 after 1: a micro-batch from an offset to its equal. One that goes back is news as well, and
#   is logged, planned and committed like any other.
# Cost: a source that builds its offset from a set, or from an answer without order, starts micro-batches without end on
#   an idle queue, and a clock or a count that goes back reads rows again. Sort the keys, and refuse a lower offset.
# Seen: the same: {"a": 1, "b": 2}
#       other order of keys: {"a": 1, "b": 2} {"b": 2, "a": 1}
#       1.0 after 1: {"a": 1} {"a": 1.0}
#       back: {"a": 5} {"a": 3}
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check pyspark==4.3.0 pyarrow==21.0.0 pandas==2.2.3
cat > "$place/run.py" <<'PY'
import json
import pathlib
import sys

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

# The end of each planned micro-batch; the reader runs in another process.
PLANNED = pathlib.Path("planned").resolve()
CASES = {
    "the same": [{"a": 1, "b": 2}, {"a": 1, "b": 2}],
    "other order of keys": [{"a": 1, "b": 2}, {"b": 2, "a": 1}],
    "1.0 after 1": [{"a": 1}, {"a": 1.0}],
    "back": [{"a": 5}, {"a": 3}],
}


class Source(DataSource):
    @classmethod
    def name(cls):
        return "source"

    def schema(self):
        return "x INT"

    def streamReader(self, schema):
        return Reader(list(CASES[self.options["case"]]))


class Reader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, offsets):
        self.offsets = offsets

    def prepareForTriggerAvailableNow(self):
        pass

    def initialOffset(self):
        return {}

    def latestOffset(self, start, limit):
        return self.offsets.pop(0) if self.offsets else start

    def partitions(self, start, end):
        with open(PLANNED, "a") as planned:
            planned.write(json.dumps(end) + "\n")
        return []

    def read(self, partition):
        yield from ()


spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .getOrCreate()
)
spark.dataSource.register(Source)


def run(case):
    PLANNED.write_text("")
    rows = spark.readStream.format("source").option("case", case).load()
    query = rows.writeStream.format("noop").trigger(availableNow=True)
    query.option("checkpointLocation", f"checkpoint {case}").start().awaitTermination()
    return PLANNED.read_text().split("\n")[:-1]


seen = {case: run(case) for case in CASES}
spark.stop()
with open("seen", "w") as file:
    for case, planned in seen.items():
        print(f"{case}:", *planned, file=file)
expected = {case: [json.dumps(offset) for offset in offsets] for case, offsets in CASES.items()}
sys.exit(seen != {**expected, "the same": ['{"a": 1, "b": 2}']})
PY
cd "$place"
export PYSPARK_PYTHON="$place/venv/bin/python" PYSPARK_DRIVER_PYTHON="$place/venv/bin/python"
"$place/venv/bin/python" "$place/run.py" >"$place/log" 2>&1 || { cat "$place/seen" || tail -5 "$place/log"; exit 1; }
cat "$place/seen"
