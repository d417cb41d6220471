"""The operator's commands: `sqs-fifo-spark COMMAND`, or `python -m sqs_fifo_spark COMMAND`.

`local-queue` and `demo` need none of the packages of the extra `cli`; all other commands need click and rich.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec

_INTERRUPTED = 130


def main() -> int:
    """Run the command that the command line names, and return its exit status."""
    try:
        return _run()
    except KeyboardInterrupt:  # where no command has begun
        print("error: interrupted", file=sys.stderr)
        return _INTERRUPTED


def _run() -> int:
    if find_spec("click") and find_spec("rich"):
        from sqs_fifo_spark.cli.commands import commands

        commands.main()  # which exits
    from sqs_fifo_spark.cli import plain

    return plain.run(sys.argv[1:])
