"""The world of a test of the source."""

from __future__ import annotations

import pytest

from tests.unit.by_hand import MakeWorld, World


@pytest.fixture
def world(make_world: MakeWorld, request: pytest.FixtureRequest) -> World:
    """A world with the test's own options, beside those that its module has for all of its tests in `OPTIONS`."""
    return make_world(**{**getattr(request.module, "OPTIONS", {}), **getattr(request, "param", {})})
