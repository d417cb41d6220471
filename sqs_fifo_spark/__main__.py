"""`python -m sqs_fifo_spark COMMAND`."""

from __future__ import annotations

import sys

from sqs_fifo_spark.cli import main

if __name__ == "__main__":
    sys.exit(main())
