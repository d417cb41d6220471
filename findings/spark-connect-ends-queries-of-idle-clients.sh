#!/usr/bin/env bash
# pyspark[connect] 4.3.0, streams on Spark Connect; needs Java 17
# Bet: a session with a running query is not idle, so the query goes on when its client makes no call for long, or has
#   ended without stop(): the server runs it, not the client.
# Behaviour: only calls of the client count. One hour after the last one
#   (`spark.connect.session.manager.defaultSessionTimeout`, 30 seconds here) the server closes the session and stops
#   each of its queries, amid a micro-batch or not, also one with foreachBatch, whose Python process calls the server
#   all the time.
# Cost: a script that starts a query and ends, a notebook left open overnight, a service that waits for a signal: the
#   queue is no longer read an hour later. No query has failed: the server says so at the level INFO, and whoever asks
#   is told of a closed session. Let a client stay in awaitTermination(), or ask for isActive now and then.
# Seen: a client that asks each second: active
#       a client that does not ask: its source is gone, INVALID_HANDLE.SESSION_CLOSED
#       the same with foreachBatch: its source is gone, INVALID_HANDLE.SESSION_CLOSED
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
    .config("spark.connect.session.manager.defaultSessionTimeout", "30s")
    .config("spark.connect.session.manager.maintenanceInterval", "1s")
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
import re
import socket
import subprocess
import sys
import time

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

# Beside each source's name, the id of its process on the server.
PROCESSES = pathlib.Path("processes").resolve()


class Source(DataSource):
    @classmethod
    def name(cls):
        return "source"

    def schema(self):
        return "x INT"

    def streamReader(self, schema):
        return Reader(self.options["client"])


class Reader(DataSourceStreamReader):
    def __init__(self, client):
        self.client = client
        self.at = 0

    def initialOffset(self):
        return {"at": 0}

    def latestOffset(self):
        (PROCESSES / self.client).write_text(str(os.getpid()))
        self.at += 1
        return {"at": self.at}

    def partitions(self, start, end):
        return [InputPartition(0)]

    def read(self, partition):
        yield (1,)


PROCESSES.mkdir()
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
server = subprocess.Popen([sys.executable, "server.py", str(port)], stdin=subprocess.PIPE)
deadline = time.monotonic() + 120
while not pathlib.Path("ready").exists():
    assert time.monotonic() < deadline
    time.sleep(0.1)


def start(client):
    session = SparkSession.builder.remote(f"sc://127.0.0.1:{port}").create()
    session.dataSource.register(Source)
    rows = session.readStream.format("source").option("client", client).load()
    write = rows.writeStream.trigger(processingTime="1 second").option("checkpointLocation", f"checkpoint {client}")
    if client == "function":
        return write.foreachBatch(lambda rows, batch: rows.count()).start()
    return write.format("noop").start()


def runs(client):
    return pathlib.Path("/proc", (PROCESSES / client).read_text()).exists()


def state(query):
    try:
        return "active" if query.isActive else "ended"
    except Exception as error:
        return "its source is gone, " + re.search(r"\[([A-Z_.]+)\]", str(error)).group(1)


silent, function, asking = start("silent"), start("function"), start("asking")
deadline = time.monotonic() + 180
while len(list(PROCESSES.iterdir())) < 3 or runs("silent") or runs("function"):
    assert time.monotonic() < deadline
    assert asking.isActive
    time.sleep(0.5)
seen = {
    "a client that asks each second": state(asking),
    "a client that does not ask": state(silent),
    "the same with foreachBatch": state(function),
}
with open("seen", "w") as file:
    for what, said in seen.items():
        print(f"{what}: {said}", file=file)
asking.stop()
server.communicate()
gone = "its source is gone, INVALID_HANDLE.SESSION_CLOSED"
# The clients' own clean-up would wait for the server.
os._exit(list(seen.values()) != ["active", gone, gone])
PY
cd "$place"
export PYSPARK_PYTHON="$place/venv/bin/python" PYSPARK_DRIVER_PYTHON="$place/venv/bin/python"
"$place/venv/bin/python" "$place/run.py" >"$place/log" 2>&1 || { cat "$place/seen" || tail -5 "$place/log"; exit 1; }
cat "$place/seen"
