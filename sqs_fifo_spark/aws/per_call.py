"""Values that hold for the calls which a thread makes in a block, beside their arguments."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Generic, TypeVar

T = TypeVar("T")


class PerCall(Generic[T]):
    """A value for calls: `with limit_s(3):` sets it for those made inside, which `get` it, or None."""

    def __init__(self, name: str) -> None:
        self._value: ContextVar[T | None] = ContextVar(name, default=None)
        self.get = self._value.get

    @contextmanager
    def __call__(self, value: T | None) -> Iterator[None]:
        token = self._value.set(value)
        try:
            yield
        finally:
            self._value.reset(token)
