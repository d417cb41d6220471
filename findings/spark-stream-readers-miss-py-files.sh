#!/usr/bin/env bash
# pyspark[connect] 4.3.0, addPyFile and addArtifacts with Python data sources; needs Java 17
# Bet: a module that was handed to addPyFile, or on Connect to addArtifacts(pyfile=True), is there for all Python that
#   Spark runs for the session: a data source in it reads and writes, in batches and in streams.
# Behaviour: the process that makes the schema, the tasks, the readers of a batch and the writers of a stream have it.
#   The process of a stream reader has not: load() works, and the query fails when it starts. A module in the directory
#   where the driver was started is found, for that directory is on the path of that process.
# Cost: a source that was tried in a batch, or from the directory of its module, fails once the job is started from
#   elsewhere, and on Connect always, for there the directory is the server's. Install it where the driver runs, or have
#   its module pickled by value, as here.
# Seen: classic: read a batch: works; write a stream: works; read a stream: ModuleNotFoundError: No module named
#         'queue_source'; read a stream, pickled by value: works
#       connect: the same
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check "pyspark[connect]==4.3.0" grpcio==1.85.3 \
    grpcio-status==1.85.3 pyarrow==21.0.0 pandas==2.2.3
mkdir "$place/client" "$place/server"
cat > "$place/server/server.py" <<'PY'
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
cat > "$place/client/queue_source.py" <<'PY'
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    InputPartition,
    WriterCommitMessage,
)


class Source(DataSource):
    @classmethod
    def name(cls):
        return "source"

    def schema(self):
        return "x INT"

    def reader(self, schema):
        return Reader()

    def streamReader(self, schema):
        return StreamReader()

    def streamWriter(self, schema, overwrite):
        return StreamWriter()


class Reader(DataSourceReader):
    def read(self, partition):
        yield (1,)


class StreamReader(DataSourceStreamReader):
    def initialOffset(self):
        return {"at": 0}

    def latestOffset(self):
        return {"at": 1}

    def partitions(self, start, end):
        return [InputPartition(0)]

    def read(self, partition):
        yield (1,)


class StreamWriter(DataSourceStreamWriter):
    def write(self, rows):
        list(rows)
        return WriterCommitMessage()

    def commit(self, messages, batch):
        pass

    def abort(self, messages, batch):
        pass
PY
cat > "$place/client/run.py" <<'PY'
import os
import pathlib
import re
import socket
import subprocess
import sys
import time

import queue_source
from pyspark import cloudpickle
from pyspark.sql import SparkSession

mode = sys.argv[1]
SERVER, MODULE = pathlib.Path("server"), "client/queue_source.py"
if mode == "connect":
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen([sys.executable, "server.py", str(port)], stdin=subprocess.PIPE, cwd=SERVER)
    deadline = time.monotonic() + 120
    while not (SERVER / "ready").exists():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    spark = SparkSession.builder.remote(f"sc://127.0.0.1:{port}").create()
    spark.addArtifacts(MODULE, pyfile=True)
else:
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    spark.sparkContext.addPyFile(MODULE)


def read_batch():
    assert spark.read.format("source").load().count() == 1


def run(case, rows, sink):
    checkpoint = pathlib.Path(f"checkpoint {mode} {case}").resolve()
    query = rows.writeStream.format(sink).option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    assert query.start().awaitTermination(60)


def write_stream():
    run("write", spark.readStream.format("rate").load().selectExpr("cast(value AS INT) AS x"), "source")


def read_stream(case="read"):
    run(case, spark.readStream.format("source").load(), "noop")


def outcome(call, *args):
    try:
        call(*args)
    except Exception as error:
        return re.search(r"ModuleNotFoundError: No module named '\w+'|$", str(error)).group() or "another error"
    return "works"


spark.dataSource.register(queue_source.Source)
results = [outcome(read_batch), outcome(write_stream), outcome(read_stream)]
cloudpickle.register_pickle_by_value(queue_source)
spark.dataSource.register(queue_source.Source)
results.append(outcome(read_stream, "by value"))
with open("seen", "a") as file:
    cases = ("read a batch", "write a stream", "read a stream", "read a stream, pickled by value")
    print(f"{mode}:", "; ".join(f"{case}: {result}" for case, result in zip(cases, results)), file=file)
if mode == "connect":
    server.communicate()
else:
    spark.stop()
# The client's own clean-up would wait for the server.
os._exit(results != ["works", "works", "ModuleNotFoundError: No module named 'queue_source'", "works"])
PY
cd "$place"
export PYSPARK_PYTHON="$place/venv/bin/python" PYSPARK_DRIVER_PYTHON="$place/venv/bin/python"
for mode in classic connect; do
    "$place/venv/bin/python" client/run.py "$mode" >"$place/log" 2>&1 ||
        { cat "$place/seen" || tail -5 "$place/log"; exit 1; }
done
cat "$place/seen"
