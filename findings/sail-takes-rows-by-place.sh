#!/usr/bin/env bash
# pysail 0.7.2 (Sail, an engine for Spark's API), rows of a Python data source; compared with Spark 4.2.0; needs Java 17
# Bet: a Row that read() yields goes to the columns by its names, as on Spark. One whose names are not those of the
#   schema, and a tuple with a value too many, are refused.
# Behaviour: Sail takes what read() yields as a tuple, whatever its names. The values go to the columns by place: where
#   the types agree, two columns are exchanged. Other names are taken as well, and a value too many is dropped. Nothing
#   is raised.
# Cost: a source that yields Row(message_group_id=..., body=...) under a schema with the body first gives each message
#   the group for its body, and the body for its group, in a job that ran well on Spark. What is sent on to a FIFO queue
#   then has one group for each body: no order at all. Yield tuples in the order of the schema.
# Seen: Spark, tuple: paid, account-7
#       Spark, Row in the order of the schema: paid, account-7
#       Spark, Row in another order: paid, account-7
#       Spark, Row of other names: error
#       Spark, tuple with a value too many: error
#       Sail, tuple: paid, account-7
#       Sail, Row in the order of the schema: paid, account-7
#       Sail, Row in another order: account-7, paid
#       Sail, Row of other names: account-7, paid
#       Sail, tuple with a value too many: paid, account-7
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check pysail==0.7.2 "pyspark[connect]==4.2.0" \
    grpcio==1.85.3 grpcio-status==1.85.3 pyarrow==21.0.0 pandas==2.2.3
cat > "$place/run.py" <<'PY'
import os
import sys

from pyspark.sql import Row, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader

engine = sys.argv[1]
YIELDS = {
    "tuple": ("paid", "account-7"),
    "Row in the order of the schema": Row(body="paid", message_group_id="account-7"),
    "Row in another order": Row(message_group_id="account-7", body="paid"),
    "Row of other names": Row(group="account-7", text="paid"),
    "tuple with a value too many": ("paid", "account-7", "1"),
}


class Source(DataSource):
    @classmethod
    def name(cls):
        return "source"

    def schema(self):
        return "body STRING, message_group_id STRING"

    def reader(self, schema):
        return Reader(self.options["row"])


class Reader(DataSourceReader):
    def __init__(self, row):
        self.row = row

    def read(self, partition):
        yield YIELDS[self.row]


if engine == "Sail":
    from pysail.spark import SparkConnectServer

    server = SparkConnectServer("127.0.0.1", 0)
    server.start(background=True)
    spark = SparkSession.builder.remote(f"sc://127.0.0.1:{server.listening_address[1]}").create()
else:
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
spark.dataSource.register(Source)
ends = []
for row in YIELDS:
    try:
        message = spark.read.format("source").option("row", row).load().first()
        ends.append(f"{message.body}, {message.message_group_id}")
    except Exception:
        ends.append("error")
    with open("seen", "a") as file:
        print(f"{engine}, {row}: {ends[-1]}", file=file)
right, exchanged = "paid, account-7", "account-7, paid"
expected = {
    "Spark": [right, right, right, "error", "error"],
    "Sail": [right, right, exchanged, exchanged, right],
}
if engine == "Spark":
    spark.stop()
# Sail's server would keep the process.
os._exit(ends != expected[engine])
PY
cd "$place"
export PYSPARK_PYTHON="$place/venv/bin/python" PYSPARK_DRIVER_PYTHON="$place/venv/bin/python"
for engine in Spark Sail; do
    "$place/venv/bin/python" "$place/run.py" "$engine" >"$place/log" 2>&1 ||
        { cat "$place/seen" || tail -5 "$place/log"; exit 1; }
done
cat "$place/seen"
