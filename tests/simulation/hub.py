"""Processes that take turns: one runs at a time, on a clock that only the hub turns.

A process is what the operating system would kill as a whole; its threads are greenlets. The code under test is plain
synchronous code: wherever it touches the world it calls `Hub.step`, and there the hub may let somebody else go on, or
end the process. So every interleaving of effects is one sequence of dice.
"""

from __future__ import annotations

import functools
import random
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar

from greenlet import greenlet

from sqs_fifo_spark.source.pool import Answer
from tests.manual_clock import ManualClock

T = TypeVar("T")

LONGEST_TURN = 12
"""After how many steps at most another thread gets its turn."""
MOST_STEPS = 500_000
"""Of one history, turns included: an ordinary one takes about 600, one in a thousand 5,000, the longest seen 64,000."""


class Crash(BaseException):
    """The process that runs is killed: nothing of ours catches it."""


class StuckError(Exception):
    """It goes on for ever."""


class DeadlockError(StuckError):
    """All who are left wait for each other."""


class Process:
    """Threads that are killed and stall together, and end with their first one."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_alive = True
        self.stalled_until = 0.0
        self.main: Thread | None = None


class Thread:
    """One flow of control in a process; `error` is what it ended with, if not well."""

    def __init__(self, process: Process, run: Callable[[], None], name: str) -> None:
        self.process = process
        self.name = f"{process.name}{name}"
        self.is_done = False
        self.error: BaseException | None = None
        self.wake_at = 0.0
        self.awaits: Callable[[], bool] | None = None
        """A condition that wakes it earlier."""
        self._run = run
        self.greenlet = greenlet(self._main)

    def _main(self) -> None:
        try:
            self._run()
        except Crash:
            pass
        except BaseException as error:  # as a real thread ends alone, whatever ends it
            self.error = error
        finally:
            self.is_done = True


class Hub(ManualClock):
    """The scheduler, and the clock that the code under test is given.

    `chaos` is called, outside of all processes, after each of the numbers of steps that `next_chaos` draws.
    """

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self.rng = rng
        self.chaos: Callable[[], None] = lambda: None
        self.next_lapse_at: Callable[[], float | None] = lambda: None
        """Tells when the queue lets something happen that nobody calls for."""
        self.lapse: Callable[[], None] = lambda: None
        """Lets it happen, so that it is noticed at its time."""
        self.next_chaos: Callable[[], int] = lambda: 1 << 30
        self.steps = 0
        self._main = greenlet.getcurrent()
        self._threads: list[Thread] = []
        self._current: Thread | None = None
        self._turn = 0
        self._until_chaos = 0
        self._is_chaos_due = False
        self._actions: list[Callable[[], None]] = []

    def advance(self, seconds: float) -> None:
        until = self._reading + seconds
        while (at := self.next_lapse_at()) is not None and at <= until:
            self._reading = max(self._reading, at)
            self.lapse()
        super().advance(until - self._reading)

    # For the code that runs in a thread

    @property
    def current_name(self) -> str:
        return self._current.name if self._current else ""

    @property
    def current_process(self) -> Process:
        assert self._current is not None
        return self._current.process

    def step(self) -> None:
        """Stand before, or after, an effect: others may run now, and the process may be killed."""
        if self._current is None:
            return
        if not self._current.process.is_alive:
            raise Crash
        self.steps += 1
        self._turn -= 1
        self._until_chaos -= 1
        if self._until_chaos <= 0:
            self._is_chaos_due = True
        if self._turn <= 0 or self._is_chaos_due:
            self._yield()

    def sleep(self, seconds: float) -> None:
        """Let this thread alone sleep."""
        self.wait_until(lambda: False, seconds)

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        return self.wait_until(event.is_set, timeout_s)

    def wait_on(self, changed: threading.Condition, timeout_s: float) -> None:
        changed.wait(timeout_s)

    def wait_until(self, condition: Callable[[], bool], timeout_s: float = float("inf")) -> bool:
        """Return True once `condition` holds, or False after `timeout_s`."""
        if self._current is None:
            raise AssertionError("only a process can wait")
        self._current.wake_at = self.now() + timeout_s
        self._current.awaits = condition
        self._yield()
        return condition()

    def _yield(self) -> None:
        current = self._current
        assert current is not None
        if not current.process.is_alive:
            raise Crash  # it is being unwound
        self._main.switch()
        if not current.process.is_alive:
            raise Crash
        current.wake_at, current.awaits = 0.0, None

    def outside(self, action: Callable[[], None]) -> None:
        """Let `action` happen outside of all processes, before anybody goes on; it may kill the one that runs."""
        self._actions.append(action)
        self._yield()

    # For the outside

    def spawn(self, process: Process, run: Callable[[], None], name: str = "") -> Thread:
        thread = Thread(process, run, name)
        thread.greenlet.parent = self._main
        process.main = process.main or thread
        self._threads.append(thread)
        return thread

    def kill(self, process: Process) -> None:
        """End the process where it stands. From outside of it only."""
        process.is_alive = False
        for thread in [thread for thread in self._threads if thread.process is process]:
            if thread.greenlet and not thread.is_done:
                was, self._current = self._current, thread
                thread.greenlet.throw(Crash)
                self._current = was
            thread.is_done = True
        self._threads = [thread for thread in self._threads if not thread.is_done]

    def alive(self) -> list[Process]:
        """Return the processes that run, each once, oldest first."""
        return list(dict.fromkeys(thread.process for thread in self._threads))

    def threads_of(self, process: Process) -> list[Thread]:
        """Return the threads of the process that have not ended."""
        return [thread for thread in self._threads if thread.process is process and not thread.is_done]

    def run(self, until: Callable[[], bool]) -> None:
        """Let the threads take turns until the condition holds; when all sleep, time passes."""
        while not until():
            self.steps += 1
            if self.steps > MOST_STEPS:
                raise StuckError(f"it did not end in {MOST_STEPS:,} steps: {self._names()}")
            now = self.now()
            ready = [
                thread
                for thread in self._threads
                if thread.process.stalled_until <= now
                and (thread.wake_at <= now or (thread.awaits is not None and thread.awaits()))
            ]
            if not ready:
                next_at = min(map(self._ready_at, self._threads), default=float("inf"))
                if next_at == float("inf"):
                    raise DeadlockError(f"they wait for ever: {self._names()}")
                self.advance(max(0.0, next_at - now))
                continue
            thread = ready[0] if len(ready) == 1 else self.rng.choice(ready)
            self._turn = self.rng.randint(1, LONGEST_TURN)
            self._current = thread
            thread.greenlet.switch()
            self._current = None
            if thread.is_done:
                self._threads.remove(thread)
                if thread is thread.process.main:
                    self.kill(thread.process)
            while self._actions:
                self._actions.pop(0)()
            if self._is_chaos_due:
                self._is_chaos_due = False
                self._until_chaos = self.next_chaos()
                self.chaos()

    def end(self) -> None:
        """End every process that is left."""
        for process in self.alive():
            self.kill(process)

    def _names(self) -> str:
        names = [thread.name for thread in self._threads]
        return ", ".join(names[:10]) + f" and {len(names) - 10} more" * (len(names) > 10) or "nobody is left"

    def _ready_at(self, thread: Thread) -> float:
        """Return the time at which the thread can go on, unless something happens before."""
        if thread.awaits is not None and thread.awaits():
            return thread.process.stalled_until
        return max(thread.wake_at, thread.process.stalled_until)


class Threading:
    """The module `threading` for the code under test, with greenlets of the hub for threads.

    A thread belongs to the process that starts it.
    """

    Event = threading.Event

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def Lock(self) -> HubLock:
        return HubLock(self._hub)

    def Condition(self) -> HubCondition:
        return HubCondition(self._hub)

    def Thread(
        self, *, target: Callable[..., None], args: tuple[object, ...] = (), name: str, daemon: bool
    ) -> HubThread:
        return HubThread(self._hub, lambda: target(*args), name)


class HubPool:
    """A pool of threads of the process that maps: `map` is `ThreadPoolExecutor.map`, as far as it is used."""

    def __init__(self, hub: Hub, name: str, size: int) -> None:
        self._hub = hub
        self._name = name
        self._size = size
        self._waiting: deque[Callable[[], None]] = deque()
        self._working = 0

    def map(self, call: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
        answers: dict[int, Any] = {}
        errors: dict[int, Exception] = {}

        def run(index: int, item: Any) -> None:
            try:
                answers[index] = call(item)
            except Exception as error:
                errors[index] = error

        jobs = [functools.partial(run, index, item) for index, item in enumerate(items)]
        self._begin(jobs)
        if jobs:
            self._hub.wait_until(lambda: len(answers) + len(errors) == len(jobs))
        if errors:
            raise errors[min(errors)]
        return [answers[index] for index in range(len(jobs))]

    def submit(self, call: Callable[[], T]) -> Answer[T]:
        answer = HubAnswer(self._hub, call)
        self._begin([answer.run])
        return answer

    def _begin(self, jobs: Sequence[Callable[[], None]]) -> None:
        self._waiting.extend(jobs)
        while self._waiting and self._working < min(self._size, len(self._waiting)):
            self._working += 1
            self._hub.spawn(self._hub.current_process, self._work, f" {self._name}")

    def _work(self) -> None:
        while self._waiting:
            self._waiting.popleft()()
        self._working -= 1


class HubAnswer(Generic[T]):
    """`Future`, as far as it is used."""

    def __init__(self, hub: Hub, call: Callable[[], T]) -> None:
        self._hub = hub
        self._call = call
        self._results: list[T] = []
        self._error: Exception | None = None

    def run(self) -> None:
        try:
            self._results.append(self._call())
        except Exception as error:
            self._error = error

    def result(self) -> T:
        self._hub.wait_until(lambda: bool(self._results) or self._error is not None)
        if self._error is not None:
            raise self._error
        return self._results[0]


class HubLock:
    """A lock that may be held while others have their turn."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._is_held = False

    def __enter__(self) -> None:
        while self._is_held:
            self._hub.wait_until(lambda: not self._is_held)
        self._is_held = True

    def __exit__(self, *_: object) -> None:
        self._is_held = False


class HubCondition(HubLock):
    """`threading.Condition`, as far as it is used. Where its lock is released, others may have their turn."""

    def __init__(self, hub: Hub) -> None:
        super().__init__(hub)
        self._notices = 0

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self._hub.step()

    def wait(self, timeout_s: float = float("inf")) -> None:
        seen, self._is_held = self._notices, False
        self._hub.wait_until(lambda: self._notices != seen, timeout_s)
        self.__enter__()

    def notify_all(self) -> None:
        self._notices += 1


class HubThread:
    """`threading.Thread`, as far as it is used."""

    ident: int | None = None

    def __init__(self, hub: Hub, run: Callable[[], None], name: str) -> None:
        self._hub = hub
        self._run = run
        self._name = name
        self._thread: Thread | None = None

    def start(self) -> None:
        self.ident = 1
        self._thread = self._hub.spawn(self._hub.current_process, self._run, f" {self._name.rpartition('-')[2]}")

    def is_alive(self) -> bool:
        return self._thread is not None and not self._thread.is_done

    def join(self) -> None:
        self._hub.wait_until(lambda: not self.is_alive())
