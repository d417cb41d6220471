"""Sends messages one by one at a steady rate, in a process of its own; each body begins with when it was sent.

As little client as possible, unsigned, so that it takes nothing from what is measured.
"""

from __future__ import annotations

import time
from typing import Any

from tests.bench.queue_process import QueueProcess, body_of
from tests.bench.worker import Work, serve


def prepare(job: dict[str, Any]) -> Work:
    """Connect; the work is to send each message when it is due. `late` is how late the latest was, in seconds."""
    queue = QueueProcess(job["endpoint"], 0)
    queue.depth(job["url"])

    def work() -> dict[str, Any]:
        begun, late = time.monotonic(), 0.0
        for number in range(job["messages"]):
            due = begun + number / job["rate"]
            time.sleep(max(due - time.monotonic(), 0))
            late = max(late, time.monotonic() - due)
            queue.call(
                "SendMessage",
                QueueUrl=job["url"],
                MessageBody=f"{time.time():17.6f} {body_of(number, job['size'] - 18)}",
                MessageGroupId=f"g{number % job['groups']}",
                MessageDeduplicationId=f"{job['prefix']}{number}",
            )
        return {"count": job["messages"], "seconds": time.monotonic() - begun, "late": late}

    return work


if __name__ == "__main__":
    serve(prepare)
