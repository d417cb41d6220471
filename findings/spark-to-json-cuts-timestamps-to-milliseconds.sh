#!/usr/bin/env bash
# pyspark 4.3.0, to_json; needs Java 17
# Bet: to_json writes a timestamp with the microseconds that it has, as a cast to STRING does, and from_json gives the
#   same timestamp back.
# Behaviour: to_json cuts it to milliseconds, without a word. from_json and a cast read all six digits. The pattern is the
#   default of the option timestampFormat, "[.SSS]"; with "[.SSSSSS]" they are kept.
# Cost: two payments of one customer that differ by some microseconds have the same body. A FIFO queue that deduplicates
#   by content drops the second, and a reader that sorts by the time loses their order. Give to_json a timestampFormat.
# Seen: cast: 2026-11-28 10:00:00.123456
#       to_json: {"at":"2026-11-28T10:00:00.123Z"}
#       from_json of to_json is the same: False
#       from_json of six digits is the same: True
#       bodies of two timestamps: 1
#       bodies of two timestamps, timestampFormat set: 2
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check pyspark==4.3.0
cat > "$place/run.py" <<'PY'
import sys

from pyspark.sql import SparkSession
from pyspark.sql.functions import from_json, lit, struct, to_json

FORMAT = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS][XXX]"}
spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.sql.session.timeZone", "UTC")
    .getOrCreate()
)
times = spark.sql("SELECT timestamp_micros(1795860000123456 + id) at FROM range(2)")
rows = times.withColumn("body", to_json(struct("at"))).select(
    times.at.cast("STRING"),
    "body",
    from_json("body", "at TIMESTAMP")["at"] == times.at,
    from_json(lit('{"at":"2026-11-28T10:00:00.123456Z"}'), "at TIMESTAMP")["at"] == times.at,
    to_json(struct("at"), FORMAT),
)
rows = [tuple(row) for row in rows.collect()]
spark.stop()
cast, body, back, read, _ = rows[0]
bodies, bodies_in_format = len({row[1] for row in rows}), len({row[4] for row in rows})
with open("seen", "w") as seen:
    print("cast:", cast, file=seen)
    print("to_json:", body, file=seen)
    print("from_json of to_json is the same:", back, file=seen)
    print("from_json of six digits is the same:", read, file=seen)
    print("bodies of two timestamps:", bodies, file=seen)
    print("bodies of two timestamps, timestampFormat set:", bodies_in_format, file=seen)
cut = '{"at":"2026-11-28T10:00:00.123Z"}'
expected = ("2026-11-28 10:00:00.123456", cut, False, True, 1, 2)
sys.exit((cast, body, back, read, bodies, bodies_in_format) != expected)
PY
cd "$place"
export PYSPARK_PYTHON="$place/venv/bin/python" PYSPARK_DRIVER_PYTHON="$place/venv/bin/python"
"$place/venv/bin/python" "$place/run.py" >"$place/log" 2>&1 || { cat "$place/seen" || tail -5 "$place/log"; exit 1; }
cat "$place/seen"
