"""From queue to queue through kills: each message once, in order, and nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from sqs_fifo_spark.local import Event
from tests.crash.processes import end_group
from tests.helpers import wait_until
from tests.spark.setups import SMALL_JVM
from tests.spark.sink import DEADLINE_S, assert_each_once_in_order, group_of, held_in
from tests.spark.support import Rig, start_app

pytestmark = [pytest.mark.long, pytest.mark.law("source-5", "sink-3")]

COUNT, GROUPS = 8_000, 400
MOMENTS = [("sent", 700), ("received", 2_500), ("deleted", 1_500)]
"""When each run is killed: when so many messages were sent to the second queue, or received or deleted in the first."""
VISIBILITY_S = 30.0


def test_a_pipeline_killed_three_times_moves_each_of_8_000_messages_once_and_in_order(rig: Rig, tmp_path: Path) -> None:
    """SIGKILL to driver and JVM while tasks send, while they receive, and while the source deletes.

    Each time the server kills them in the middle of a call that it has obeyed, so its answer never comes. When they
    start again, the messages that they held are free.
    """
    rig.send(COUNT, GROUPS)
    target = rig.create_queue("target.fifo")
    running: list[subprocess.Popen[bytes]] = []
    moment: list[tuple[str, int]] = []
    seen = 0

    def kill_at_the_moment(event: Event) -> None:
        nonlocal seen
        if moment and event.kind == moment[0][0]:
            seen += 1
            if seen == moment[0][1]:
                moment.clear()
                os.killpg(running[-1].pid, signal.SIGKILL)

    rig.server.run(lambda model: model.on_event(kill_at_the_moment))

    def start() -> subprocess.Popen[bytes]:
        log = tmp_path / f"log-{len(running)}.txt"
        options = [f"visibilityTimeoutSeconds={VISIBILITY_S:g}", "waitTimeSeconds=1", "numPartitions=4"]
        running.append(
            start_app("pipeline.py", tmp_path, rig.url, target, *options, log=log, JAVA_TOOL_OPTIONS=SMALL_JVM)
        )
        return running[-1]

    def output() -> str:
        return (tmp_path / f"log-{len(running) - 1}.txt").read_text(errors="replace")[-4000:]

    try:
        for kind, number in MOMENTS:
            seen, moment[:] = 0, [(kind, number)]
            process = start()
            assert process.wait(DEADLINE_S) == -signal.SIGKILL, output()
            assert rig.depth() != (0, 0), f"nothing was left when {number} were {kind}"
            rig.server.advance(VISIBILITY_S)
        process = start()

        def is_moved() -> bool:
            assert process.poll() is None, output()
            return rig.depth() == (0, 0)

        wait_until(is_moved, DEADLINE_S, "the first queue is empty")
    finally:
        for process in running:
            end_group(process)
    want: dict[str, list[str]] = {}
    for number in range(COUNT):
        want.setdefault(group_of(number, GROUPS), []).append(f"BODY {number}")
    assert_each_once_in_order(held_in(rig.server, target), want)
