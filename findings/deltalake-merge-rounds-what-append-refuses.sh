#!/usr/bin/env bash
# deltalake 1.6.6 (delta-rs)
# Bet: append and merge guard the type of a column alike, and neither changes a value: decimal(10,3) into decimal(10,2),
#   and double into long, raise an error. Merge has `error_on_type_mismatch=True` by default.
# Behaviour: append refuses the decimal; merge rounds it without a word. Both cut a double down to a long. Both refuse a
#   value that is too large for the column, such as 3000000000 for an integer.
# Cost: a sink that goes from append to merge, to be idempotent, rounds the amounts that were an error before.
# Seen: append 12.345 to decimal(10,2): SchemaMismatchError
#       merge 12.345 to decimal(10,2): 12.35
#       append 1.9 to long: 1
#       merge 1.9 to long: 1
#       append 3000000000 to integer: Exception
#       merge 3000000000 to integer: Exception
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check deltalake==1.6.6 pyarrow==21.0.0
cat > "$place/run.py" <<'PY'
import sys, tempfile
from decimal import Decimal

import pyarrow
from deltalake import DeltaTable, QueryBuilder, write_deltalake


def append(path, payment):
    write_deltalake(path, payment, mode="append")


def merge(path, payment):
    merger = DeltaTable(path).merge(payment, "s.id = t.id", source_alias="s", target_alias="t")
    merger.when_not_matched_insert_all().execute()


def run(call, amount, amount_type, column_type):
    path = tempfile.mkdtemp(dir=sys.argv[1])
    write_deltalake(path, pyarrow.table({"id": [0], "amount": pyarrow.array([None], column_type)}))
    name = DeltaTable(path).schema().fields[1].type.type
    try:
        call(path, pyarrow.table({"id": [1], "amount": pyarrow.array([amount], amount_type)}))
        query = QueryBuilder().register("payments", DeltaTable(path)).execute("SELECT amount FROM payments WHERE id = 1")
        end = str(pyarrow.table(query.read_all())["amount"][0])
    except Exception as error:
        end = type(error).__name__
    print(f"{call.__name__} {amount} to {name}: {end}")
    return end


cases = [
    (Decimal("12.345"), pyarrow.decimal128(10, 3), pyarrow.decimal128(10, 2)),
    (1.9, pyarrow.float64(), pyarrow.int64()),
    (3_000_000_000, pyarrow.int64(), pyarrow.int32()),
]
seen = [run(call, *case) for case in cases for call in (append, merge)]
sys.exit(seen != ["SchemaMismatchError", "12.35", "1", "1", "Exception", "Exception"])
PY
"$place/venv/bin/python" "$place/run.py" "$place"
