#!/usr/bin/env bash
# pyspark[connect] 4.3.0, foreachBatch and stop(); needs Java 17
# Bet: awaitTermination(timeout) tells "whether the query has terminated or not", so once it is True, or isActive is
#   False, no function of foreachBatch is at work. stop() does the same in a classic session and on Connect.
# Behaviour: both answers change as soon as another thread has called stop(). In a classic session the function works
#   on; stop() and awaitTermination() without a timeout wait for its end, and awaitTermination(1) is True after a
#   second. On Connect nothing waits: stop() kills the process of the function, amid whatever it does.
# Cost: a main thread that loops over awaitTermination(1), to look after other things, leaves the loop when a thread
#   that serves "shut down" calls stop(): it closes connections, or gives up a lease, under a function that still
#   writes. With the same code on Connect, half a batch is written, and no `finally` runs. Wait for stop() itself, and
#   let the function stand being cut anywhere.
# Seen: classic: stop() waits, awaitTermination() waits, awaitTermination(1) is True, isActive is False, the function is
#         at work; let go, it ends
#       connect: stop() is back, awaitTermination() is back, awaitTermination(1) is True, isActive is False, the
#         function is gone with its process; let go, it has not ended
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

mode = sys.argv[1]
# Marks of the function, which on Connect runs in another process: at work, leave to end, ended.
AT_WORK, MAY_END, ENDED = (pathlib.Path(f"{mark} {mode}").resolve() for mark in ("at work", "may end", "ended"))


def wait(condition, seconds=120):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def function(frame, batch):
    part = AT_WORK.with_suffix(".part")
    part.write_text(str(os.getpid()))
    part.rename(AT_WORK)
    deadline = time.monotonic() + 120
    try:
        while not MAY_END.exists() and time.monotonic() < deadline:
            time.sleep(0.1)
    finally:
        ENDED.touch()


def is_back(call):
    """Five seconds for a call in a thread of its own."""
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(5)
    return "is back" if not thread.is_alive() else "waits"


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


if mode == "connect":
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen([sys.executable, "server.py", str(port)], stdin=subprocess.PIPE)
    assert wait(pathlib.Path("ready").exists)
    spark = SparkSession.builder.remote(f"sc://127.0.0.1:{port}").create()
else:
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
rows = spark.readStream.format("rate").load()
query = rows.writeStream.foreachBatch(function).option("checkpointLocation", f"checkpoint {mode}").start()
assert wait(AT_WORK.exists)
stop = is_back(query.stop)
plain = is_back(query.awaitTermination)
answer = query.awaitTermination(1)
seen = f"stop() {stop}, awaitTermination() {plain}, awaitTermination(1) is {answer}, isActive is {query.isActive}"
seen += f", the function {'is at work' if is_alive(int(AT_WORK.read_text())) else 'is gone with its process'}"
assert not ENDED.exists()
MAY_END.touch()
seen += f"; let go, it {'ends' if wait(ENDED.exists, 20) else 'has not ended'}"
with open("seen", "a") as file:
    print(f"{mode}: {seen}", file=file)
expected = {
    "classic": "stop() waits, awaitTermination() waits, awaitTermination(1) is True, isActive is False, "
    "the function is at work; let go, it ends",
    "connect": "stop() is back, awaitTermination() is back, awaitTermination(1) is True, isActive is False, "
    "the function is gone with its process; let go, it has not ended",
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
