#!/usr/bin/env bash
# deltalake 1.6.6 (delta-rs)
# Bet: mode="overwrite", or delete() without a predicate, on a handle from before the last append either removes the
#   appended rows as well or raises CommitFailedError.
# Behaviour: it removes the rows that its handle knows of and succeeds. The appended rows stay, although the overwrite
#   comes after the append in the log. With the predicate "id >= 0", which all rows match, it raises CommitFailedError.
# Cost: a table that each run writes anew keeps rows from before the overwrite that its history shows as the last commit.
#   Overwrite with a predicate that matches all rows, so that the conflict is an error.
# Seen: overwrite: ok, rows [2, 3]
#       overwrite where id >= 0: CommitFailedError, rows [1, 2]
#       delete: ok, rows [2]
#       delete where id >= 0: CommitFailedError, rows [1, 2]
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check deltalake==1.6.6 pyarrow==21.0.0
cat > "$place/run.py" <<'PY'
import sys, tempfile

import pyarrow
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from deltalake.exceptions import CommitFailedError


def payment(id):
    return pyarrow.table({"id": pyarrow.array([id], pyarrow.int64())})


def run(what, call):
    path = tempfile.mkdtemp(dir=sys.argv[1])
    write_deltalake(path, payment(1))
    handle = DeltaTable(path)
    write_deltalake(path, payment(2), mode="append")
    try:
        call(handle)
        end = "ok"
    except CommitFailedError:
        end = "CommitFailedError"
    query = QueryBuilder().register("payments", DeltaTable(path)).execute("SELECT id FROM payments ORDER BY id")
    rows = pyarrow.table(query.read_all())["id"].to_pylist()
    print(f"{what}: {end}, rows {rows}")
    return end, rows


everything = "id >= 0"
seen = [
    run("overwrite", lambda handle: write_deltalake(handle, payment(3), mode="overwrite")),
    run(f"overwrite where {everything}",
        lambda handle: write_deltalake(handle, payment(3), mode="overwrite", predicate=everything)),
    run("delete", lambda handle: handle.delete()),
    run(f"delete where {everything}", lambda handle: handle.delete(everything)),
]
failed = ("CommitFailedError", [1, 2])
sys.exit(seen != [("ok", [2, 3]), failed, ("ok", [2]), failed])
PY
"$place/venv/bin/python" "$place/run.py" "$place"
