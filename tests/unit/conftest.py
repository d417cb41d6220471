"""Fixtures of the tests that take the protocol by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from sqs_fifo_spark.aws import client as aws
from sqs_fifo_spark.aws.lean import TRANSPORT_VARIABLE
from tests.unit.by_hand import HandHeartbeat, World


@pytest.fixture
def make_world(monkeypatch: pytest.MonkeyPatch) -> Callable[..., World]:
    """Make worlds without threads; the one made last is the one whose queue is called."""
    monkeypatch.setattr("sqs_fifo_spark.source.driver.driver.Heartbeat", HandHeartbeat)
    monkeypatch.setattr("sqs_fifo_spark.source.task.attempt.Heartbeat", HandHeartbeat)
    # So that a handful of messages is worth several partitions.
    monkeypatch.setattr("sqs_fifo_spark.source.driver.planning.MESSAGES_PER_PARTITION", 4)

    # So that the names of a new journal's objects can be written down.
    monkeypatch.setattr("sqs_fifo_spark.source.driver.startup.first_claim", lambda now: 1)

    def make(seed: int = 0, **options: str) -> World:
        HandHeartbeat.live = []
        world = World(seed, **options)
        monkeypatch.setattr("sqs_fifo_spark.aws.client.sqs_client", lambda config, wait_time_s=0: world.client)
        return world

    return make


@pytest.fixture(scope="module", params=["lean", "boto3"])
def transport(request: pytest.FixtureRequest) -> Iterator[str]:
    """Let the calls to a real server be ours, then boto3's."""
    aws.forget_clients()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(TRANSPORT_VARIABLE, request.param)
        yield request.param
    aws.forget_clients()


@pytest.fixture
def world(make_world: Callable[..., World], request: pytest.FixtureRequest) -> World:
    """A world with the options with which `in_both_modes` parametrises it."""
    return make_world(**getattr(request, "param", {}))
