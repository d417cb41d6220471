#!/usr/bin/env bash
# obstore 0.12.1, S3Store with a credential_provider; compared with boto3 1.44.8
# Bet: when the provider fails once while the keys are still good for minutes, the store goes on with these, as boto3 does
#   in the first five minutes of its attempts, or asks again by its retry_config, as it does when S3 fails once.
# Behaviour: it does neither. In the last five minutes of the keys each write asks the provider first, and one error of it is
#   the error of the write: UnauthenticatedError, at once. Before these five minutes it never asks, so there is no
#   attempt that may fail unseen.
# Cost: a role service that throttles or restarts for a second breaks the commit of a journal or table whose keys would
#   have held for four minutes more, under a name that tells to look for wrong permissions. In the provider, catch the
#   error, and return the old keys until they end.
# Seen: keys good for 6 min, provider fails from then on: writes, provider not asked
#       keys good for 4 min, provider fails once: UnauthenticatedError, then writes
#       keys good for 4 min, S3 fails once: writes
#       boto3, keys good for 12 min, provider fails once: writes
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check obstore==0.12.1 boto3==1.44.8 botocore==1.44.8
cat > "$place/run.py" <<'PY'
import logging
import sys
import threading
import time
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import boto3
import botocore.session
import obstore
from botocore.credentials import RefreshableCredentials
from obstore.exceptions import UnauthenticatedError
from obstore.store import S3Store

LIMIT_S = 20
statuses = []


class Handler(BaseHTTPRequestHandler):
    """Takes each object, save for the statuses that are to come first."""

    protocol_version = "HTTP/1.1"

    def do_PUT(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(statuses.pop() if statuses else 200)
        self.send_header("ETag", '"0"')
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *arguments):
        pass


class Provider:
    """Gives keys that end after `minutes`, once, and then fails `failures` times."""

    def __init__(self, minutes, failures):
        self.life, self.failures, self.asked = timedelta(minutes=minutes), failures, 0

    def __call__(self):
        self.asked += 1
        if 1 < self.asked <= 1 + self.failures:
            raise ConnectionError("the role service is away")
        end = datetime.now(timezone.utc) + self.life
        return {"access_key_id": "a", "secret_access_key": "b", "token": "t", "expires_at": end}


def store(provider):
    where = {"endpoint": url, "region": "us-east-1", "client_options": {"allow_http": True}}
    return S3Store("journal", credential_provider=provider, **where)


def write(place):
    try:
        obstore.put(place, "1", b"x")
    except UnauthenticatedError:
        return "UnauthenticatedError"
    return "writes"


def early():
    provider = Provider(minutes=6, failures=1_000)
    place = store(provider)
    ends = {write(place)}
    # Keys that it has just been given are used for a tenth of a second in any case.
    until = time.monotonic() + 1
    while time.monotonic() < until:
        ends.add(write(place))
    return f"{', '.join(sorted(ends))}, provider {'not asked' if provider.asked == 1 else 'asked'}"


def late():
    provider = Provider(minutes=4, failures=1)
    place = store(provider)
    until = time.monotonic() + LIMIT_S
    while provider.asked < 2 and time.monotonic() < until:
        end = write(place)
    return f"{end}, then {write(place)}"


def refused():
    place = store(Provider(minutes=4, failures=0))
    statuses.append(503)
    return write(place)


def with_boto3():
    provider = Provider(minutes=12, failures=1)

    def keys():
        given = provider()
        token = {"access_key": given["access_key_id"], "secret_key": given["secret_access_key"], "token": given["token"]}
        return {**token, "expiry_time": given["expires_at"].isoformat()}

    inner = botocore.session.Session()
    inner._credentials = RefreshableCredentials.create_from_metadata(keys(), keys, "assume-role")
    s3 = boto3.Session(botocore_session=inner, region_name="us-east-1").client("s3", endpoint_url=url)
    s3.put_object(Bucket="journal", Key="1", Body=b"x")
    assert provider.asked > 1
    return "writes"


logging.getLogger("botocore.credentials").disabled = True
server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
server.daemon_threads = True
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_address[1]}"
seen = {
    "keys good for 6 min, provider fails from then on": early(),
    "keys good for 4 min, provider fails once": late(),
    "keys good for 4 min, S3 fails once": refused(),
    "boto3, keys good for 12 min, provider fails once": with_boto3(),
}
for what, end in seen.items():
    print(f"{what}: {end}")
expected = ["writes, provider not asked", "UnauthenticatedError, then writes", "writes", "writes"]
sys.exit(list(seen.values()) != expected)
PY
env -u HTTP_PROXY -u http_proxy -u ALL_PROXY -u all_proxy "$place/venv/bin/python" "$place/run.py"
