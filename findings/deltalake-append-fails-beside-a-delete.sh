#!/usr/bin/env bash
# deltalake 1.6.6 (delta-rs)
# Bet: an append, which reads no row, takes the next version and succeeds, whatever others have committed since its table
#   was loaded; Delta Lake on Spark calls that a blind append.
# Behaviour: when another has removed a row (delete, update, a merge that changes a row), it raises CommitFailedError: "a
#   concurrent transaction deleted data this operation read", also when the row is in a partition to which it appends
#   nothing. More `max_commit_retries` do not help. Beside a compaction or an append it succeeds.
# Cost: a sink that appends each micro-batch fails now and then once somebody deletes or corrects old rows, and a handle
#   that is kept fails at each try. The text sends the reader after a read that the code does not do. Catch
#   CommitFailedError, load the table anew, ask transaction_version, and append again.
# Seen: append: ok, rows [1, 2, 3, 4]
#       compaction: ok, rows [1, 2, 3]
#       merge that adds a row: ok, rows [1, 2, 3, 4]
#       delete: CommitFailedError, rows [1], and again CommitFailedError, rows [1]
#       delete in another partition, 50 retries: CommitFailedError, rows [1], and again CommitFailedError, rows [1]
#       update: CommitFailedError, rows [1, 9], and again CommitFailedError, rows [1, 9]
#       delete while the rows of an append to the path are produced: CommitFailedError, rows [1]
#       that append on a new handle: ok, rows [1, 3]
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check deltalake==1.6.6 pyarrow==21.0.0
cat > "$place/run.py" <<'PY'
import subprocess
import sys
import tempfile

import pyarrow
from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

SCHEMA = pyarrow.schema([("id", pyarrow.int64()), ("day", pyarrow.string())])


def rows(*ids):
    """Ids up to 2 are of yesterday, the others of today."""
    return pyarrow.table({"id": ids, "day": ["old" if n < 3 else "new" for n in ids]}, SCHEMA)


def append(target, path, data, retries=15):
    try:
        write_deltalake(target, data, mode="append", commit_properties=CommitProperties(max_commit_retries=retries))
        end = "ok"
    except CommitFailedError:
        end = "CommitFailedError"
    return f"{end}, rows {sorted(DeltaTable(path).to_pyarrow_table()['id'].to_pylist())}"


def table(**options):
    path = tempfile.mkdtemp()
    for number in (1, 2):
        write_deltalake(path, rows(number), mode="append", **options)
    return path


def beside(other, retries=15, **options):
    """The ends of two tries to append row 3 on a handle which was loaded before the commit of `other`."""
    path = table(**options)
    handle = DeltaTable(path)
    other(DeltaTable(path))
    first = append(handle, path, rows(3), retries)
    return first if first.startswith("ok") else f"{first}, and again {append(handle, path, rows(3), retries)}"


def merge(found):
    return found.merge(rows(4), "s.id = t.id", "s", "t").when_not_matched_insert_all().execute()


def batches():
    """Row 3, and another process's delete of row 2 before it is read to its end."""
    yield rows(3).to_batches()[0]
    other = 'import sys, deltalake; deltalake.DeltaTable(sys.argv[1]).delete("id = 2")'
    subprocess.run([sys.executable, "-c", other, path], check=True)


seen = {
    "append": beside(lambda found: write_deltalake(found, rows(4), mode="append")),
    "compaction": beside(lambda found: found.optimize.compact()),
    "merge that adds a row": beside(merge),
    "delete": beside(lambda found: found.delete("id = 2")),
    "delete in another partition, 50 retries": beside(lambda found: found.delete("id = 2"), 50, partition_by=["day"]),
    "update": beside(lambda found: found.update(new_values={"id": 9}, predicate="id = 2")),
}
path = table()
reader = pyarrow.RecordBatchReader.from_batches(SCHEMA, batches())
seen["delete while the rows of an append to the path are produced"] = append(path, path, reader)
seen["that append on a new handle"] = append(path, path, rows(3))

for case, end in seen.items():
    print(f"{case}: {end}")
four, refused = "ok, rows [1, 2, 3, 4]", "CommitFailedError, rows [1]"
twice, updated = f"{refused}, and again {refused}", "CommitFailedError, rows [1, 9]"
expected = [four, "ok, rows [1, 2, 3]", four, twice, twice, f"{updated}, and again {updated}", refused, "ok, rows [1, 3]"]
sys.exit(list(seen.values()) != expected)
PY
"$place/venv/bin/python" "$place/run.py"
