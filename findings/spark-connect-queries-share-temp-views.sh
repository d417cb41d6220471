#!/usr/bin/env bash
# pyspark[connect] 4.0.0, foreachBatch on Spark Connect; needs Java 17
# Bet: a temporary view that a function of foreachBatch makes of its micro-batch is seen through rows.sparkSession by
#   its own query alone: that is a session of the query's own, made at its start, and the documented way to run a MERGE.
# Behaviour: so it is in a classic session. On Connect all queries that a client has started share its session, and the
#   view is the one that was made last, by whichever of them. 4.3.0 has, by its source, a session for each query there.
# Cost: two queries whose functions both say createOrReplaceTempView("updates") write each other's rows now and then,
#   when their micro-batches meet: one table has rows of the other's queue, and its own are lost, for the micro-batch is
#   committed. No error shows where the columns are alike. Put the query's name into that of the view.
# Seen: a reads the row of a, b reads the row of a
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check "pyspark[connect]==4.0.0" grpcio==1.67.0 \
    grpcio-status==1.67.0 pyarrow==21.0.0 pandas==2.2.3
cat > "$place/server.py" <<'PY'
import pathlib
import sys

from pyspark.sql import SparkSession

spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.plugins", "org.apache.spark.sql.connect.SparkConnectPlugin")
    .config("spark.connect.grpc.binding.address", "127.0.0.1")
    .config("spark.connect.grpc.binding.port", sys.argv[1])
    # A busy machine takes long to start the processes of the functions.
    .config("spark.python.authenticate.socketTimeout", "300s")
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
import json
import os
import pathlib
import socket
import subprocess
import sys
import time

from pyspark.sql import SparkSession

HOME = str(pathlib.Path("home").resolve())


def wait_for(file):
    deadline = time.monotonic() + 300
    while not os.path.exists(file):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def start(queue, home):
    """Starts a query whose function does as documented for MERGE: a view of the micro-batch, then SQL on the view."""

    def write(rows, batch):
        import pathlib

        if queue == "a":
            wait(f"{home}/view of b")
        rows.createOrReplaceTempView("updates")
        pathlib.Path(f"{home}/view of {queue}").touch()
        if queue == "b":
            wait(f"{home}/view of a")
        body = rows.sparkSession.sql("SELECT body FROM updates").first().body
        pathlib.Path(f"{home}/rows of {queue}").write_text(body)

    # By value: on Connect the function runs in another process.
    wait = wait_for
    os.makedirs(f"{home}/{queue}")
    pathlib.Path(f"{home}/{queue}/0.json").write_text(json.dumps({"body": f"row of {queue}"}))
    rows = spark.readStream.schema("body STRING").json(f"{home}/{queue}")
    query = rows.writeStream.foreachBatch(write).trigger(availableNow=True)
    return query.option("checkpointLocation", f"{home}/checkpoint {queue}").start()


with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
server = subprocess.Popen([sys.executable, "server.py", str(port)], stdin=subprocess.PIPE)
wait_for("ready")
spark = SparkSession.builder.remote(f"sc://127.0.0.1:{port}").create()
for query in [start(queue, HOME) for queue in "ab"]:
    query.awaitTermination()
read = [pathlib.Path(f"{HOME}/rows of {queue}").read_text() for queue in "ab"]
with open("seen", "w") as file:
    print(f"a reads the {read[0]}, b reads the {read[1]}", file=file)
server.communicate()
# The client's own clean-up would wait for the server.
os._exit(read != ["row of a", "row of a"])
PY
cd "$place"
export PYSPARK_PYTHON="$place/venv/bin/python" PYSPARK_DRIVER_PYTHON="$place/venv/bin/python"
"$place/venv/bin/python" "$place/run.py" >"$place/log" 2>&1 || { cat "$place/seen" || tail -5 "$place/log"; exit 1; }
cat "$place/seen"
