#!/usr/bin/env bash
# pyspark 4.3.0, two sources in one stream; needs Java 17
# Bet: each source of a union goes on where it was when the query starts again, or the query is refused: the guide for
#   changes between restarts forbids another number or another type of sources, and does not speak of their order.
# Behaviour: the checkpoint keeps offsets by the place of a source in the plan. With the branches of the union the other
#   way round, each source begins at the offset of the other, and nothing says so. Sources that have a name go on where
#   they were; readStream.name() is refused unless `spark.sql.streaming.queryEvolution.enableSourceEvolution` is true,
#   and it is false by default.
# Cost: a list of queues that is sorted, or built from a set, one day has another order. The source that is ahead reads
#   again what it has read, and the one behind never reads what lies between: here messages 2 and 3 of b are lost, and
#   those of a come twice. Name the sources, or let a source put its own name into its offset and refuse another.
# Seen: a and b: a1 a2 a3 b1
#       b and a: a2 a3 a4 b4
#       named, a and b: a1 a2 a3 b1
#       named, b and a: a4 b2 b3 b4
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check pyspark==4.3.0 pyarrow==21.0.0 pandas==2.2.3
cat > "$place/run.py" <<'PY'
import pathlib
import sys

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

# How many messages each queue has had.
QUEUES = pathlib.Path("queues").resolve()


class Source(DataSource):
    @classmethod
    def name(cls):
        return "source"

    def schema(self):
        return "message STRING"

    def streamReader(self, schema):
        return Reader(self.options["queue"])


class Reader(DataSourceStreamReader):
    def __init__(self, queue):
        self.queue = queue

    def initialOffset(self):
        return {"at": 0}

    def latestOffset(self):
        return {"at": int((QUEUES / self.queue).read_text())}

    def partitions(self, start, end):
        return [InputPartition(range(start["at"], end["at"]))]

    def read(self, partition):
        for i in partition.value:
            yield (f"{self.queue}{i + 1}",)


QUEUES.mkdir()
spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .getOrCreate()
)
spark.dataSource.register(Source)


def source(queue, named):
    reader = spark.readStream.format("source").option("queue", queue)
    return (reader.name(queue) if named else reader).load()


def run(order, named):
    first, second = (source(queue, named) for queue in order)
    rows = []
    query = first.union(second).writeStream.foreachBatch(lambda frame, batch: rows.extend(frame.collect()))
    query = query.option("checkpointLocation", f"checkpoint {named}").trigger(availableNow=True)
    query.start().awaitTermination()
    return " ".join(sorted(row.message for row in rows))


seen = {}
for named, prefix in ((False, ""), (True, "named, ")):
    spark.conf.set("spark.sql.streaming.queryEvolution.enableSourceEvolution", str(named).lower())
    for order, a, b in (("ab", 3, 1), ("ba", 4, 4)):
        (QUEUES / "a").write_text(str(a))
        (QUEUES / "b").write_text(str(b))
        seen[f"{prefix}{' and '.join(order)}"] = run(order, named)
spark.stop()
with open("seen", "w") as file:
    for case, messages in seen.items():
        print(f"{case}: {messages}", file=file)
sys.exit(list(seen.values()) != ["a1 a2 a3 b1", "a2 a3 a4 b4", "a1 a2 a3 b1", "a4 b2 b3 b4"])
PY
cd "$place"
export PYSPARK_PYTHON="$place/venv/bin/python" PYSPARK_DRIVER_PYTHON="$place/venv/bin/python"
"$place/venv/bin/python" "$place/run.py" >"$place/log" 2>&1 || { cat "$place/seen" || tail -5 "$place/log"; exit 1; }
cat "$place/seen"
