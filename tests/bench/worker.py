"""A process of a team, seen from inside: it says that it is ready, waits for the word, works, and tells what it did.

It stays until its input is closed, so that whoever started it can look at what it took.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

Work = Callable[[], Mapping[str, Any]]


def serve(prepare: Callable[[dict[str, Any]], Work]) -> None:
    """Prepare for the job on the command line, and do it when a line comes in."""
    work = prepare(json.loads(sys.argv[1]))
    print("ready", flush=True)
    if not sys.stdin.readline():
        return
    print(json.dumps(work()), flush=True)
    sys.stdin.read()
