#!/usr/bin/env bash
# pyspark 4.1.4, progress reports of a Python source; needs Java 17
# Bet: a progress report has a source's offsets as the JSON that its reader gave, as a listener's event has them.
# Behaviour: the event of a listener has. `lastProgress` and `recentProgress` of the same query have Python's text of a
#   dict, with single quotes, None and True, in a field that is a string. So has 4.0.5; 4.0.0 had JSON there, and 4.2.1
#   has it again.
# Cost: a monitor that parses `query.lastProgress["sources"][0]["endOffset"]`, as one does to find how far a queue or
#   topic was read, fails with JSONDecodeError after an update within 4.0 or to 4.1. Parse `lastProgress.json`, in which
#   offsets are objects.
# Seen: listener: {"at": 1, "done": true}
#       lastProgress: {'at': 1, 'done': True}
#       lastProgress.json: an object
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check pyspark==4.1.4 pyarrow==21.0.0 pandas==2.2.3
cat > "$place/run.py" <<'PY'
import json
import sys
import threading

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming import StreamingQueryListener


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
        return {"at": 0, "done": False}

    def latestOffset(self):
        return {"at": 1, "done": True}

    def partitions(self, start, end):
        return [InputPartition(0)]

    def read(self, partition):
        yield (1,)


class Listener(StreamingQueryListener):
    ended = threading.Event()
    seen = ""

    def onQueryStarted(self, event):
        pass

    def onQueryProgress(self, event):
        self.seen = event.progress.sources[0].endOffset

    def onQueryTerminated(self, event):
        self.ended.set()


spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .getOrCreate()
)
spark.dataSource.register(Source)
listener = Listener()
spark.streams.addListener(listener)
rows = spark.readStream.format("source").load()
query = rows.writeStream.format("noop").trigger(availableNow=True).start()
query.awaitTermination()
assert listener.ended.wait(60)
told = query.lastProgress["sources"][0]["endOffset"]
whole = json.loads(query.lastProgress.json)["sources"][0]["endOffset"]
spark.stop()
with open("seen", "w") as seen:
    print("listener:", listener.seen, file=seen)
    print("lastProgress:", told, file=seen)
    print("lastProgress.json:", "an object" if isinstance(whole, dict) else "text", file=seen)
offset = {"at": 1, "done": True}
sys.exit(json.loads(listener.seen) != offset or told != str(offset) or whole != offset)
PY
cd "$place"
export PYSPARK_PYTHON="$place/venv/bin/python" PYSPARK_DRIVER_PYTHON="$place/venv/bin/python"
"$place/venv/bin/python" "$place/run.py" >"$place/log" 2>&1 || { cat "$place/seen" || tail -5 "$place/log"; exit 1; }
cat "$place/seen"
