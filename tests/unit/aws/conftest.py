"""Fixtures of the tests of calls to AWS."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sqs_fifo_spark.aws import client as aws
from tests.unit.aws.answering import Answering, answering
from tests.unit.aws.standins import TokenService, token_service


@pytest.fixture(autouse=True)
def own_clients() -> Iterator[None]:
    """Clients built under a test's environment are forgotten after it."""
    aws.forget_clients()
    yield
    aws.forget_clients()


@pytest.fixture
def server() -> Iterator[Answering]:
    with answering() as running:
        yield running


@pytest.fixture
def sts() -> Iterator[TokenService]:
    with token_service() as running:
        yield running
