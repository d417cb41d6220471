#!/usr/bin/env bash
# pyspark[connect] 4.3.0, interruptAll() and interruptTag(); needs Java 17
# Bet: interruptAll() ends what the session computes for its client now ("all operations of this session currently
#   running"), and a streaming query, which start() has handed to the server, goes on; or its micro-batch fails. Classic
#   and Connect do the same: it is one method, with one docstring.
# Behaviour: in a classic session queries go on. On Connect each query of the session is stopped, as by stop():
#   its exception() is None (wanted so by apache/spark pull request 46819, and in no docstring). interruptTag() stops
#   those that were started under the tag, even where it was removed since.
# Cost: a program that cancels a report that takes too long, or the button "interrupt" of a tool, silently ends the
#   queries as well. Nothing has failed, no restart is due, and the queue is no longer read. Use interruptOperation(),
#   or a session of its own for what may be interrupted.
# Seen: classic: interruptAll(): the query goes on, interruptTag(): the query goes on
#       connect: interruptAll(): the query is over, without an exception, interruptTag(): the query is over, without an
#         exception
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check "pyspark[connect]==4.3.0" grpcio==1.85.3 \
    grpcio-status==1.85.3 pyarrow==21.0.0 pandas==2.2.3
cat > "$place/server.py" <<'PY'
import pathlib
import sys

from pyspark.sql import SparkSession

spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.plugins", "org.apache.spark.sql.connect.SparkConnectPlugin")
    .config("spark.connect.grpc.binding.address", "127.0.0.1")
    .config("spark.connect.grpc.binding.port", sys.argv[1])
    .config("spark.ui.enabled", "false")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .getOrCreate()
)
pathlib.Path("ready").touch()
sys.stdin.read()
spark.stop()
PY
cat > "$place/run.py" <<'PY'
import os
import pathlib
import socket
import subprocess
import sys
import time

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

mode = sys.argv[1]
# How many micro-batches each query has planned.
BATCHES = pathlib.Path(f"batches {mode}").resolve()
BATCHES.mkdir()


def wait(condition):
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


class Source(DataSource):
    @classmethod
    def name(cls):
        return "source"

    def schema(self):
        return "x INT"

    def streamReader(self, schema):
        return Reader(self.options["query"])


class Reader(DataSourceStreamReader):
    def __init__(self, query):
        self.query = query
        self.at = 0

    def initialOffset(self):
        return {"at": 0}

    def latestOffset(self):
        self.at += 1
        return {"at": self.at}

    def partitions(self, start, end):
        (BATCHES / self.query).write_text(str(end["at"]))
        return [InputPartition(0)]

    def read(self, partition):
        # Nearly always a task is at work.
        time.sleep(0.5)
        yield (1,)


if mode == "connect":
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen([sys.executable, "server.py", str(port)], stdin=subprocess.PIPE)
    wait(pathlib.Path("ready").exists)
    spark = SparkSession.builder.remote(f"sc://127.0.0.1:{port}").create()
else:
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
spark.dataSource.register(Source)


def start(name):
    rows = spark.readStream.format("source").option("query", name).load()
    query = rows.writeStream.format("noop").option("checkpointLocation", f"checkpoint {mode} {name}").start()
    wait(lambda: batches(name) > 2)
    return query


def batches(name):
    file = BATCHES / name
    return int(file.read_text() or 0) if file.exists() else 0


def state(query, name):
    """Waits until the query has ended, or has run five more micro-batches."""
    now = batches(name)
    wait(lambda: not query.isActive or batches(name) > now + 5)
    if query.isActive:
        query.stop()
        return "goes on"
    return "is over, without an exception" if query.exception() is None else "has failed"


query = start("all")
spark.interruptAll()
seen = [f"interruptAll(): the query {state(query, 'all')}"]
spark.addTag("report")
query = start("tag")
spark.clearTags()
spark.interruptTag("report")
seen.append(f"interruptTag(): the query {state(query, 'tag')}")
with open("seen", "a") as file:
    print(f"{mode}: {', '.join(seen)}", file=file)
if mode == "connect":
    server.communicate()
else:
    spark.stop()
end = {"classic": "goes on", "connect": "is over, without an exception"}[mode]
# The client's own clean-up would wait for the server.
os._exit(seen != [f"{call}(): the query {end}" for call in ("interruptAll", "interruptTag")])
PY
cd "$place"
export PYSPARK_PYTHON="$place/venv/bin/python" PYSPARK_DRIVER_PYTHON="$place/venv/bin/python"
for mode in classic connect; do
    "$place/venv/bin/python" "$place/run.py" "$mode" >"$place/log" 2>&1 ||
        { cat "$place/seen" || tail -5 "$place/log"; exit 1; }
done
cat "$place/seen"
