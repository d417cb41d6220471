#!/usr/bin/env bash
# pyspark 4.3.0, two streaming queries with one checkpointLocation; needs Java 17
# Bet: start() of a query whose checkpoint is in use by a running query raises, and names the location: a
#   checkpoint belongs to one query. The query that runs goes on.
# Behaviour: within one application it is the other way round. The running query is stopped, as by stop(): its
#   exception() is None, and awaitTermination() returns as after a good end. The new one takes over its id, its
#   offsets and its state, also where it reads another queue, with another query name and another sink. A line at WARN
#   level, with two ids and neither a name nor the place, is all. The second is refused only where
#   `spark.sql.streaming.stopActiveRunOnRestart`, true by default, is set to false.
# Cost: a path that was copied along with the code of a query ends that query, and its queue is no longer read, while
#   what supervises it by exceptions sees a query that is done. The new one begins at an offset of the other queue,
#   and its batch numbers go on, so a sink that knows them takes its rows for news of the other. A loop that starts
#   several queries leaves the last one. Make the path from the queue's name, and set that to false.
# Seen: the query on payments: over, without an exception
#       the query on refunds: active, with the id of the other, begins where the other was
#       with stopActiveRunOnRestart=false: the second is refused, the first is active
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check pyspark==4.3.0
cat > "$place/run.py" <<'PY'
import json
import pathlib
import sys
import time

from pyspark.sql import SparkSession

HOME = pathlib.Path("checkpoints").resolve()
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .getOrCreate()
)


def start(queue, rows, checkpoint):
    """Starts a query on a source of numbers, which stands for a queue: so many new ones in each micro-batch."""
    numbers = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows).load()
    write = numbers.writeStream.queryName(queue).option("checkpointLocation", f"{HOME}/{checkpoint}")
    return write.format("noop").trigger(processingTime="1 second").start()


def batches(query, number):
    """Waits until the query has run so many micro-batches, and returns the reports on them."""
    deadline = time.monotonic() + 300
    while len(seen := query.recentProgress) < number:
        assert query.isActive and time.monotonic() < deadline
        time.sleep(0.2)
    return seen


payments = start("payments", 1, "one")
batches(payments, 3)
refunds = start("refunds", 1000, "one")
begin = json.loads(batches(refunds, 1)[0]["sources"][0]["startOffset"])["offset"]
seen = [
    f"the query on payments: {'active' if payments.isActive else 'over'}, "
    + ("without an exception" if payments.exception() is None else "with an exception"),
    f"the query on refunds: {'active' if refunds.isActive else 'over'}, "
    + f"with {'the id of the other' if refunds.id == payments.id else 'an id of its own'}, "
    + f"begins {'where the other was' if 3 <= begin < 1000 else f'at {begin}'}",
]
refunds.stop()
spark.conf.set("spark.sql.streaming.stopActiveRunOnRestart", False)
payments = start("payments", 1, "two")
batches(payments, 1)
try:
    start("refunds", 1000, "two")
    second = "the second runs"
except Exception as error:
    assert "already active" in str(error), error
    second = "the second is refused"
first = "active" if payments.isActive else "over"
seen.append(f"with stopActiveRunOnRestart=false: {second}, the first is {first}")
payments.stop()
spark.stop()
with open("seen", "w") as file:
    print(*seen, sep="\n", file=file)
expected = [
    "the query on payments: over, without an exception",
    "the query on refunds: active, with the id of the other, begins where the other was",
    "with stopActiveRunOnRestart=false: the second is refused, the first is active",
]
sys.exit(seen != expected)
PY
cd "$place"
export PYSPARK_PYTHON="$place/venv/bin/python" PYSPARK_DRIVER_PYTHON="$place/venv/bin/python"
"$place/venv/bin/python" "$place/run.py" >"$place/log" 2>&1 || { cat "$place/seen" || tail -5 "$place/log"; exit 1; }
cat "$place/seen"
