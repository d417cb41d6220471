"""The world of a test of the source, or its queue on a server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sqs_fifo_spark.clock import ManualClock
from sqs_fifo_spark.local import Faults, LocalQueueServer
from tests.unit.by_hand import MakeWorld, World
from tests.unit.source.rig import Rig


@pytest.fixture
def world(make_world: MakeWorld, request: pytest.FixtureRequest) -> World:
    """A world with the test's own options, beside those that its module has for all of its tests in `OPTIONS`."""
    return make_world(**{**getattr(request.module, "OPTIONS", {}), **getattr(request, "param", {})})


@pytest.fixture(scope="module")
def server_clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(scope="module")
def server(server_clock: ManualClock) -> Iterator[LocalQueueServer]:
    with LocalQueueServer(clock=server_clock) as running:
        yield running


@pytest.fixture
def rig(server: LocalQueueServer, server_clock: ManualClock) -> Iterator[Rig]:
    server.faults = Faults()
    rig = Rig(server, server_clock)
    server.requests.clear()
    yield rig
    server.faults = Faults()
    rig.client.close()
