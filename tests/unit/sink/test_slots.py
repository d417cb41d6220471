"""The tasks that share `maxCallsPerSecond`: as many as Spark's settings let run at once, where they say so."""

from __future__ import annotations

import itertools
import os
import threading

import pytest

from sqs_fifo_spark.errors import OptionError
from sqs_fifo_spark.sink.sender import Sender
from sqs_fifo_spark.sink.sink_queue import SinkQueue
from sqs_fifo_spark.sink.slots import tasks_at_once
from tests.unit.sending import LONG_S, STRICT, Noted, Sqs, finish, rows, threads


def slots(master: str, **settings: str) -> int:
    given = {"spark.master": master, **{f"spark.{name.replace('_', '.')}": value for name, value in settings.items()}}
    return tasks_at_once(given.get)


@pytest.mark.parametrize(
    ("master", "settings", "expected"),
    [
        ("local", {}, 1),
        ("local[4]", {}, 4),
        ("local[4,3]", {"task_cpus": "2"}, 2),
        ("local[*]", {}, len(os.sched_getaffinity(0))),
        ("local-cluster[2, 4, 1024]", {"task_cpus": "2"}, 4),
        ("spark://host:7077", {"cores_max": "40", "executor_cores": "4"}, 40),
        ("spark://host:7077", {"executor_instances": "3", "executor_cores": "4"}, 12),
        ("yarn", {}, 2),
        ("yarn", {"cores_max": "2", "executor_instances": "10", "executor_cores": "4"}, 40),
        ("yarn", {"dynamicAllocation_enabled": "TRUE", "dynamicAllocation_maxExecutors": "50"}, 50),
        ("yarn", {"executor_instances": "10", "executor_cores": "5", "task_cpus": "2"}, 20),
        ("k8s://https://host", {"dynamicAllocation_enabled": "true", "dynamicAllocation_maxExecutors": "7"}, 7),
    ],
)
def test_spark_runs_at_most_as_many_tasks_at_once(master: str, settings: dict[str, str], expected: int) -> None:
    """By its own defaults, where it has any."""
    assert slots(master, **settings) == expected


@pytest.mark.parametrize(
    ("master", "settings"),
    [
        ("spark://host:7077", {}),
        ("spark://host:7077", {"executor_instances": "3"}),
        ("yarn", {"dynamicAllocation_enabled": "true", "executor_instances": "3"}),
        ("", {"executor_cores": "many", "executor_instances": "3"}),
    ],
)
def test_where_settings_do_not_say_it_the_option_is_refused(master: str, settings: dict[str, str]) -> None:
    """A guess would let the tasks exceed the limit, or leave much of it unused."""
    with pytest.raises(OptionError, match="do not say how many tasks run at once"):
        slots(master, **settings)


def test_no_second_has_more_calls_than_a_tasks_share(sqs: Sqs) -> None:
    """Its turns are by its number; rows that come while a call waits for its turn go with it."""
    at: list[float] = []
    sqs.before = lambda bodies: at.append(sqs.clock.monotonic())
    began = sqs.clock.monotonic()
    queue = SinkQueue(sqs.options(maxCallsPerSecond="2"), sqs.clock, sharer=11, sharers=8)
    finish(Sender(queue, Noted(), sqs.clock, STRICT), *(f"a{number}" for number in range(5)))
    assert at[0] - began >= 1.5
    assert all(later - earlier >= 4 - 1e-6 for earlier, later in itertools.pairwise(at))
    assert len(at) == 5


def test_a_stop_ends_the_wait_for_a_turn(sqs: Sqs, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it is, and without a call."""
    is_waiting = threading.Event()

    def wait(event: threading.Event, timeout_s: float) -> bool:
        is_waiting.set()
        return event.wait(LONG_S)

    monkeypatch.setattr(sqs.clock, "wait", wait)
    queue = SinkQueue(sqs.options(maxCallsPerSecond="1"), sqs.clock, sharer=999, sharers=1000)
    sender = Sender(queue, Noted(), sqs.clock, STRICT)
    sender.add(rows("a1"))
    assert is_waiting.wait(LONG_S)
    sender.stop()
    assert (threads(), sqs.calls) == ([], [])
