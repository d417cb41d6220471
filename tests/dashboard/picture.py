"""The picture in the documents, and of which panels it is."""

from __future__ import annotations

import hashlib
import json
import os
import struct
import subprocess
import zlib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PICTURE = ROOT / "sqs_fifo_spark" / "docs" / "dashboard.png"
NODE_HOME = ROOT / "artifacts" / "dashboard"
GRAFANA = "10.4.19"
"""The version of its components, one that exports `TimeSeries`."""
NODE_PACKAGES = [f"@grafana/ui@{GRAFANA}", f"@grafana/data@{GRAFANA}", "@fontsource/inter@5.3.0"]
NODE_PACKAGES += ["react@18.3.1", "react-dom@18.3.1", "esbuild@0.28.2"]
WIDTH, HEIGHT = 1200, 920
PAGE = """<!doctype html><meta charset="utf-8"><link rel="stylesheet" href="draw.css">
<body style="margin:0;background:#f4f5f5"><div id="root"></div>
<script src="shot.js"></script><script src="draw.js"></script>"""


def mark(panels: list[dict[str, Any]]) -> bytes:
    """Return the PNG chunk by which a picture says of which panels it is, their descriptions aside."""
    seen = [{key: value for key, value in panel.items() if key != "description"} for panel in panels]
    data = b"tEXtPanels\0" + hashlib.sha256(json.dumps(seen).encode()).hexdigest().encode()
    return struct.pack(">I", len(data) - 4) + data + struct.pack(">I", zlib.crc32(data))


def draw(shot: dict[str, Any]) -> None:
    """Bundle Grafana's components, and let Chromium make the picture."""
    if not (NODE_HOME / "node_modules").exists():
        NODE_HOME.mkdir(parents=True, exist_ok=True)
        npm = ["npm", "install", "--no-audit", "--no-fund", "--loglevel=error", "--ignore-scripts"]
        subprocess.run([*npm, "--prefix", str(NODE_HOME), *NODE_PACKAGES], check=True, stdout=subprocess.DEVNULL)
    bundle: list[str | Path] = [NODE_HOME / "node_modules" / ".bin" / "esbuild", Path(__file__).with_name("draw.jsx")]
    bundle += ["--bundle", "--minify", "--log-level=error", "--outfile=draw.js"]
    bundle += ["--loader:.woff=dataurl", "--loader:.woff2=dataurl", '--define:process.env.NODE_ENV="production"']
    environment = {**os.environ, "NODE_PATH": str(NODE_HOME / "node_modules")}
    subprocess.run(bundle, check=True, cwd=NODE_HOME, env=environment)
    (NODE_HOME / "shot.js").write_text(f"window.SHOT = {json.dumps(shot)}")
    (NODE_HOME / "page.html").write_text(PAGE)
    picture = NODE_HOME / "dashboard.png"
    chromium = ["chromium", "--headless", "--disable-gpu", "--hide-scrollbars", "--enable-logging=stderr"]
    chromium += ["--no-sandbox"] if os.geteuid() == 0 else []
    chromium += [f"--window-size={WIDTH},{HEIGHT}", "--virtual-time-budget=10000", f"--screenshot={picture}"]
    done = subprocess.run([*chromium, (NODE_HOME / "page.html").as_uri()], capture_output=True, text=True, check=True)
    if '"drawn"' not in done.stderr:
        raise SystemExit("\n".join(line for line in done.stderr.splitlines() if "CONSOLE" in line))
    data = picture.read_bytes()
    end = data.rindex(b"IEND") - 4
    PICTURE.write_bytes(data[:end] + mark(shot["dashboard"]["panels"]) + data[end:])
