#!/usr/bin/env bash
# pyspark 4.3.0 from PyPI, the Python processes that it starts; needs Java 17
# Bet: with a PySpark that pip has installed, Spark's Python processes import it as the program does: from
#   site-packages, where its modules stand compiled.
# Behaviour: they import it from `python/lib/pyspark.zip` beside its jars, which Spark puts first on their path, before
#   any PYTHONPATH. That zip has no compiled modules, and Python writes none for a zip, so each process compiles anew
#   what it imports. A stream's reader has used about three times the CPU when it is asked its first question.
# Cost: half a second of CPU for each start of a stream's reader and of a daemon that forks the other workers, and a
#   tenth for each of these; on a busy machine it is several of the ten seconds after which Spark gives a process up
#   ("Python worker failed to connect back"). A SPARK_HOME that has links to `bin` and `jars` and no `python` leaves the
#   zip out, where PySpark is in site-packages.
# Seen: (the reader's CPU at its first question)
#       as installed: from pyspark.zip, more than twice the least
#       PYTHONPATH of site-packages: the same
#       SPARK_HOME of links: from site-packages, the least
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check pyspark==4.3.0 pyarrow==21.0.0 pandas==2.2.3
cat > "$place/run.py" <<'PY'
import json
import pathlib
import statistics
import sys
import time

import pyspark
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

START = pathlib.Path("start").resolve()


class Source(DataSource):
    @classmethod
    def name(cls):
        return "source"

    def schema(self):
        return "x INT"

    def streamReader(self, schema):
        return Reader()


class Reader(DataSourceStreamReader):
    def initialOffset(self):
        START.write_text(json.dumps([time.process_time(), pyspark.__file__]))
        return {"at": 0}

    def latestOffset(self):
        return {"at": 1}

    def partitions(self, start, end):
        return [InputPartition(0)]

    def read(self, partition):
        yield (1,)


spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .getOrCreate()
)
spark.dataSource.register(Source)
seconds = []
for _ in range(3):
    query = spark.readStream.format("source").load().writeStream.format("noop")
    query.trigger(availableNow=True).start().awaitTermination()
    second, file = json.loads(START.read_text())
    seconds.append(second)
spark.stop()
assert ".zip" not in pyspark.__file__
place = "pyspark.zip" if ".zip" in file else "site-packages"
with open("starts", "a") as starts:
    print(json.dumps([sys.argv[1], place, statistics.median(seconds)]), file=starts)
PY
cat > "$place/say.py" <<'PY'
import json
import sys

starts = [json.loads(line) for line in open("starts")]
least = min(second for _, _, second in starts)
print([round(second, 2) for _, _, second in starts], file=sys.stderr)
more = ["more than twice the least" if second > 2 * least else "the least" for _, _, second in starts]
for (case, place, _), each in zip(starts, more):
    print(f"{case}: from {place}, {each}")
sys.exit([(place, each == "the least") for (_, place, _), each in zip(starts, more)] != [
    ("pyspark.zip", False), ("pyspark.zip", False), ("site-packages", True)
])
PY
cd "$place"
export PYSPARK_PYTHON="$place/venv/bin/python" PYSPARK_DRIVER_PYTHON="$place/venv/bin/python"
unset SPARK_HOME PYTHONPATH
installed=$("$place/venv/bin/python" -c "import os, pyspark; print(os.path.dirname(pyspark.__file__))")
run() { "$@" "$place/venv/bin/python" "$place/run.py" "$case" >"$place/log" 2>&1 || { tail -5 "$place/log"; exit 1; }; }

case="as installed" run env
case="PYTHONPATH of site-packages" run env PYTHONPATH="$(dirname "$installed")"
mkdir home
ln -s "$installed/bin" "$installed/jars" home
case="SPARK_HOME of links" run env SPARK_HOME="$place/home"
"$place/venv/bin/python" "$place/say.py"
