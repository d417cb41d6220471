"""Spark's daemon that has imported what tasks need: how it starts, and what workers share, and do not."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.support import ROOT

STARTS_S = 120


def started(home: Path) -> tuple[int, str]:
    """Start the daemon as Spark does, and close its input: return its port, and its errors. `home` comes first."""
    path = os.pathsep.join([str(home), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-m", "sqs_fifo_spark.daemon", "pyspark.worker"],
        input=b"",
        capture_output=True,
        timeout=STARTS_S,
        env={**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "YES"},
    )
    (port,) = struct.unpack("!i", done.stdout)  # and not a byte more
    return port, done.stderr.decode()


@pytest.mark.slow
def test_daemon_says_its_port_alone_and_ends_with_its_input(tmp_path: Path) -> None:
    """Spark takes the first bytes for the port, also where a module prints as it is imported."""
    (tmp_path / "obstore.py").write_text("print('imported')\nraise ImportError('too old')\n")
    port, errors = started(tmp_path)
    assert 0 < port <= 0xFFFF
    imported, *lines = errors.splitlines()
    assert imported == "imported"
    assert lines, "the log says what is lacking"
    assert all("workers import the sink themselves" in line and "too old" in line for line in lines)


@pytest.mark.slow
def test_workers_do_not_share_their_random_numbers() -> None:
    script = """
import os
import sys
from sqs_fifo_spark.daemon import preload
import numpy.random
preload()
for _ in range(2):
    if not os.fork():
        print(numpy.random.random(), flush=True)
        os._exit(0)
    os.wait()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=STARTS_S)
    assert len(set(done.stdout.split())) == 2


@pytest.mark.slow
def test_workers_share_the_sdks_data() -> None:
    """A client of a worker reads no file of it. Nor does a task import Arrow's functions, which rows are taken with."""
    script = """
import os
import sys
from sqs_fifo_spark.daemon import preload
preload()
assert "pyarrow.compute" in sys.modules
if not os.fork():
    import botocore.loaders
    from sqs_fifo_spark.aws import client as aws
    botocore.loaders.JSONFileLoader.load_file = None
    aws.sqs_client(aws.ClientConfig("eu-west-1", "http://127.0.0.1:1"))
    print("built", flush=True)
    os._exit(0)
os.wait()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=STARTS_S)
    assert done.stdout.split() == ["built"], done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("chosen", "pool"), [({}, "system"), ({"ARROW_DEFAULT_MEMORY_POOL": "jemalloc"}, "jemalloc")])
def test_arrow_takes_memory_from_the_c_library_unless_told_otherwise(chosen: dict[str, str], pool: str) -> None:
    script = """
from sqs_fifo_spark.daemon import preload
preload()
import pyarrow
print(pyarrow.default_memory_pool().backend_name)
"""
    environment = {name: value for name, value in os.environ.items() if name != "ARROW_DEFAULT_MEMORY_POOL"}
    command = [sys.executable, "-c", script]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=STARTS_S, env={**environment, **chosen}
    )
    assert done.stdout.split() == [pool]
