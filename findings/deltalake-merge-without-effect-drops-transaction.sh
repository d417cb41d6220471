#!/usr/bin/env bash
# deltalake 1.6.6 (delta-rs)
# Bet: every call that returns without an error records the application transaction in its `commit_properties`: a merge
#   whose rows are all in the table already writes no file, but commits the transaction, as an append of no rows does.
# Behaviour: a merge, update or delete that changes no row makes no commit at all, and drops the transaction without a
#   word. An append of no rows makes a commit, and records the transaction.
# Cost: a sink that merges by message id, and asks `transaction_version` which micro-batch is in the table, gets an old
#   number after each micro-batch that changes nothing, and writes it again or waits for a number that never comes.
# Seen: append of no rows: version 1, transaction 1
#       merge of a known row: version 1, transaction 1
#       update of no row: version 1, transaction 1
#       delete of no row: version 1, transaction 1
#       merge of a new row: version 2, transaction 5
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check deltalake==1.6.6 pyarrow==21.0.0
cat > "$place/run.py" <<'PY'
import sys

import pyarrow
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

path = sys.argv[1] + "/table"


def payment(*ids):
    return pyarrow.table({"id": pyarrow.array(ids, pyarrow.int64())})


def batch(number):
    return CommitProperties(app_transactions=[Transaction("query", number)])


def merge(number, id):
    table = DeltaTable(path)
    merger = table.merge(
        payment(id), "s.id = t.id", source_alias="s", target_alias="t", commit_properties=batch(number)
    )
    merger.when_not_matched_insert_all().execute()


def run(what, call):
    call()
    table = DeltaTable(path)
    seen = table.version(), table.transaction_version("query")
    print(f"{what}: version {seen[0]}, transaction {seen[1]}")
    return seen


def update():
    DeltaTable(path).update({"id": "0"}, predicate="id = 99", commit_properties=batch(3))


write_deltalake(path, payment(10), commit_properties=batch(0))
seen = [
    run("append of no rows", lambda: write_deltalake(path, payment(), mode="append", commit_properties=batch(1))),
    run("merge of a known row", lambda: merge(2, 10)),
    run("update of no row", update),
    run("delete of no row", lambda: DeltaTable(path).delete("id = 99", commit_properties=batch(4))),
    run("merge of a new row", lambda: merge(5, 11)),
]
sys.exit(seen != [(1, 1), (1, 1), (1, 1), (1, 1), (2, 5)])
PY
"$place/venv/bin/python" "$place/run.py" "$place"
