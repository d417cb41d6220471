#!/usr/bin/env bash
# pyspark 4.3.0, TwsTester and transformWithState in Python; needs Java 17
# Bet: TwsTester, which "processes input rows and returns output rows equivalent to those that would be produced by the
#   processor in an actual Spark streaming query", shows what happens to a row that comes after the time of a timer.
# Behaviour: setProcessingTime() is the only way to a later time, and it fires the timers. So each row of the tester
#   comes after the timers whose time is over. In a query it is the other way round: first all rows of the micro-
#   batch, then the timers, although the rows are told the later time. setWatermark() does as setProcessingTime().
# Cost: the order that each timer meets in production, a row of its group in the micro-batch in which it is due, cannot
#   be tested. A processor that closes an auction or a session by a timer refuses a late row in its tests, and takes it
#   in a query; after an outage that is all that came meanwhile. Keep the end in state, and compare it with the time.
# Seen: TwsTester: bid 1 before the end taken, timer, bid 2 after the end refused, bid 3 after the end refused
#       query: bid 1 before the end taken, bid 2 after the end taken, timer, bid 3 after the end refused
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check pyspark==4.3.0 pyarrow==21.0.0 pandas==2.2.3 \
    protobuf==7.36.2
cat > "$place/run.py" <<'PY'
import json
import os
import pathlib
import sys

from pyspark.sql import Row, SparkSession
from pyspark.sql.streaming import StatefulProcessor, TwsTester

MESSAGES = pathlib.Path("messages").resolve()


class Auction(StatefulProcessor):
    """Takes bids until its timer, which the first one sets, and then no more."""

    def init(self, handle):
        self.handle = handle
        self.state = handle.getValueState("state", "end BIGINT, closed BOOLEAN")

    def handleInputRows(self, key, rows, timerValues):
        now = timerValues.getCurrentProcessingTimeInMs()
        if not self.state.exists():
            self.handle.registerTimer(now + 1)
            self.state.update((now + 1, False))
        end, closed = self.state.get()
        for row in rows:
            when = "before" if now < end else "after"
            yield Row(said=f"bid {row.bid} {when} the end {'refused' if closed else 'taken'}")

    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):
        self.state.update((self.state.get()[0], True))
        yield Row(said="timer")

    def close(self):
        pass


def in_tester():
    tester = TwsTester(Auction(), timeMode="ProcessingTime")
    rows = tester.test("7", [Row(bid=1)])
    # There is no other way to a later time.
    rows += tester.setProcessingTime(1000)
    rows += tester.test("7", [Row(bid=2)])
    tester.setProcessingTime(2000)
    return rows + tester.test("7", [Row(bid=3)])


def in_query():
    """Each bid is a file and a micro-batch, and none of them begins in the millisecond of another."""
    MESSAGES.mkdir()
    for bid in (1, 2, 3):
        file = MESSAGES / f"{bid}.json"
        file.write_text(json.dumps({"lot": "7", "bid": bid}))
        # Spark takes them by their age.
        os.utime(file, (1_800_000_000 + bid,) * 2)
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "1")
        # With micro-batches without rows, the query would have no end.
        .config("spark.sql.streaming.noDataMicroBatches.enabled", "false")
        .config(
            "spark.sql.streaming.stateStore.providerClass",
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
        )
        .getOrCreate()
    )
    bids = spark.readStream.schema("lot STRING, bid INT").option("maxFilesPerTrigger", 1).json(str(MESSAGES))
    said = bids.groupBy("lot").transformWithState(Auction(), "said STRING", "Append", "ProcessingTime")
    rows = []
    query = said.writeStream.foreachBatch(lambda frame, batch: rows.extend(frame.collect()))
    query.trigger(availableNow=True).option("checkpointLocation", "checkpoint").start().awaitTermination()
    spark.stop()
    return rows


seen = {where: ", ".join(row.said for row in run()) for where, run in (("TwsTester", in_tester), ("query", in_query))}
with open("seen", "w") as file:
    for where, said in seen.items():
        print(f"{where}: {said}", file=file)
tester = "bid 1 before the end taken, timer, bid 2 after the end refused, bid 3 after the end refused"
query = "bid 1 before the end taken, bid 2 after the end taken, timer, bid 3 after the end refused"
sys.exit(list(seen.values()) != [tester, query])
PY
cd "$place"
export PYSPARK_PYTHON="$place/venv/bin/python" PYSPARK_DRIVER_PYTHON="$place/venv/bin/python"
"$place/venv/bin/python" "$place/run.py" >"$place/log" 2>&1 || { cat "$place/seen" || tail -5 "$place/log"; exit 1; }
cat "$place/seen"
