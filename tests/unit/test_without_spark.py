"""A Python without PySpark, as that of an editor or of a machine that only runs the local queue."""

from __future__ import annotations

import subprocess
import sys

import pytest

WITHOUT = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "pyspark":
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)

sys.meta_path.insert(0, Missing())
"""


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", WITHOUT + code], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    "code",
    [
        "from sqs_fifo_spark import SqsFifoDataSource",
        "from sqs_fifo_spark import in_group_order",
        "import sqs_fifo_spark.datasource",
        "import sqs_fifo_spark.ordering",
        "import sqs_fifo_spark.watch",
        "from sqs_fifo_spark.watch import Prometheus",
        # Asked for by who has a session, so by another Python than this.
        "import sqs_fifo_spark; sqs_fifo_spark.register(None)",
    ],
)
def test_what_needs_spark_says_so_in_one_line(code: str) -> None:
    """Which Python lacks it, and what to do; an ImportError, for who catches that."""
    ran = run(code)
    assert ran.returncode == 1
    assert ran.stderr.splitlines()[-1] == (
        f"sqs_fifo_spark.errors.MissingPackageError: {sys.executable} has no PySpark 4.0 or later (No module named "
        "'pyspark'). Use the Python of your Spark platform, or install it: pip install 'pyspark>=4.0'"
    )


@pytest.mark.parametrize(
    "code",
    [
        "import sqs_fifo_spark, sqs_fifo_spark.local",
        "import sqs_fifo_spark.options",
        "import pyspark_sqsfifo; assert not hasattr(pyspark_sqsfifo, 'DefaultSource')",
        "from sqs_fifo_spark.local import LocalQueueServer\nwith LocalQueueServer(queues=['q.fifo']): pass",
    ],
)
def test_the_rest_does_without(code: str) -> None:
    """Nothing is imported before it is used."""
    ran = run(code)
    assert ran.returncode == 0, ran.stderr


def test_the_local_queue_needs_aiohttp_alone() -> None:
    """None of the package's own requirements: it can be installed without them."""
    ran = run(
        "others = ('boto3', 'botocore', 'click', 'obstore', 'pyarrow', 'rich', 'tenacity')\n"
        "sys.modules.update(dict.fromkeys(others))\n"
        "from sqs_fifo_spark.local import LocalQueueServer\n"
        "with LocalQueueServer(queues=['q.fifo']) as server: print(server.messages())"
    )
    assert (ran.returncode, ran.stdout) == (0, "[]\n"), ran.stderr


def test_the_demo_says_what_it_needs() -> None:
    """And ends."""
    ran = run("import sys; from sqs_fifo_spark.__main__ import main; sys.argv[1:] = ['demo']; sys.exit(main())")
    assert (ran.returncode, ran.stdout) == (3, "")
    assert ran.stderr.startswith("demo: pyspark is missing: pip install '.[demo]' in this package's sources")
