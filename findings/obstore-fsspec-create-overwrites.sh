#!/usr/bin/env bash
# obstore 0.12.1, its file system for fsspec (2026.9.0), compared with s3fs 2026.9.0; moto 5.2.5 stands for S3
# Bet: mode="create" of pipe_file, pipe and put_file raises FileExistsError for a path that exists, as s3fs does and
#   fsspec's base class: obstore.put(mode="create") of the same package is one request, and refuses.
# Behaviour: the file system takes the argument and ignores it. What another writer has put is overwritten, and the
#   call succeeds. Only open(path, "xb") is refused, with a ValueError, whether the file exists or not.
# Cost: the marker of a micro-batch, a claim, or version 5 of a manifest, put by two writers of whom the first should
#   win, is the second one's, and both go on as the owner. A change from s3fs to obstore.fsspec, or register("s3"),
#   takes the protection away from code that had it. Use obstore.put(store, path, content, mode="create").
# Seen: pipe_file: s3fs FileExistsError, obstore.fsspec overwrites
#       pipe: s3fs FileExistsError, obstore.fsspec overwrites
#       put_file: s3fs FileExistsError, obstore.fsspec overwrites
#       open with "xb": s3fs FileExistsError, obstore.fsspec ValueError
#       obstore.put: AlreadyExistsError
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check obstore==0.12.1 fsspec==2026.9.0 s3fs==2026.9.0 \
  aiobotocore==3.10.0 'moto[server,s3]==5.2.5'
cat > "$place/run.py" <<'PY'
import pathlib
import sys

import obstore
import s3fs
from moto.server import ThreadedMotoServer
from obstore.fsspec import FsspecStore
from obstore.store import S3Store

server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
server.start()
host = "http://{}:{}".format(*server.get_host_and_port())
keys = {
    "endpoint": host,
    "region": "us-east-1",
    "aws_access_key_id": "a",
    "aws_secret_access_key": "b",
    "client_options": {"allow_http": True},
    "virtual_hosted_style_request": False,
}
boto = s3fs.S3FileSystem(key="a", secret="b", endpoint_url=host, client_kwargs={"region_name": "us-east-1"})
boto.call_s3("create_bucket", Bucket="bucket")
pathlib.Path("new").write_bytes(b"second")
PATH = "bucket/batch-5"


def put(files):
    files.put_file("new", PATH, mode="create")


def write(files):
    with files.open(PATH, "xb") as file:
        file.write(b"second")


def run(files, way):
    """Writes a file that exists, and tells whose content it has afterwards."""
    files.pipe_file(PATH, b"first")
    files.invalidate_cache()
    try:
        way(files)
        end = "overwrites"
    except Exception as error:
        end = type(error).__name__
    files.invalidate_cache()
    assert bytes(files.cat_file(PATH)) == (b"second" if end == "overwrites" else b"first")
    return end


ways = {
    "pipe_file": lambda files: files.pipe_file(PATH, b"second", mode="create"),
    "pipe": lambda files: files.pipe({PATH: b"second"}, mode="create"),
    "put_file": put,
    'open with "xb"': write,
}
systems = {"s3fs": boto, "obstore.fsspec": FsspecStore("s3", **keys)}
ends = {way: [run(files, call) for files in systems.values()] for way, call in ways.items()}
try:
    obstore.put(S3Store("bucket", **keys), "batch-5", b"second", mode="create")
    own = "overwrites"
except Exception as error:
    own = type(error).__name__
server.stop()
for way, seen in ends.items():
    print(f"{way}: {', '.join(f'{name} {end}' for name, end in zip(systems, seen))}")
print(f"obstore.put: {own}")
expected = [["FileExistsError", end] for end in ("overwrites", "overwrites", "overwrites", "ValueError")]
sys.exit(list(ends.values()) != expected or own != "AlreadyExistsError")
PY
cd "$place"
unset HTTP_PROXY http_proxy ALL_PROXY all_proxy
"$place/venv/bin/python" "$place/run.py" 2>"$place/log" || { tail -5 "$place/log" >&2; exit 1; }
