#!/usr/bin/env bash
# pyspark 4.3.0, Python Data Source API; needs Java 17
# Bet: the OPTIONS of a table that was created on a Python data source reach its reader, as those of a DataFrameReader do.
# Behaviour: they reach `schema()` while the table is created, beside keys that Spark adds, and nobody after that: when
#   the table is read, the data source is built with no options at all, although its columns came from its own schema.
# Seen: schema: option.topic owner provider topic
#       reader: nothing
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check pyspark==4.3.0 pyarrow==21.0.0 pandas==2.2.3
cat > "$place/run.py" <<'PY'
import os

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader

SEEN = os.environ["SEEN"]


class Probe(DataSource):
    @classmethod
    def name(cls):
        return "probe"

    def note(self, who):
        keys = " ".join(sorted(self.options)) or "nothing"
        with open(SEEN, "a") as seen:
            seen.write(f"{who}: {keys}\n")

    def schema(self):
        self.note("schema")
        return "x INT"

    def reader(self, schema):
        self.note("reader")
        return Reader()


class Reader(DataSourceReader):
    def read(self, partition):
        yield (1,)


spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .getOrCreate()
)
spark.dataSource.register(Probe)
spark.sql("CREATE TABLE t USING probe OPTIONS (topic 'a')")
assert spark.table("t").count() == 1
spark.stop()
PY
cd "$place"
export SEEN="$place/seen" PYSPARK_PYTHON="$place/venv/bin/python" PYSPARK_DRIVER_PYTHON="$place/venv/bin/python"
"$place/venv/bin/python" "$place/run.py" >"$place/log" 2>&1 || { tail -5 "$place/log"; exit 1; }
sort -u "$place/seen"
grep -qx "schema: option.topic owner provider topic" "$place/seen"
test "$(grep "^reader" "$place/seen" | sort -u)" = "reader: nothing"
