#!/usr/bin/env bash
# pyarrow 26.0.1, files on S3, compared with obstore 0.12.1 (for plain bytes: apache/arrow issue 40502); moto 5.2.5
#   stands for S3
# Bet: an exception inside `with ParquetWriter(...)` on S3 leaves no object behind, and the version that was there
#   before: an upload is seen when it is complete, and the writer knows that it is not.
# Behaviour: the writer writes the footer for the rows it has, the file is closed, and that ends the upload. The former
#   version is replaced by a Parquet file with fewer rows that is valid in each respect. An Arrow file gets its footer
#   likewise. write_dataset and obstore's open_writer leave what was there.
# Cost: a batch that fails half-way, in foreachBatch say, puts a table in place that every reader takes for the whole,
#   until the retry has written another one, and for good if that one has another name. Write to a name that nobody
#   reads, or catch the exception outside the writer and delete.
# Seen: ParquetWriter: RuntimeError, then 500 rows of 1000
#       ipc.new_file: RuntimeError, then 500 rows of 1000
#       dataset.write_dataset: RuntimeError, then the former version
#       obstore.open_writer: RuntimeError, then the former version
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check pyarrow==26.0.1 obstore==0.12.1 \
  'moto[server,s3]==5.2.5'
cat > "$place/run.py" <<'PY'
import sys

import obstore
import pyarrow as pa
import pyarrow.dataset as ds
from moto.server import ThreadedMotoServer
from obstore.store import S3Store
from pyarrow import ipc
from pyarrow import parquet as pq
from pyarrow.fs import S3FileSystem

KEY = "table/part-0"

server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
server.start()
url = "http://{}:{}".format(*server.get_host_and_port())
arrow = S3FileSystem(
    access_key="a", secret_key="b", endpoint_override=url, region="us-east-1", allow_bucket_creation=True
)
arrow.create_dir("bucket")
store = S3Store(
    "bucket",
    endpoint=url,
    region="us-east-1",
    aws_access_key_id="a",
    aws_secret_access_key="b",
    client_options={"allow_http": True},
    virtual_hosted_style_request=False,
)
half, whole = pa.table({"x": range(500)}), pa.table({"x": range(1000)})


def batches():
    yield from half.to_batches()
    raise RuntimeError("the other half cannot be had")


def parquet():
    with pq.ParquetWriter(f"bucket/{KEY}", whole.schema, filesystem=arrow) as writer:
        for batch in batches():
            writer.write_batch(batch)


def arrow_file():
    with arrow.open_output_stream(f"bucket/{KEY}") as file, ipc.new_file(file, whole.schema) as writer:
        for batch in batches():
            writer.write_batch(batch)


def dataset():
    rows = pa.RecordBatchReader.from_batches(whole.schema, batches())
    more = {"basename_template": "part-{i}", "existing_data_behavior": "overwrite_or_ignore"}
    ds.write_dataset(rows, "bucket/table", filesystem=arrow, format="parquet", **more)


def bytes_of_obstore():
    with obstore.open_writer(store, KEY) as file:
        for batch in batches():
            file.write(batch.serialize().to_pybytes())


def run(write):
    pq.write_table(whole, f"bucket/{KEY}", filesystem=arrow)
    before = bytes(obstore.get(store, KEY).bytes())
    try:
        write()
    except Exception as error:
        name = type(error).__name__
    after = bytes(obstore.get(store, KEY).bytes())
    if after == before:
        return f"{name}, then the former version"
    table = ipc.open_file(after).read_all() if write is arrow_file else pq.read_table(pa.BufferReader(after))
    return f"{name}, then {len(table)} rows of {len(whole)}"


seen = {
    "ParquetWriter": run(parquet),
    "ipc.new_file": run(arrow_file),
    "dataset.write_dataset": run(dataset),
    "obstore.open_writer": run(bytes_of_obstore),
}
server.stop()
for way, end in seen.items():
    print(f"{way}: {end}")
replaced, kept = "RuntimeError, then 500 rows of 1000", "RuntimeError, then the former version"
sys.exit(list(seen.values()) != [replaced, replaced, kept, kept])
PY
unset HTTP_PROXY http_proxy ALL_PROXY all_proxy
"$place/venv/bin/python" "$place/run.py" 2>"$place/log" || { tail -5 "$place/log" >&2; exit 1; }
