#!/usr/bin/env bash
# pyspark 4.3.0, Python Data Source API; needs Java 17
# Bet: a value that a reader yields is of the type of its column, or the read fails, as it does for a string in an INT
#   column and for 2**31. A named Row is taken by its names.
# Behaviour: a STRING column takes anything, as Python's str() writes it: bytes arrive as "b'paid'", a dict as "{'id': 1}",
#   which is no JSON. An INT column cuts 1.9 to 1, and a DECIMAL(10,2) rounds. A Row is taken by its names, and a Row
#   within it by place.
# Cost: a source that hands on the bytes of a body, or a document that it has parsed already, fills its table with text
#   that no from_json reads, and the query goes on. Check the types in the reader.
# Seen: bytes for STRING: "b'paid'"
#       dict for STRING: "{'id': 1}"
#       1.9 for INT: 1
#       Decimal 1.019 for DECIMAL(10,2): Decimal('1.02')
#       string for INT: error
#       2**31 for INT: error
#       Row: Row(a=2, b=1)
#       Row within a Row: Row(a=1, b=2)
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check pyspark==4.3.0 pyarrow==21.0.0 pandas==2.2.3
cat > "$place/run.py" <<'PY'
import sys
from decimal import Decimal

from pyspark.sql import Row, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader

CASES = {
    "bytes for STRING": ("v STRING", (b"paid",)),
    "dict for STRING": ("v STRING", ({"id": 1},)),
    "1.9 for INT": ("v INT", (1.9,)),
    "Decimal 1.019 for DECIMAL(10,2)": ("v DECIMAL(10,2)", (Decimal("1.019"),)),
    "string for INT": ("v INT", ("1",)),
    "2**31 for INT": ("v INT", (2**31,)),
    "Row": ("a INT, b INT", Row(b=1, a=2)),
    "Row within a Row": ("v STRUCT<a: INT, b: INT>", Row(v=Row(b=1, a=2))),
}


class Source(DataSource):
    @classmethod
    def name(cls):
        return "source"

    def schema(self):
        return CASES[self.options["case"]][0]

    def reader(self, schema):
        return Reader(CASES[self.options["case"]][1])


class Reader(DataSourceReader):
    def __init__(self, row):
        self.row = row

    def read(self, partition):
        yield self.row


spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .getOrCreate()
)
spark.dataSource.register(Source)


def run(case):
    try:
        row = spark.read.format("source").option("case", case).load().first()
    except Exception:
        return "error"
    return repr(row if len(row) > 1 else row[0])


seen = {case: run(case) for case in CASES}
spark.stop()
with open("seen", "w") as file:
    for case, end in seen.items():
        print(f"{case}: {end}", file=file)
text = ['"b\'paid\'"', '"{\'id\': 1}"']
expected = [*text, "1", "Decimal('1.02')", "error", "error", "Row(a=2, b=1)", "Row(a=1, b=2)"]
sys.exit(list(seen.values()) != expected)
PY
cd "$place"
export PYSPARK_PYTHON="$place/venv/bin/python" PYSPARK_DRIVER_PYTHON="$place/venv/bin/python"
"$place/venv/bin/python" "$place/run.py" >"$place/log" 2>&1 || { cat "$place/seen" || tail -5 "$place/log"; exit 1; }
cat "$place/seen"
