#!/usr/bin/env bash
# obstore 0.12.1 (object_store below it, whose paths have no slash at either end); moto 5.2.5 stands for S3
# Bet: `a`, `/a` and `a/` are three keys to S3, so they are to obstore: each reaches its own object, or is refused with
#   ValueError, as `a//b`, `./a` and `a/../b` are.
# Behaviour: a slash at either end is left out before S3 is asked, without a word: get answers with another object's bytes,
#   put writes over that object, and delete takes it away. list gives all three objects one path.
# Cost: whoever takes a key from elsewhere, such as a pointer to a payload that boto3 or a Java client has put, handles the
#   wrong payload as if it were right, and by its clean-up the right one of another message is gone. Ask boto3 for keys
#   with such a slash.
# Seen: get: a b'1', /a b'1', a/ b'1'
#       list: a 1, a 2, a 3
#       get: a//b ValueError, ./a ValueError, a/../b ValueError
#       put /a: /a b'22', a b'new', a/ b'333'
#       delete a/: /a b'22', a/ b'333'
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check \
  boto3==1.44.8 "moto[s3,server]==5.2.5" obstore==0.12.1
cat > "$place/run.py" <<'PY'
import logging, sys

import boto3
import obstore
from moto.server import ThreadedMotoServer
from obstore.store import S3Store

OBJECTS = {"a": b"1", "/a": b"22", "a/": b"333"}
REFUSED = ("a//b", "./a", "a/../b")


def get(key):
    try:
        return bytes(obstore.get(store, key).bytes())
    except Exception as error:
        return type(error).__name__


def there():
    """The bytes of all objects by their keys, as boto3 has them."""
    keys = [each["Key"] for each in s3.list_objects_v2(Bucket="payloads")["Contents"]]
    return {key: s3.get_object(Bucket="payloads", Key=key)["Body"].read() for key in keys if key not in REFUSED}


def show(what, pairs):
    pairs = list(pairs)
    print(f"{what}: " + ", ".join(f"{key} {end}" for key, end in pairs))
    return pairs


logging.getLogger("werkzeug").setLevel(logging.ERROR)
server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
server.start()
url = "http://{}:{}".format(*server.get_host_and_port())
s3 = boto3.client("s3", endpoint_url=url, region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b")
store = S3Store(
    "payloads", endpoint=url, region="us-east-1", access_key_id="a", secret_access_key="b",
    client_options={"allow_http": True},
)
s3.create_bucket(Bucket="payloads")
for key, body in OBJECTS.items():
    s3.put_object(Bucket="payloads", Key=key, Body=body)
assert there() == OBJECTS

listed = sorted((each["path"], each["size"]) for chunk in obstore.list(store) for each in chunk)
seen = [show("get", ((key, get(key)) for key in OBJECTS)), show("list", listed)]
for key in REFUSED:
    s3.put_object(Bucket="payloads", Key=key, Body=b"4")
seen.append(show("get", ((key, get(key)) for key in REFUSED)))
obstore.put(store, "/a", b"new")
seen.append(show("put /a", there().items()))
obstore.delete(store, "a/")
seen.append(show("delete a/", there().items()))
server.stop()

sys.exit(seen != [
    [("a", b"1"), ("/a", b"1"), ("a/", b"1")],
    [("a", 1), ("a", 2), ("a", 3)],
    [("a//b", "ValueError"), ("./a", "ValueError"), ("a/../b", "ValueError")],
    [("/a", b"22"), ("a", b"new"), ("a/", b"333")],
    [("/a", b"22"), ("a/", b"333")],
])
PY
env -u HTTP_PROXY -u http_proxy -u ALL_PROXY -u all_proxy "$place/venv/bin/python" "$place/run.py"
