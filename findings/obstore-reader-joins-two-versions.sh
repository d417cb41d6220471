#!/usr/bin/env bash
# obstore 0.12.1 (object_store below it), compared with pyarrow 26.0.1 and s3fs 2026.9.0; moto 5.2.5 stands for S3
# Bet: an open reader reads the object that it has opened. When another writer puts a new version meanwhile, the next
#   read gives bytes of the first version, or raises an error, as the reader has asked for size and ETag when it was
#   opened.
# Behaviour: each read is a request of its own, without If-Match. open_reader, its fsspec file and pyarrow's go on in
#   the new version, at the place where they were in the old one, and nothing is raised, as long as the new one is no
#   shorter. A longer one is cut at the old length. s3fs raises FileExpired. obstore.get is one request, and has one
#   version.
# Cost: an object that each micro-batch writes anew (a manifest, a checkpoint, the last Parquet file) is read as a mix
#   that nobody has written, and with text or records of one length it parses. Read with obstore.get, or give each
#   version a key of its own.
# Seen: obstore.open_reader: 1 MiB of version 1, 3 MiB of version 2
#       obstore.open_reader, version 2 is longer: 1 MiB of version 1, 3 MiB of version 2
#       obstore.fsspec: 1 MiB of version 1, 3 MiB of version 2
#       pyarrow.fs: 1 MiB of version 1, 3 MiB of version 2
#       s3fs: FileExpired
#       obstore.get: 4 MiB of version 1
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check obstore==0.12.1 fsspec==2026.9.0 s3fs==2026.9.0 \
  aiobotocore==3.10.0 pyarrow==26.0.1 'moto[server,s3]==5.2.5'
cat > "$place/run.py" <<'PY'
import sys

import obstore
import s3fs
from moto.server import ThreadedMotoServer
from obstore.fsspec import FsspecStore
from obstore.store import S3Store
from pyarrow.fs import S3FileSystem

MIB = 2**20
SIZE = 4 * MIB

server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
server.start()
host = "{}:{}".format(*server.get_host_and_port())
keys = {
    "endpoint": f"http://{host}",
    "region": "us-east-1",
    "aws_access_key_id": "a",
    "aws_secret_access_key": "b",
    "client_options": {"allow_http": True},
    "virtual_hosted_style_request": False,
}
arrow = S3FileSystem(
    access_key="a", secret_key="b", endpoint_override=f"http://{host}", region="us-east-1", allow_bucket_creation=True
)
arrow.create_dir("bucket")
store = S3Store("bucket", **keys)
files = FsspecStore("s3", **keys)
boto = s3fs.S3FileSystem(
    key="a", secret="b", endpoint_url=f"http://{host}", client_kwargs={"region_name": "us-east-1"}
)


class Stream:
    """The answer of one obstore.get, read as a file is read."""

    def __init__(self):
        self.chunks = iter(obstore.get(store, "k").stream(min_chunk_size=MIB))

    def read(self, size=None):
        return next(self.chunks) if size else b"".join(map(bytes, self.chunks))


def run(opened, size=SIZE):
    obstore.put(store, "k", b"1" * SIZE)
    file = opened()
    whole = bytes(file.read(MIB))
    obstore.put(store, "k", b"2" * size)
    try:
        whole += bytes(file.read())
    except Exception as error:
        return type(error).__name__
    assert len(whole) == SIZE
    return ", ".join(f"{whole.count(v) // MIB} MiB of version {v.decode()}" for v in (b"1", b"2") if v in whole)


seen = {
    "obstore.open_reader": run(lambda: obstore.open_reader(store, "k")),
    "obstore.open_reader, version 2 is longer": run(lambda: obstore.open_reader(store, "k"), 2 * SIZE),
    "obstore.fsspec": run(lambda: files.open("bucket/k", block_size=MIB)),
    "pyarrow.fs": run(lambda: arrow.open_input_file("bucket/k")),
    "s3fs": run(lambda: boto.open("bucket/k", block_size=MIB)),
    "obstore.get": run(Stream),
}
server.stop()
for way, end in seen.items():
    print(f"{way}: {end}")
mixed = "1 MiB of version 1, 3 MiB of version 2"
sys.exit(list(seen.values()) != [mixed] * 4 + ["FileExpired", "4 MiB of version 1"])
PY
unset HTTP_PROXY http_proxy ALL_PROXY all_proxy
"$place/venv/bin/python" "$place/run.py" 2>"$place/log" || { tail -5 "$place/log" >&2; exit 1; }
