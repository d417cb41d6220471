"""The Python interpreters that Spark starts on this machine: the packages that they lack."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence

REQUIRED = ("sqs_fifo_spark", "pyarrow", "boto3", "obstore", "tenacity")
"""Imports of Spark's Python workers."""
_PROBE = """
import json, sys
from importlib.util import find_spec
sys.path[:0] = sys.argv[2:]
print(json.dumps([[name for name in json.loads(sys.argv[1]) if find_spec(name) is None], sys.version.split()[0]]))
"""
_PROBE_S = 60.0


def ask(
    python: str, names: Sequence[str], paths: Sequence[str] = (), environment: Mapping[str, str] | None = None
) -> tuple[list[str], str] | None:
    """Return those of these modules that the interpreter lacks, and its version; None if it gives no answer.

    It looks in `paths` first, and is started in this process's environment unless another is given.
    """
    command = [python, "-c", _PROBE, json.dumps(names), *paths]
    try:
        done = subprocess.run(
            command, capture_output=True, check=True, env=environment, timeout=_PROBE_S, stdin=subprocess.DEVNULL
        )
        missing, version = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return missing, version
