"""Operators who repair a journal while all else goes on around them, with the real commands, each in its own process.

They sit at two machines, whose files are called alike. A command may be killed, or stand still, before any of its
steps, until others have gone on; and what was asked for once may be asked for again, by another one at the same time.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest import mock

import click

from sqs_fifo_spark.cli import repair_commands as repair
from sqs_fifo_spark.errors import DataLossError, JournalCorruptError, SqsFifoError
from sqs_fifo_spark.source.queue import Queue
from tests.simulation.climate import PAUSES_S
from tests.simulation.disk import File, Kernel
from tests.simulation.hub import Process, Thread
from tests.simulation.repair_laws import Command

if TYPE_CHECKING:
    from sqs_fifo_spark.options import SourceOptions
    from tests.simulation.hub import Hub
    from tests.simulation.schedule import Schedule

MACHINES = "one", "two"
FILE = "/aside.jsonl"
MOST = 3
"""Commands that run at once."""
LONGEST_STILL_S = 100.0
GOES_ON = "after put drivers/0", "after put skipped/", "after put ledger/", "after sync", "is planned", "is in the sink"
"""Steps of others before a command that stands still goes on."""
BESIDE = "after put epochs/", "is planned", "is read", "is in the sink"
"""While a query does that, a command may begin."""

APART = (
    *("before write", "half of a write", "before sync", "after sync"),
    *("after SendMessageBatch", "before put skipped/"),
)
"""Before these steps a message stands in two places, or may, or half of its row does: more happens there."""


@dataclass(frozen=True)
class Errand:
    """An operator's errand: to move a message of an epoch aside; or, without one, to release all."""

    epoch: int = 0
    message_id: str = ""
    to_queue: bool = False


class Operators:
    """Those of one schedule, with dice of their own. `dice` decides all that they do, and what becomes of it."""

    def __init__(self, schedule: Schedule, dice: random.Random) -> None:
        self._schedule = schedule
        self.dice = dice
        self._world, self._laws = schedule.world, schedule.laws.repairs
        self._hub: Hub = schedule.hub
        self._queue_url = self._world.create_queue("aside.fifo")
        self._kernel = Kernel(self._hub, self._world.step, dice)
        self._laws.files = self._kernel.files
        self._laws.is_alive = lambda name: any(process.name == name for process in self._hub.alive())
        self._kernel.on_synced = self._laws.has_synced
        self._kernel.on_refused = self._laws.is_refused
        self._errands: list[Errand] = []
        self._count = 0
        self._machines: dict[str, str] = {}
        """The machine of each command, by the name of its process."""
        self._asked: dict[str, Errand] = {}
        self._said: dict[str, str] = {}
        """The last output of each command."""
        self._still: dict[Process, str] = {}
        """Commands that stand still, and for what."""

    # What they do

    def operate(self) -> None:
        """Let operators go to work, perhaps before anything else of ours begins."""
        commands = [self.start() for _ in range(self.dice.choice((1, 2, 2)))]
        if self.dice.random() < 0.6:
            self._hub.run(lambda: all(each.is_done for each in commands) or bool(self._schedule.laws.violations))

    def start(self, errand: Errand | None = None) -> Thread:
        """Give a command, with this errand or any, while all else goes on."""
        self._schedule.laws.is_calm = False
        self._count += 1
        process = Process(f"operator {self._count}")
        machine = self._machines[process.name] = self.dice.choice(MACHINES)
        errand, is_forced = errand or self._next_errand(), self.dice.random() < 0.65
        self._asked[process.name] = errand
        place = self._queue_url if errand.to_queue else f"{machine}:{FILE}"
        command = Command(is_forced, errand.message_id, place)

        def run() -> None:
            self._laws.begins(command)
            self._world.note(f"{errand}{' with force' * is_forced} on machine {machine}")
            try:
                self._call(errand, is_forced=is_forced)
            except Exception as error:
                self._world.note(f"{process.name} failed: {type(error).__name__}: {error}")
                self._laws.ends_badly(error)
                never = (DataLossError, JournalCorruptError)
                self._schedule.judge(process, error, (SqsFifoError, click.ClickException), never=never)
            else:
                self._laws.ends_well(json.loads(self._said[process.name]))
            self._laws.ends()

        return self._hub.spawn(process, run)

    def _call(self, errand: Errand, *, is_forced: bool) -> None:
        given: dict[str, Any] = {"journal_location": "/journal", "force": is_forced, "as_json": True}
        if not errand.message_id:
            assert repair.release.callback is not None
            repair.release.callback(**given, queue_url=self._world.url)
            return
        assert repair.skip.callback is not None
        to_queue = self._queue_url if errand.to_queue else None
        to_file = None if to_queue else Path(FILE)
        skip = {"epoch": errand.epoch, "message_id": errand.message_id, "to_file": to_file, "to_queue": to_queue}
        repair.skip.callback(**given, **skip)

    def _next_errand(self) -> Errand:
        """Return one of before, perhaps with another place; or one of what is in the journal and not settled."""
        if self._errands and self.dice.random() < 0.5:
            again = self.dice.choice(self._errands[-3:])
            is_elsewhere = bool(again.message_id) and self.dice.random() < 0.3
            return replace(again, to_queue=not again.to_queue) if is_elsewhere else again
        held: list[tuple[int, str]] = []
        if self.dice.random() < 0.85 and "journal.json" in self._world.store.objects:
            journal = self._world.journal()
            settled = journal.ledger().epoch
            for epoch, names in journal.objects().items():
                for name in names if epoch > settled else ():
                    held += ((epoch, receipt.message_id) for receipt in journal.receipts(name))
        if not held:
            return Errand()
        epoch, message_id = self.dice.choice(held)
        epoch += self._count % 8 == 0  # perhaps the one after it, to which the message is not carried any more
        self._errands.append(Errand(epoch, message_id, self.dice.random() < 0.4))
        return self._errands[-1]

    # What becomes of it

    def step(self, event: str) -> None:
        """Somebody takes a step: it may be the last one of a command, or the first one of another."""
        process = self._hub.current_process
        if process.name in self._machines:
            self._laws.steps(event)
            is_apart = event.startswith(APART)
            fate = self.dice.random() * (0.1 if is_apart else 1.0)
            if fate < 0.004:
                self._hub.outside(lambda: self._kill(process, is_apart=is_apart))
            elif fate < 0.016:
                self._hub.outside(lambda: self._stand_still(process, is_apart=is_apart))
        elif "query" in process.name:
            if event.startswith("before put drivers/0") and self.dice.random() < 0.1:
                pause_s = self.dice.choice(PAUSES_S)
                self._world.note(f"stands still for {pause_s} s before its claim")
                process.stalled_until = self._hub.now() + pause_s
                self._start_one_more()
            elif (event.startswith(BESIDE) or event.endswith(BESIDE)) and self.dice.random() < 0.015:
                self._start_one_more()
        if self._still:
            self._wake(process, event)

    def _wake(self, by: Process, event: str) -> None:
        for each in [each for each, until in self._still.items() if each is not by and until in event]:
            del self._still[each]
            each.stalled_until = 0.0

    def _start_one_more(self, errand: Errand | None = None) -> None:
        if len(self._at_work()) < MOST:
            self.start(errand)

    def _at_work(self) -> list[Process]:
        return [process for process in self._hub.alive() if process.name in self._machines]

    def _kill(self, process: Process, *, is_apart: bool) -> None:
        """Kill a command; where its message may be in two places, somebody gives it again."""
        self._world.note(f"kill -9 of {process.name}")
        self._hub.kill(process)
        if is_apart and self.dice.random() < 0.8:
            self._start_one_more(self._asked[process.name])

    def _stand_still(self, process: Process, *, is_apart: bool) -> None:
        """Let a command stand still for others; where its message is in two places, for one that moves it, too."""
        until = "after put skipped/" if is_apart and self.dice.random() < 0.6 else self.dice.choice(GOES_ON)
        self._still[process] = until
        process.stalled_until = self._hub.now() + LONGEST_STILL_S
        self._world.note(f"{process.name} stands still until somebody '{until}'")
        if self.dice.random() < (0.8 if is_apart else 0.4):
            self._start_one_more(self._asked[process.name] if is_apart or self.dice.random() < 0.5 else None)
        if self.dice.random() < 0.3 and not any(each.name.startswith("query") for each in self._hub.alive()):
            self._schedule.start_query()

    def lie(self) -> str:
        """Return what becomes of a put of a command's, as `MemoryStore.lies_about` has it."""
        fate = self.dice.random()
        return "raise" if fate < 0.03 else "refuse" if fate < 0.04 else ""

    def end(self) -> None:
        """Kill those who are at work: they might stop whoever comes next."""
        for process in self._at_work():
            self._hub.kill(process)

    # What the commands find

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Put the simulated parts where the commands look for the real ones."""
        world, hub = self._world, self._hub

        def machine() -> str:
            return self._machines[hub.current_process.name]

        def opened(file: Path) -> File:
            return self._kernel.open(f"{machine()}:{file}")

        def source_queue(options: SourceOptions, clock: Hub) -> Queue:
            return Queue(options, clock, world.pool)

        def echo(text: str, err: bool = False) -> None:
            world.note(f"says {text}")
            if not err:
                self._said[hub.current_process.name] = text

        def answer(call: Callable[[], Any], whose: str, within_s: float) -> Any:
            return call()

        with ExitStack() as stack:
            for place, there in {
                "click.echo": echo,
                "sqs_fifo_spark.cli.view.open_store": lambda *_: world.store,
                "sqs_fifo_spark.cli.queue_checks.answer": answer,
                "sqs_fifo_spark.cli.queue_checks.SYSTEM_CLOCK": hub,
                "sqs_fifo_spark.cli.repair_commands.SYSTEM_CLOCK": hub,
                "sqs_fifo_spark.cli.repair_commands.Queue": source_queue,
                "sqs_fifo_spark.cli.repair_commands._open_to_add": opened,
                "sqs_fifo_spark.cli.repair_commands.fcntl": self._kernel,
                "sqs_fifo_spark.cli.repair_commands.os": self._kernel,
                "sqs_fifo_spark.source.repair.socket": SimpleNamespace(gethostname=machine),
                "sqs_fifo_spark.source.repair._operator": lambda: "somebody",
                "sqs_fifo_spark.source.owner.socket": SimpleNamespace(gethostname=lambda: "three"),
                "sqs_fifo_spark.source.owner.os": SimpleNamespace(getpid=lambda: 1),  # a trace is the same everywhere
            }.items():
                stack.enter_context(mock.patch(place, there))
            yield
