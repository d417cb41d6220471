#!/usr/bin/env bash
# deltalake 1.6.6 (delta-rs)
# Bet: after restore(version) the table is as it was at that version, its application transactions included:
#   transaction_version gives the number of that time.
# Behaviour: the rows go back, and the transactions stay as they were last, until an append gives another number, which
#   may be a lower one.
# Cost: a sink that writes a micro-batch only when transaction_version is below its number skips, after a restore, all
#   micro-batches whose rows the restore removed, though the source gives them once more: they are lost, without an
#   error. Restore, then append no rows with the transaction of the version restored, before the source starts again.
# Seen: before: rows [0, 1, 2, 3, 4, 5], transaction 5
#       restored to version 2: rows [0, 1, 2], transaction 5
#       micro-batches 3 to 5 again: rows [0, 1, 2], transaction 5
#       no rows with transaction 2: rows [0, 1, 2], transaction 2
#       micro-batches 3 to 5 again: rows [0, 1, 2, 3, 4, 5], transaction 5
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check deltalake==1.6.6 pyarrow==21.0.0
cat > "$place/run.py" <<'PY'
import sys

import pyarrow
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

path, seen = sys.argv[1], []


def append(ids, batch_id):
    transaction = CommitProperties(app_transactions=[Transaction("payments", batch_id)])
    table = pyarrow.table({"id": pyarrow.array(ids, pyarrow.int64())})
    write_deltalake(path, table, mode="append", commit_properties=transaction)


def sink(batch_id):
    """Writes a micro-batch of one row, unless the table has it."""
    if DeltaTable(path).transaction_version("payments") < batch_id:
        append([batch_id], batch_id)


def note(when):
    table = DeltaTable(path)
    ids = sorted(table.to_pyarrow_table()["id"].to_pylist())
    seen.append((ids, table.transaction_version("payments")))
    print(f"{when}: rows {ids}, transaction {seen[-1][1]}")


def again():
    for batch_id in (3, 4, 5):
        sink(batch_id)
    note("micro-batches 3 to 5 again")


append([0], 0)
for batch_id in range(1, 6):
    sink(batch_id)
note("before")
DeltaTable(path).restore(2)
note("restored to version 2")
again()
append([], 2)
note("no rows with transaction 2")
again()
sys.exit(seen != [([*range(6)], 5), ([0, 1, 2], 5), ([0, 1, 2], 5), ([0, 1, 2], 2), ([*range(6)], 5)])
PY
"$place/venv/bin/python" "$place/run.py" "$place/table"
