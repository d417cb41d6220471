#!/usr/bin/env bash
# obstore 0.12.1 (object_store below it; a change is proposed in apache/arrow-rs-object-store pull request 852)
# Bet: put(mode="create") that S3 answers with 409 ConditionalRequestConflict ("retry the upload", says S3's PutObject page)
#   is tried again within the retry_config, as 503 is; or it raises an error of its own.
# Behaviour: it is not tried again, and raises AlreadyExistsError ("Object at location k already exists"), although no
#   object exists: whoever takes that for "another writer has won" loses what it wrote. A look afterwards is needed.
# Seen: put: AlreadyExistsError after 1 PUT
#       head: FileNotFoundError
#       put again: ok
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check obstore==0.12.1
cat > "$place/run.py" <<'PY'
import sys, threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import obstore
from obstore.store import S3Store

seen, objects, conflicts = [], {}, [True]


class Handler(BaseHTTPRequestHandler):
    """S3's conditional put, in which the first request meets a conflict with another one, which fails in its turn."""

    protocol_version = "HTTP/1.1"

    def do_PUT(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        seen.append("PUT")
        if conflicts and conflicts.pop():
            self.answer(409, b"<Error><Code>ConditionalRequestConflict</Code></Error>")
        elif self.headers.get("If-None-Match") and self.path in objects:
            self.answer(412, b"<Error><Code>PreconditionFailed</Code></Error>")
        else:
            objects[self.path] = body
            self.answer(200, b"")

    def do_HEAD(self):
        self.answer(200 if self.path in objects else 404, b"")

    def answer(self, status, body):
        self.send_response(status)
        self.send_header("ETag", '"e"')
        self.send_header("Last-Modified", "Fri, 27 Nov 2026 00:00:00 GMT")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
server.daemon_threads = True
threading.Thread(target=server.serve_forever, daemon=True).start()
store = S3Store(
    "b", endpoint=f"http://127.0.0.1:{server.server_address[1]}", region="us-east-1", access_key_id="a",
    secret_access_key="b", client_options={"allow_http": True},
)


def run(call):
    try:
        call()
    except Exception as error:
        return type(error).__name__
    return "ok"


put = run(lambda: obstore.put(store, "k", b"1", mode="create"))
print(f"put: {put} after {len(seen)} PUT")
head = run(lambda: obstore.head(store, "k"))
print(f"head: {head}")
again = run(lambda: obstore.put(store, "k", b"1", mode="create"))
print(f"put again: {again}")
sys.exit((put, len(seen), head, again) != ("AlreadyExistsError", 2, "FileNotFoundError", "ok"))
PY
env -u HTTP_PROXY -u http_proxy -u ALL_PROXY -u all_proxy "$place/venv/bin/python" "$place/run.py"
