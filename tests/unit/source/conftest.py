"""The world of a test of the source, its queue on a server, its journal, or a lease of its."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sqs_fifo_spark.local import Faults, LocalQueueServer
from sqs_fifo_spark.source.journal_objects import Journal
from sqs_fifo_spark.source.lease import Lease
from tests.manual_clock import ManualClock
from tests.unit.by_hand import MakeWorld, World
from tests.unit.source.leases import HEARTBEAT_S, VISIBILITY_S, ModelQueue
from tests.unit.source.rig import Rig
from tests.unit.source.stores import ARN, FaultyStore


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


@pytest.fixture
def store(tmp_path: Path) -> FaultyStore:
    return FaultyStore(tmp_path)


@pytest.fixture
def journal(store: FaultyStore) -> Journal:
    return Journal.create(store, ARN)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def queue(clock: ManualClock) -> ModelQueue:
    return ModelQueue(clock)


@pytest.fixture
def lease(queue: ModelQueue, clock: ManualClock) -> Lease:
    return Lease(queue, clock, visibility_timeout_s=VISIBILITY_S, heartbeat_s=HEARTBEAT_S)
