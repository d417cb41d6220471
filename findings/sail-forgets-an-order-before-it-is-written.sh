#!/usr/bin/env bash
# pysail 0.7.2 (Sail, an engine for Spark's API), compared with Spark 4.2.0; needs Java 17 (a change for CREATE TABLE AS
#   SELECT is proposed in lakehq/sail pull request 1862)
# Bet: rows that are sorted and then written reach the sink in that order, as on Spark, be it within one
#   partition only.
# Behaviour: collect() and JSON files have the order, unless coalesce(1) stands after orderBy. A Python data source,
#   foreachPartition and mapInArrow see the rows as they were before orderBy or sortWithinPartitions: there is no sort
#   at all, and nothing says so. A limit after the sort, however high, brings the order back.
# Cost: a job that sorts by sequence number and sends to a FIFO queue, or writes a log whose last line wins, gives
#   another order than on Spark, and a test that looks with collect() is green. Sort in the function that gets the rows.
# Seen: Spark, collect: in order
#       Spark, JSON: in order
#       Spark, JSON after coalesce(1): in order
#       Spark, Python data source: in order
#       Spark, Python data source after sortWithinPartitions: in order
#       Spark, foreachPartition: in order
#       Spark, mapInArrow: in order
#       Spark, Python data source after a limit: in order
#       Sail, collect: in order
#       Sail, JSON: in order
#       Sail, JSON after coalesce(1): as before the sort
#       Sail, Python data source: as before the sort
#       Sail, Python data source after sortWithinPartitions: as before the sort
#       Sail, foreachPartition: as before the sort
#       Sail, mapInArrow: as before the sort
#       Sail, Python data source after a limit: in order
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check pysail==0.7.2 "pyspark[connect]==4.2.0" \
    grpcio==1.85.3 grpcio-status==1.85.3 pyarrow==21.0.0 pandas==2.2.3
cat > "$place/run.py" <<'PY'
import json
import os
import pathlib
import sys
import time

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceWriter, WriterCommitMessage

engine = sys.argv[1]
# The numbers that a function or a sink has seen, one a line.
SEEN = pathlib.Path(f"numbers {engine}").resolve()
BEFORE = [5, 3, 9, 1, 7, 2, 8]


def see(numbers):
    with SEEN.open("a") as file:
        for number in numbers:
            print(number, file=file)


class Sink(DataSource):
    @classmethod
    def name(cls):
        return "sink"

    def writer(self, schema, overwrite):
        return Writer()


class Writer(DataSourceWriter):
    def write(self, rows):
        see(row.number for row in rows)
        return WriterCommitMessage()


def mapped(batches):
    for batch in batches:
        see(batch.column(0).to_pylist())
        yield batch


def json_files(rows):
    folder = f"json {engine} {time.monotonic_ns()}"
    rows.write.json(folder)
    for file in sorted(pathlib.Path(folder).glob("*.json")):
        see(json.loads(line)["number"] for line in file.read_text().splitlines())


def sink(rows):
    rows.write.format("sink").mode("append").save()


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
spark.dataSource.register(Sink)
rows = spark.createDataFrame([(number,) for number in BEFORE], "number INT").coalesce(1)
ordered = rows.orderBy("number")
ACTIONS = {
    "collect": lambda: see(row.number for row in ordered.collect()),
    "JSON": lambda: json_files(ordered),
    "JSON after coalesce(1)": lambda: json_files(ordered.coalesce(1)),
    "Python data source": lambda: sink(ordered),
    "Python data source after sortWithinPartitions": lambda: sink(rows.sortWithinPartitions("number")),
    "foreachPartition": lambda: ordered.foreachPartition(lambda rows: see(row.number for row in rows)),
    "mapInArrow": lambda: ordered.mapInArrow(mapped, "number INT").collect(),
    "Python data source after a limit": lambda: sink(ordered.limit(2**31 - 1)),
}
ends = []
for action, act in ACTIONS.items():
    SEEN.unlink(missing_ok=True)
    act()
    seen = [int(line) for line in SEEN.read_text().split()]
    ends.append({str(sorted(BEFORE)): "in order", str(BEFORE): "as before the sort"}.get(str(seen), str(seen)))
    with open("seen", "a") as file:
        print(f"{engine}, {action}: {ends[-1]}", file=file)
before = {
    "JSON after coalesce(1)",
    "Python data source",
    "Python data source after sortWithinPartitions",
    "foreachPartition",
    "mapInArrow",
}
expected = ["as before the sort" if engine == "Sail" and action in before else "in order" for action in ACTIONS]
if engine == "Spark":
    spark.stop()
# Sail's server would keep the process.
os._exit(ends != expected)
PY
cd "$place"
export PYSPARK_PYTHON="$place/venv/bin/python" PYSPARK_DRIVER_PYTHON="$place/venv/bin/python"
for engine in Spark Sail; do
    "$place/venv/bin/python" "$place/run.py" "$engine" >"$place/log" 2>&1 ||
        { cat "$place/seen" || tail -5 "$place/log"; exit 1; }
done
cat "$place/seen"
