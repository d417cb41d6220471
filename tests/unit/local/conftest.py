"""Fixtures of the local queue's tests: the model alone, and a server of it, each with a clock that stands still."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sqs_fifo_spark.local import LocalQueueServer
from tests.manual_clock import ManualClock
from tests.unit.local.caller import Caller
from tests.unit.local.model_queue import ModelQueue, model_queue


@pytest.fixture
def queue() -> ModelQueue:
    return model_queue()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def caller(clock: ManualClock) -> Iterator[Caller]:
    with LocalQueueServer(queues=["q.fifo", "other.fifo"], clock=clock) as server:
        yield Caller(server)
