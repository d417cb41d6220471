#!/usr/bin/env bash
# pyiceberg 0.12.0 with a SQL catalog (sqlite)
# Bet: two handles of one table upsert the same new key. The second commit meets the first one, and either raises
#   CommitFailedException or looks again: its row is then a match, and the table keeps one row for the key.
# Behaviour: the insert half of the upsert is an append, and the retry puts it on top of the other commit without another
#   look for the key. No error comes, `rows_inserted` is 1 both times, and the table holds the key twice. A later upsert
#   updates both rows. An overwrite from such an old handle does raise ValidationException.
# Cost: upsert keeps a key unique for a single writer only: a task that was thought dead and goes on doubles its rows.
# Seen: first upsert: inserted 1
#       second upsert: inserted 1
#       rows: [(1, 'paid'), (1, 'paid')]
#       third upsert, on a fresh handle: inserted 0
#       rows: [(1, 'refunded'), (1, 'refunded')]
#       overwrite on an old handle: ValidationException
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check \
  "pyiceberg[sql-sqlite]==0.12.0" sqlalchemy==2.1.9 pyarrow==21.0.0
cat > "$place/run.py" <<'PY'
import logging, sys, warnings

import pyarrow
from pyiceberg.catalog.sql import SqlCatalog

logging.getLogger("pyiceberg").setLevel(logging.ERROR)  # the retry is logged as a warning, with a random wait
warnings.simplefilter("ignore")
place = sys.argv[1]
catalog = SqlCatalog("c", uri=f"sqlite:///{place}/catalog.db", warehouse=f"file://{place}/warehouse")
catalog.create_namespace("n")


def payment(state):
    return pyarrow.table({"id": pyarrow.array([1], pyarrow.int64()), "state": [state]})


catalog.create_table("n.payments", schema=payment("paid").schema)


def rows():
    found = catalog.load_table("n.payments").scan().to_arrow().to_pylist()
    print("rows:", [(row["id"], row["state"]) for row in found])
    return [row["state"] for row in found]


def upsert(what, table, state):
    inserted = table.upsert(payment(state), join_cols=["id"]).rows_inserted
    print(f"{what}: inserted {inserted}")
    return inserted


handles = [catalog.load_table("n.payments") for _ in range(3)]
first = upsert("first upsert", handles[0], "paid")
second = upsert("second upsert", handles[1], "paid")
doubled = rows()
third = upsert("third upsert, on a fresh handle", catalog.load_table("n.payments"), "refunded")
updated = rows()
try:
    handles[2].overwrite(payment("paid"))
    overwrite = "ok"
except Exception as error:
    overwrite = type(error).__name__
print("overwrite on an old handle:", overwrite)
seen = first, second, doubled, third, updated, overwrite
sys.exit(seen != (1, 1, ["paid"] * 2, 0, ["refunded"] * 2, "ValidationException"))
PY
"$place/venv/bin/python" "$place/run.py" "$place"
