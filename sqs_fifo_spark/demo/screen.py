"""The demo's screen: bars on a terminal, plain lines elsewhere, and the table at the end."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.spinner import Spinner
from rich.table import Table

from sqs_fifo_spark.clock import Clock

_EVERY_S = 1.0
"""Between two plain lines of figures."""


def make_screen(total: int, clock: Clock) -> Screen:
    """Return the screen for `total` messages on standard output: bars on a terminal with colours, else lines."""
    return Bars(total, clock) if is_terminal(os.environ) else Lines(clock)


def is_terminal(environment: Mapping[str, str]) -> bool:
    """True if standard output may be drawn on; NO_COLOR is a word against it."""
    return (
        sys.stdout.isatty()
        and not environment.get("NO_COLOR")
        and environment.get("TERM") != "dumb"
        and sys.stdout.encoding.lower().startswith("utf")
    )


class Lines:
    """The screen as lines: one for each step and, once something has arrived, for each second in which more did."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._started_at = clock.monotonic()
        self._sent = 0
        self._figures = (0, 0)
        self._shown = (0, 0)
        self._next_at = self._started_at

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *_: object) -> None:
        self._show()

    def begin(self, step: str) -> None:
        """Name the step that begins; the one before is over."""
        self._show()
        self._print(step)

    def sent(self, count: int) -> None:
        """Show the number of messages that the queue has taken. May be called on any thread."""
        self._sent = count

    def arrived(self, delivered: int, deleted: int) -> None:
        """Show the numbers of messages in the sink's files, and of those gone from the queue."""
        self._figures = delivered, deleted
        if self._clock.monotonic() >= self._next_at:
            self._show()

    def _show(self) -> None:
        if self._figures == self._shown:
            return
        delivered, deleted = self._shown = self._figures
        self._print(f"sent {self._sent:>7,} | delivered {delivered:>7,} | deleted {deleted:>7,}")
        self._next_at = self._clock.monotonic() + _EVERY_S

    def _print(self, text: str) -> None:
        print(f"{self._clock.monotonic() - self._started_at:>6.1f} s  {text}", flush=True)


class Bars:
    """The screen as bars, of sent, delivered and deleted messages, below the steps and the time that each took."""

    def __init__(self, total: int, clock: Clock) -> None:
        self._clock = clock
        self._step: tuple[str, float] | None = None
        self._console = Console(highlight=False)
        self._spinner = Spinner("dots", style="cyan")
        self._progress = Progress(
            TextColumn("  {task.description:<9}"), BarColumn(40), MofNCompleteColumn(), console=self._console
        )
        self._bars = {name: self._progress.add_task(name, total=total) for name in ("sent", "delivered", "deleted")}
        self._live = Live(Group(self._progress, self._spinner), console=self._console, refresh_per_second=10)

    def __enter__(self) -> Bars:
        self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._end_step()
        self._live.update(self._progress)  # without the spinner
        self._live.stop()

    def begin(self, step: str) -> None:
        self._end_step()
        self._step = step, self._clock.monotonic()
        self._spinner.update(text=step)

    def _end_step(self) -> None:
        if self._step is not None:
            step, began_at = self._step
            self._console.print(f"[green]✓[/] {step}  [dim]{self._clock.monotonic() - began_at:.1f} s")

    def sent(self, count: int) -> None:
        self._progress.update(self._bars["sent"], completed=count)

    def arrived(self, delivered: int, deleted: int) -> None:
        self._progress.update(self._bars["delivered"], completed=delivered)
        self._progress.update(self._bars["deleted"], completed=deleted)


Screen: TypeAlias = Lines | Bars
"""Shows how far the demo is, in a `with` block."""


class Entry(NamedTuple):
    """A line of the table. `is_good` is None for one that is neither good nor bad."""

    name: str
    figure: str
    note: str
    is_good: bool | None = None


def print_table(title: str, entries: Sequence[Entry], verdict: str, *, is_good: bool) -> None:
    """Print the entries and the verdict: in a frame and with colours on a terminal, else as plain lines."""
    if not is_terminal(os.environ):
        print(f"\n{title}\n")
        for each in entries:
            print(f"  {each.name:<15}{each.figure:>8}   {each.note}")
        print(f"\n{verdict}")
        return
    styles = {None: "bold", True: "bold green", False: "bold red"}
    table = Table(title=title, title_style="bold", box=box.ROUNDED, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(style="dim")
    for each in entries:
        table.add_row(each.name, f"[{styles[each.is_good]}]{each.figure}[/]", each.note)
    console = Console(highlight=False)
    console.print()
    console.print(table)
    console.print(f"[{styles[is_good]}]{verdict}[/]")
