#!/usr/bin/env bash
# obstore 0.12.1 (object_store and reqwest below it; reported for reqwest in seanmonstar/reqwest issue 2784)
# Bet: `read_timeout` of client_options is an idle limit: "applies to each read operation, and resets after a successful
#   read". So an upload whose bytes are taken steadily is not ended by it, while `timeout` allows it.
# Behaviour: it runs from the begin of the request until the first byte of the answer, so it bounds a whole upload. With
#   read_timeout=1s and timeout=60s a put that the server takes in 3 s fails after 1 s. The same put without read_timeout
#   succeeds, and a download of the same size at the same pace succeeds with it.
# Seen: put without read_timeout: ok after 3.0 s
#       get with read_timeout=1s: ok after 3.0 s
#       put with read_timeout=1s: GenericError after 1.0 s, kind: Timeout
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check obstore==0.12.1
cat > "$place/run.py" <<'PY'
import sys, threading, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import obstore
from obstore.store import S3Store

SIZE, STEP, PACE = 3 << 20, 1 << 16, 1 << 20  # 3 MiB at 1 MiB/s, a step every 1/16 s


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_PUT(self):
        for _ in range(int(self.headers["Content-Length"]) // STEP):
            self.rfile.read(STEP)
            time.sleep(STEP / PACE)
        self.begin(0)

    def do_GET(self):
        self.begin(SIZE)
        for _ in range(SIZE // STEP):
            self.wfile.write(bytes(STEP))
            time.sleep(STEP / PACE)

    def begin(self, length):
        self.send_response(200)
        self.send_header("ETag", '"e"')
        self.send_header("Last-Modified", "Fri, 27 Nov 2026 00:00:00 GMT")
        self.send_header("Content-Length", str(length))
        self.end_headers()

    def log_message(self, *arguments):
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *arguments):
        pass  # the client has gone


server = Server(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()


def run(what, call, **options):
    store = S3Store(
        "b", endpoint=f"http://127.0.0.1:{server.server_address[1]}", region="us-east-1", access_key_id="a",
        secret_access_key="b", client_options={"allow_http": True, "timeout": "60s", **options},
        retry_config={"max_retries": 0},
    )
    started = time.monotonic()
    try:
        call(store)
        end = "ok"
    except obstore.exceptions.GenericError as error:
        end = "GenericError, kind: Timeout" if "kind: Timeout" in str(error) else f"GenericError: {error}"
    took_s = time.monotonic() - started
    print(f"{what}: {end} after {took_s:.1f} s")
    return end, took_s


def put(store):
    obstore.put(store, "k", bytes(SIZE), use_multipart=False)


plain = run("put without read_timeout", put)
get = run("get with read_timeout=1s", lambda store: obstore.get(store, "k").bytes(), read_timeout="1s")
ended = run("put with read_timeout=1s", put, read_timeout="1s")
sys.exit(not (plain[0] == get[0] == "ok" and ended[0].endswith("Timeout") and ended[1] < 2))
PY
env -u HTTP_PROXY -u http_proxy -u ALL_PROXY -u all_proxy "$place/venv/bin/python" "$place/run.py"
