"""Fixtures of the sink's tests: a strict queue, which every sink made in the test calls, and a store in memory."""

from __future__ import annotations

import pytest

from tests.unit.sending import Sqs, Store, patched


@pytest.fixture
def sqs(monkeypatch: pytest.MonkeyPatch) -> Sqs:
    return patched(monkeypatch)


@pytest.fixture
def store() -> Store:
    return Store()
