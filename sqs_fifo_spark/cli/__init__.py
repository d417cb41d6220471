"""The operator's commands: `sqs-fifo-spark COMMAND`, or `python -m sqs_fifo_spark COMMAND`.

They need click and rich, which the extras `cli`, `local` and `demo` bring.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec

from sqs_fifo_spark import __version__

_REFUSED, _INTERRUPTED = 3, 130
"""Exit statuses: see `output.Status`, which needs click."""


def main() -> int:
    """Run the command that the command line names, and exit with its status."""
    if sys.argv[1:] == ["--version"]:
        print(f"sqs-fifo-spark, version {__version__}")
        return 0
    try:
        if not (find_spec("click") and find_spec("rich")):
            print("error: click or rich is missing: pip install '.[cli]' in this package's sources", file=sys.stderr)
            return _REFUSED
        from sqs_fifo_spark.cli.commands import commands

        commands.main()  # which exits
    except KeyboardInterrupt:  # where no command has begun
        print("error: interrupted", file=sys.stderr)
        return _INTERRUPTED
