#!/usr/bin/env bash
# pyspark 4.3.0 and 4.1.1, Python Data Source API; needs Java 17
# Bet: a RecordBatch with the names and types of the schema is taken, whatever its fields say of nulls: there is none in
#   it. pyarrow makes fields that may be null unless it is told otherwise.
# Behaviour: 4.3 refuses it for a NOT NULL column, and one whose field is not null for a column that may be null. Tuples
#   are taken by both columns. 4.1 takes them all.
# Cost: a source with a NOT NULL column, such as a key, that makes its batches with pyarrow.table() or from_pydict() works
#   until Spark is upgraded; every read fails then.
# Seen: 4.3.0: NOT NULL refused, NOT NULL from a not null field taken, nullable from a not null field refused
#       4.1.1: NOT NULL taken, NOT NULL from a not null field taken, nullable from a not null field taken
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cat > "$place/run.py" <<'PY'
import pyarrow as pa
import pyspark
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader


class Source(DataSource):
    @classmethod
    def name(cls):
        return "source"

    def schema(self):
        return self.options["columns"]

    def reader(self, schema):
        return Reader(self.options["nulls"] == "yes")


class Reader(DataSourceReader):
    def __init__(self, may_be_null):
        self.may_be_null = may_be_null

    def read(self, partition):
        schema = pa.schema([pa.field("x", pa.int32(), self.may_be_null)])
        yield pa.RecordBatch.from_pydict({"x": [1]}, schema=schema)


spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .getOrCreate()
)
spark.dataSource.register(Source)


def fate(columns, nulls):
    try:
        rows = spark.read.format("source").options(columns=columns, nulls=nulls).load().collect()
    except Exception as error:
        assert "DATA_SOURCE_RETURN_SCHEMA_MISMATCH" in str(error), error
        return "refused"
    assert [row.x for row in rows] == [1]
    return "taken"


seen = (
    f"{pyspark.__version__}: NOT NULL {fate('x INT NOT NULL', 'yes')}, "
    f"NOT NULL from a not null field {fate('x INT NOT NULL', 'no')}, "
    f"nullable from a not null field {fate('x INT', 'no')}"
)
spark.stop()
with open("seen", "a") as file:
    print(seen, file=file)
PY
cd "$place"
for version in 4.3.0 4.1.1; do
    python3 -m venv --clear "$place/venv"
    "$place/venv/bin/pip" install --quiet --disable-pip-version-check pyspark==$version pyarrow==21.0.0 pandas==2.2.3
    export PYSPARK_PYTHON="$place/venv/bin/python" PYSPARK_DRIVER_PYTHON="$place/venv/bin/python"
    "$place/venv/bin/python" "$place/run.py" >"$place/log" 2>&1 || { tail -5 "$place/log"; exit 1; }
done
cat "$place/seen"
diff - "$place/seen" <<'SEEN'
4.3.0: NOT NULL refused, NOT NULL from a not null field taken, nullable from a not null field refused
4.1.1: NOT NULL taken, NOT NULL from a not null field taken, nullable from a not null field taken
SEEN
