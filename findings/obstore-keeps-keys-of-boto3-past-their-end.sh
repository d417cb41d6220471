#!/usr/bin/env bash
# obstore 0.12.1, Boto3CredentialProvider; boto3 1.44.8
# Bet: a store that takes its keys from a session of boto3 signs with keys that are valid, as boto3's own clients do: it asks
#   the session again before the keys end.
# Behaviour: the provider never looks at their end. Whatever it gets is good for 30 min from then on (`ttl`), and the store
#   asks again only in the last five of them. boto3 renews keys when 15 min are left, so the store can be given keys that
#   are good for 16 min, and it signs with them for 25.
# Cost: an assumed role of 15 min fails for ten minutes of every 25, a role of an hour wherever the session was young or old
#   by chance: each read and write ends with ExpiredToken, which is not tried again, beside an SQS client of the same
#   session that works. Give a function of your own, which returns the end of the keys as `expires_at`.
# Seen: keys good for 16 min: obstore takes them for 30 min
#       before the first keys end: boto3 writes with key 1, obstore writes with key 1
#       after the first keys end: boto3 writes with key 2, obstore is refused with key 1
#       and again: boto3 writes with key 2, obstore is refused with key 1
#       obstore, asking a function that tells the end: writes with key 2
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check obstore==0.12.1 boto3==1.44.8 botocore==1.44.8
cat > "$place/run.py" <<'PY'
import sys
import threading
import time
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import boto3
import botocore.session
import obstore
from botocore.credentials import RefreshableCredentials
from obstore.auth.boto3 import Boto3CredentialProvider
from obstore.store import S3Store

EXPIRED = b"<Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>"
ends, signers = [], []


def now():
    return datetime.now(timezone.utc)


class Handler(BaseHTTPRequestHandler):
    """Takes what is signed with a key that has not ended, and refuses the rest as S3 does."""

    protocol_version = "HTTP/1.1"

    def do_PUT(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        key = int(self.headers["Authorization"].partition("Credential=")[2].partition("/")[0])
        signers.append(key)
        status, content = (200, b"") if now() < ends[key - 1] else (400, EXPIRED)
        self.send_response(status)
        self.send_header("ETag", '"0"')
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *arguments):
        pass


def session(life, **windows):
    """A session whose keys are numbered, and renewed before they end, as those of a role are."""
    ends.clear()

    def renew():
        ends.append(now() + life)
        key = str(len(ends))
        return {"access_key": key, "secret_key": "s", "token": "t", "expiry_time": ends[-1].isoformat()}

    inner = botocore.session.Session()
    inner._credentials = RefreshableCredentials.create_from_metadata(renew(), renew, "assume-role", **windows)
    return boto3.Session(botocore_session=inner, region_name="us-east-1")


def write(call):
    signers.clear()
    try:
        call()
    except Exception as error:
        if "ExpiredToken" not in str(error):
            raise
        return f"is refused with key {signers[0]}"
    return f"writes with key {signers[0]}"


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
server.daemon_threads = True
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_address[1]}"


def store(provider):
    place = {"endpoint": url, "region": "us-east-1", "client_options": {"allow_http": True}}
    return S3Store("journal", credential_provider=provider, **place)


given = Boto3CredentialProvider(session(timedelta(minutes=16)))()
minutes = round((given["expires_at"] - now()).total_seconds() / 60)
seen = {"keys good for 16 min": f"obstore takes them for {minutes} min"}

# The same in seconds: boto3 renews its keys when two seconds are left, in place of 15 min.
short = session(timedelta(seconds=6), advisory_timeout=2, mandatory_timeout=1)
s3, keeping = short.client("s3", endpoint_url=url), store(Boto3CredentialProvider(short))


def compare(when):
    boto = write(lambda: s3.put_object(Bucket="journal", Key="1", Body=b"x"))
    seen[when] = f"boto3 {boto}, obstore {write(lambda: obstore.put(keeping, '1', b'x'))}"


def tell():
    keys = short.get_credentials().get_frozen_credentials()
    token = {"access_key_id": keys.access_key, "secret_access_key": keys.secret_key, "token": keys.token}
    return {**token, "expires_at": ends[int(keys.access_key) - 1]}


compare("before the first keys end")
while now() < ends[0]:
    time.sleep(0.02)
compare("after the first keys end")
compare("and again")
telling = store(tell)
seen["obstore, asking a function that tells the end"] = write(lambda: obstore.put(telling, "1", b"x"))

for when, end in seen.items():
    print(f"{when}: {end}")
late = "boto3 writes with key 2, obstore is refused with key 1"
expected = [
    "obstore takes them for 30 min",
    "boto3 writes with key 1, obstore writes with key 1",
    late,
    late,
    "writes with key 2",
]
sys.exit(list(seen.values()) != expected)
PY
env -u HTTP_PROXY -u http_proxy -u ALL_PROXY -u all_proxy "$place/venv/bin/python" "$place/run.py"
