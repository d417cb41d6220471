#!/usr/bin/env bash
# pyspark[connect] 4.3.0, listeners of streams on Spark Connect; needs Java 17
# Bet: a listener's onQueryProgress runs beside the program: however long it takes, start() of another query is back
#   once the query runs.
# Behaviour: it is so in a classic session. On Connect, one lock of the client is held while a listener is called, and
#   start() calls onQueryStarted under the same lock. The query runs on the server, and start() is not back until every
#   handler at work has ended.
# Cost: a listener that sends figures over a slow network holds back the program that starts queries, which has no
#   query in its hand to stop meanwhile. One whose onQueryTerminated starts the query again, as a watchdog does, waits
#   for itself for ever (not run here). Let a listener put the event into a queue, and do the work in a thread of your
#   own.
# Seen: classic: start() is back while the handler is at work
#       connect: the second query has run 20 micro-batches, start() is not back; the handler ends, start() is back
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
import threading
import time

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming import StreamingQueryListener

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
        yield (1,)


class Listener(StreamingQueryListener):
    """At work with its first report until it is let go."""

    def __init__(self):
        self.is_at_work, self.may_end = threading.Event(), threading.Event()

    def onQueryStarted(self, event):
        pass

    def onQueryProgress(self, event):
        self.is_at_work.set()
        self.may_end.wait(120)

    def onQueryIdle(self, event):
        pass

    def onQueryTerminated(self, event):
        pass


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
listener = Listener()
spark.streams.addListener(listener)


def start(query):
    rows = spark.readStream.format("source").option("query", query).load()
    rows.writeStream.format("noop").option("checkpointLocation", f"checkpoint {mode} {query}").start()


def batches(query):
    file = BATCHES / query
    return int(file.read_text() or 0) if file.exists() else 0


start("first")
assert listener.is_at_work.wait(120)
second = threading.Thread(target=start, args=["second"], daemon=True)
second.start()
wait(lambda: not second.is_alive() or batches("second") >= 20)
if second.is_alive():
    seen = "the second query has run 20 micro-batches, start() is not back"
else:
    seen = "start() is back while the handler is at work"
listener.may_end.set()
if second.is_alive():
    second.join(120)
    seen += "; the handler ends, start() is " + ("not back" if second.is_alive() else "back")
with open("seen", "a") as file:
    print(f"{mode}: {seen}", file=file)
expected = {
    "classic": "start() is back while the handler is at work",
    "connect": "the second query has run 20 micro-batches, start() is not back; the handler ends, start() is back",
}
if mode == "connect":
    server.communicate()
else:
    spark.stop()
# The client's own clean-up would wait for the server.
os._exit(seen != expected[mode])
PY
cd "$place"
export PYSPARK_PYTHON="$place/venv/bin/python" PYSPARK_DRIVER_PYTHON="$place/venv/bin/python"
for mode in classic connect; do
    "$place/venv/bin/python" "$place/run.py" "$mode" >"$place/log" 2>&1 ||
        { cat "$place/seen" || tail -5 "$place/log"; exit 1; }
done
cat "$place/seen"
