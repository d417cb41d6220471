#!/usr/bin/env bash
# pyspark 4.3.0, from_json; needs Java 17
# Bet: from_json leaves a JSON object whose type in the schema is STRING as it is, character for character, as
#   spark.read.json does: spark.sql.json.enableExactStringParsing is on by default (SPARK-48148, Spark 4.0).
# Behaviour: spark.read.json on a file does so. from_json with the same schema writes the object anew, and its numbers
#   pass through a double: digits are lost, even in FAILFAST mode. get_json_object does the same. parse_json keeps the
#   digits of this amount, but not the characters.
# Cost: a payload taken out of its envelope as a string, to be parsed or checked against a digest later, has another
#   amount in it.
# Seen: exact string parsing: true
#       spark.read.json: {"amount": 12345678901234567.89, "fee": 1.10}
#       from_json: {"amount":1.2345678901234568E16,"fee":1.1}
#       get_json_object: {"amount":1.2345678901234568E16,"fee":1.1}
#       parse_json: {"amount":12345678901234567.89,"fee":1.1}
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check pyspark==4.3.0
cat > "$place/run.py" <<'PY'
import sys

from pyspark.sql import SparkSession
from pyspark.sql.functions import from_json, get_json_object, parse_json, to_json

PAYLOAD = '{"amount": 12345678901234567.89, "fee": 1.10}'
ANEW = '{"amount":1.2345678901234568E16,"fee":1.1}'
body = '{"payload": ' + PAYLOAD + "}"
spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .getOrCreate()
)
with open("body.json", "w") as file:
    file.write(body)
from_file = spark.read.schema("payload STRING").json("body.json").first().payload
bodies = spark.createDataFrame([(body,)], "body STRING")
read = bodies.select(
    from_json("body", "payload STRING", {"mode": "FAILFAST"}).payload,
    get_json_object("body", "$.payload"),
    to_json(parse_json("body")),
).first()
exact = spark.conf.get("spark.sql.json.enableExactStringParsing")
spark.stop()
variant = read[2].removeprefix('{"payload":').removesuffix("}")
with open("seen", "w") as seen:
    print("exact string parsing:", exact, file=seen)
    print("spark.read.json:", from_file, file=seen)
    print("from_json:", read[0], file=seen)
    print("get_json_object:", read[1], file=seen)
    print("parse_json:", variant, file=seen)
kept = '{"amount":12345678901234567.89,"fee":1.1}'
sys.exit((exact, from_file, read[0], read[1], variant) != ("true", PAYLOAD, ANEW, ANEW, kept))
PY
cd "$place"
export PYSPARK_PYTHON="$place/venv/bin/python" PYSPARK_DRIVER_PYTHON="$place/venv/bin/python"
"$place/venv/bin/python" "$place/run.py" >"$place/log" 2>&1 || { cat "$place/seen" || tail -5 "$place/log"; exit 1; }
cat "$place/seen"
