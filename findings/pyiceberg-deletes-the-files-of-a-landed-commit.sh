#!/usr/bin/env bash
# pyiceberg 0.12.0 with GlueCatalog, boto3 1.44.8; Glue is a stand-in of 40 lines that compares VersionId as AWS documents
# Bet: the answer to one UpdateTable is lost, boto3 asks again, and Glue says ConcurrentModificationException. With the
#   table property commit.retry.num-retries=0, which keeps an append from being put on top of another commit,
#   append raises CommitFailedException, and the rows that have landed are there.
# Behaviour: PyIceberg takes the exception for a proof that nothing has landed, and deletes the manifests and the manifest
#   list of its commit. Glue's table points to them: each later read and each later append of the table fails. With the
#   default of four retries it looks first whether its snapshot is there, raises nothing, and the rows are there once.
# Cost: one dropped connection, and the whole table cannot be read any more, for a setting that was to prevent doubles.
# Seen: 4 retries: append ok; rows: [1, 2]
#       0 retries: append CommitFailedException; rows: FileNotFoundError
#       0 retries, the next append: FileNotFoundError
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check \
  pyiceberg==0.12.0 boto3==1.44.8 botocore==1.44.8 pyarrow==21.0.0
cat > "$place/run.py" <<'PY'
import json, logging, sys, threading, warnings
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pyarrow
from pyiceberg.catalog.glue import GlueCatalog

logging.disable(logging.WARNING)
warnings.simplefilter("ignore")
place = sys.argv[1]


class Glue(BaseHTTPRequestHandler):
    """Tables with a version each, which UpdateTable must name; it may lose one answer after its effect."""

    protocol_version = "HTTP/1.1"
    tables, loses = {}, False

    def log_message(self, *_):
        pass

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer = getattr(self, self.headers["X-Amz-Target"].partition(".")[2])(asked)
        if answer is None:
            self.close_connection = True
            return
        data = json.dumps(answer).encode()
        self.send_response(400 if "__type" in answer else 200)
        self.send_header("Content-Type", "application/x-amz-json-1.1")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def GetDatabase(self, asked):
        return {"Database": {"Name": asked["Name"]}}

    def GetTable(self, asked):
        table = self.tables.get(asked["Name"])
        return {"Table": table} if table else {"__type": "EntityNotFoundException"}

    def CreateTable(self, asked):
        given = asked["TableInput"]
        self.tables[given["Name"]] = {**given, "DatabaseName": "n", "VersionId": "0"}
        return {}

    def UpdateTable(self, asked):
        given = asked["TableInput"]
        version = self.tables[given["Name"]]["VersionId"]
        if asked.get("VersionId") != version:
            return {"__type": "ConcurrentModificationException"}
        self.tables[given["Name"]] = {**given, "DatabaseName": "n", "VersionId": str(int(version) + 1)}
        Glue.loses, is_lost = False, Glue.loses
        return None if is_lost else {}


server = ThreadingHTTPServer(("127.0.0.1", 0), Glue)
threading.Thread(target=server.serve_forever, daemon=True).start()
address = {"glue.endpoint": f"http://127.0.0.1:{server.server_port}", "glue.region": "eu-west-1"}
keys = {"glue.access-key-id": "any", "glue.secret-access-key": "any"}
catalog = GlueCatalog("c", **address, **keys)


def one(number):
    return pyarrow.table({"id": pyarrow.array([number], pyarrow.int64())})


def told(step):
    try:
        return step()
    except Exception as error:
        return type(error).__name__


def append(name, number):
    catalog.load_table(name).append(one(number))
    return "ok"


def rows(name):
    return sorted(catalog.load_table(name).scan().to_arrow()["id"].to_pylist())


seen = []
for retries in ("4", "0"):
    name = f"n.with{retries}"
    properties = {"commit.retry.num-retries": retries}
    catalog.create_table(name, one(1).schema, location=f"file://{place}/with{retries}", properties=properties)
    append(name, 1)
    Glue.loses = True
    seen.append((told(lambda: append(name, 2)), told(lambda: rows(name))))
    print(f"{retries} retries: append {seen[-1][0]}; rows: {seen[-1][1]}")
seen.append(told(lambda: append("n.with0", 3)))
print("0 retries, the next append:", seen[-1])
sys.exit(seen != [("ok", [1, 2]), ("CommitFailedException", "FileNotFoundError"), "FileNotFoundError"])
PY
"$place/venv/bin/python" "$place/run.py" "$place"
