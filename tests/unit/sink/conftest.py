"""Fixtures of the sink's tests: a strict queue, which every sink made in the test calls, and a store in memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.sending import Hang, Sqs, Store, patched, wait_for_threads


@pytest.fixture
def sqs(monkeypatch: pytest.MonkeyPatch) -> Sqs:
    return patched(monkeypatch)


@pytest.fixture
def hang() -> Iterator[Hang]:
    """A place for a thread, which ends at the end of the test."""
    hang = Hang()
    yield hang
    hang.end()
    wait_for_threads()


@pytest.fixture
def store() -> Store:
    return Store()
