"""Bugs planted into the package: something else is put at a name of it, and everybody finds it there.

A place is a dotted name below `sqs_fifo_spark`, such as "source.queue.Queue.extend". A bug whose name has vanished
cannot be planted, and says so. Where no name stands for the code that a bug changes, it changes the text of one
function.
"""

from __future__ import annotations

import inspect
import pkgutil
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any

PACKAGE = "sqs_fifo_spark"
_WHERE_NAMES_ARE_IMPORTED = (PACKAGE, "tests.simulation")
Bug = Callable[..., Any]


@dataclass(frozen=True)
class Mutation:
    """A bug planted on purpose. `plant` puts it in place."""

    name: str
    plant: Callable[[], None]


class Mutations(list[Mutation]):
    """The bugs of one side, in order, each added by its decorator or its call."""

    def planted(self, name: str, place: str | None = None) -> Callable[[Bug], Bug]:
        """Add the function as the bug `name`: it is called where `place` was, with what was there as first argument.

        Without `place` it is called without arguments, and plants the bug itself.
        """

        def add(bug: Bug) -> Bug:
            self.append(Mutation(name, bug if place is None else lambda: instead_of(place, bug)))
            return bug

        return add

    def changed(self, name: str, place: str, value: Any) -> None:
        """Add the bug that the constant at `place` is `value`."""
        self.append(Mutation(name, lambda: put(place, value)))

    def rewritten(self, name: str, place: str, original: str, planted: str) -> None:
        """Add the bug that `original`, in the text of the function at `place`, is `planted`."""
        self.append(Mutation(name, lambda: rewrite(place, original, planted)))


_undo: list[Callable[[], None]] = []


@contextmanager
def planted(mutation: Mutation) -> Iterator[None]:
    """Have the bug in place for a while."""
    assert not _undo, "another bug is in place"
    with ExitStack() as stack:
        stack.callback(_clear)
        mutation.plant()
        yield


def _clear() -> None:
    while _undo:
        _undo.pop()()


def instead_of(place: str, bug: Bug) -> None:
    """Have `bug` called where `place` was, with what was there as its first argument."""
    owner, name = _find(place)
    original = inspect.getattr_static(owner, name)
    if isinstance(original, property):
        getter = original.fget
        put(place, property(lambda self: bug(getter, self)))
    else:
        put(place, lambda *given, **named: bug(original, *given, **named))


def put(place: str, value: Any) -> None:
    """Put `value` at `place`; a function of a module also where it was imported to, unless `place` is such a one."""
    owner, name = _find(place)
    original = getattr(owner, name)
    _set(owner, name, value)
    if isinstance(owner, ModuleType) and getattr(original, "__module__", None) == owner.__name__:
        for module_name, module in list(sys.modules.items()):
            if module_name.startswith(_WHERE_NAMES_ARE_IMPORTED) and vars(module).get(name) is original:
                _set(module, name, value)


def rewrite(place: str, original: str, planted: str) -> None:
    """Change the text of the function at `place`. Raises ValueError unless `original` is there exactly once."""
    owner, name = _find(place)
    function = getattr(owner, name)
    if not isinstance(function, FunctionType) or function.__closure__:
        raise ValueError(f"'{place}' is no plain function")
    _, start, below = textwrap.dedent("\n" + inspect.getsource(function)).partition("\ndef ")
    text = f"{start}{below}"  # without its decorators
    if text.count(original) != 1:
        raise ValueError(f"{original!r} is {text.count(original)} times in '{place}', not once")
    made: dict[str, Any] = {}
    exec(compile(text.replace(original, planted), f"<{place}>", "exec"), function.__globals__, made)
    # So that whoever has imported the function has the bug, too.
    was, function.__code__ = function.__code__, made[function.__name__].__code__
    _undo.append(lambda: setattr(function, "__code__", was))


def but(thing: Any, **others: Any) -> Any:
    """Return what acts like `thing`, but for what `others` name."""
    missing = [name for name in others if not hasattr(thing, name)]
    if missing:
        raise AttributeError(f"{type(thing).__name__} has no {missing}")

    class But:
        def __getattr__(self, name: str) -> Any:
            return others[name] if name in others else getattr(thing, name)

    return But()


def _find(place: str) -> tuple[Any, str]:
    """Return what has the last name of `place`, and that name. Raises AttributeError or ImportError if it is gone."""
    path, _, name = place.rpartition(".")
    owner = pkgutil.resolve_name(f"{PACKAGE}.{path}")
    getattr(owner, name)
    return owner, name


def _set(owner: Any, name: str, value: Any) -> None:
    if name in vars(owner):
        was = inspect.getattr_static(owner, name)
        _undo.append(lambda: setattr(owner, name, was))
    else:
        _undo.append(lambda: delattr(owner, name))  # it is inherited
    setattr(owner, name, value)
