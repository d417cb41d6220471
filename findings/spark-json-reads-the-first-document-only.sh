#!/usr/bin/env bash
# pyspark 4.3.0, from_json and parse_json; needs Java 17
# Bet: a body of two JSON documents, one per line, is malformed where one is expected: from_json in FAILFAST mode and
#   parse_json raise an error, and from_json in its default mode fills _corrupt_record.
# Behaviour: all three read the first document and ignore the rest, even where the rest is cut off. An array of two, for
#   the same struct, is malformed, and FAILFAST raises an error.
# Cost: of several payments that a producer packs into one message, one per line, only the first arrives, and neither the
#   mode nor a column for corrupt records shows it. Split the body first.
# Seen: default: Row(id=1, _corrupt_record=None)
#       FAILFAST: Row(id=1)
#       FAILFAST, cut off in the second: Row(id=1)
#       parse_json: {"id":1}
#       FAILFAST, array of two: SparkRuntimeException
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check pyspark==4.3.0
cat > "$place/run.py" <<'PY'
import sys

from pyspark.sql import SparkSession
from pyspark.sql.functions import from_json, parse_json, to_json

FAILFAST = {"mode": "FAILFAST"}
LINES, CUT, ARRAY = '{"id":1}\n{"id":2}', '{"id":1}\n{"id":', '[{"id":1},{"id":2}]'
spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .getOrCreate()
)
seen = {}


def run(what, body, column):
    try:
        seen[what] = str(spark.createDataFrame([(body,)], "body STRING").select(column).first()[0])
    except Exception as error:
        seen[what] = type(error).__name__


run("default", LINES, from_json("body", "id INT, _corrupt_record STRING"))
run("FAILFAST", LINES, from_json("body", "id INT", FAILFAST))
run("FAILFAST, cut off in the second", CUT, from_json("body", "id INT", FAILFAST))
run("parse_json", LINES, to_json(parse_json("body")))
run("FAILFAST, array of two", ARRAY, from_json("body", "id INT", FAILFAST))
spark.stop()
with open("seen", "w") as file:
    for what, end in seen.items():
        print(f"{what}: {end}", file=file)
first = "Row(id=1)"
expected = ["Row(id=1, _corrupt_record=None)", first, first, '{"id":1}', "SparkRuntimeException"]
sys.exit(list(seen.values()) != expected)
PY
cd "$place"
export PYSPARK_PYTHON="$place/venv/bin/python" PYSPARK_DRIVER_PYTHON="$place/venv/bin/python"
"$place/venv/bin/python" "$place/run.py" >"$place/log" 2>&1 || { cat "$place/seen" || tail -5 "$place/log"; exit 1; }
cat "$place/seen"
