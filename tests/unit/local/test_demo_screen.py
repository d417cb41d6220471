"""What the demo shows while it plays, and its table."""

from __future__ import annotations

import io
import re
from contextlib import redirect_stdout, suppress

import pytest

from sqs_fifo_spark.clock import SYSTEM_CLOCK, ManualClock
from sqs_fifo_spark.demo.auction import Audit
from sqs_fifo_spark.demo.play import _entries
from sqs_fifo_spark.demo.screen import Bars, Lines, Screen, make_screen, print_table

CLEAN = Audit(sent=200, delivered=200, lost=0, doubled=0, out_of_order=0, unknown=0)


class Terminal(io.StringIO):
    """A terminal that keeps what is written to it."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True

    @property
    def text(self) -> str:
        """What was written, without colours and movements of the cursor."""
        return re.sub(r"\x1b\[[?\d;]*[a-zA-Z]", "", self.getvalue())


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return Terminal()


def play(screen: Screen) -> None:
    with screen:
        screen.begin("Spark starts")
        screen.sent(150)
        screen.begin("bids arrive")
        screen.arrived(100, 40)
        screen.sent(200)
        screen.arrived(200, 200)


def test_lines_tell_of_each_step_and_of_figures_once_a_second(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is told twice, no line says that nothing has arrived, and the last figures are always told."""
    clock = ManualClock()
    with Lines(clock) as screen:
        screen.begin("Spark starts")
        for sent in range(10, 200, 10):
            screen.sent(sent)
            screen.arrived(0, 0)
            clock.advance(0.5)
        screen.arrived(100, 0)
        clock.advance(0.5)
        screen.arrived(110, 0)
        clock.advance(0.5)
        screen.arrived(120, 30)
        screen.arrived(120, 30)
        clock.advance(0.25)
        screen.arrived(190, 190)
    assert capsys.readouterr().out.splitlines() == [
        "   0.0 s  Spark starts",
        "   9.5 s  sent     190 | delivered     100 | deleted       0",
        "  10.5 s  sent     190 | delivered     120 | deleted      30",
        "  10.8 s  sent     190 | delivered     190 | deleted     190",
    ]


def test_a_terminal_sees_steps_and_three_bars(terminal: Terminal) -> None:
    """What is sent is shown before Spark runs; each step is ticked off; the last picture has all figures."""
    with redirect_stdout(terminal):
        screen = make_screen(200, SYSTEM_CLOCK)
        play(screen)
    assert isinstance(screen, Bars)
    assert re.search(r"✓ Spark starts  \d\.\d s", terminal.text)
    last = terminal.text[terminal.text.rindex("sent ") :]
    assert re.findall(r"(sent|delivered|deleted) .*? (\d+)/200", last) == [
        ("sent", "200"),
        ("delivered", "200"),
        ("deleted", "200"),
    ]


def test_a_failure_ticks_nothing_off(terminal: Terminal) -> None:
    """The step that failed was not done, and the terminal has its cursor back."""
    with redirect_stdout(terminal), suppress(ZeroDivisionError), make_screen(200, SYSTEM_CLOCK) as screen:
        screen.begin("Spark starts")
        raise ZeroDivisionError
    assert "✓" not in terminal.text
    assert terminal.getvalue().rindex("\x1b[?25h") > terminal.getvalue().rindex("\x1b[?25l")


@pytest.mark.parametrize("variables", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_who_wants_no_colours_gets_lines(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]
) -> None:
    """NO_COLOR is a word against drawing, and so is a terminal that cannot."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with redirect_stdout(terminal):
        play(make_screen(200, ManualClock()))
    assert terminal.getvalue().splitlines() == [
        "   0.0 s  Spark starts",
        "   0.0 s  bids arrive",
        "   0.0 s  sent     150 | delivered     100 | deleted      40",
        "   0.0 s  sent     200 | delivered     200 | deleted     200",
    ]


def test_the_table_shows_every_figure_of_the_audit(capsys: pytest.CaptureFixture[str]) -> None:
    """Those that should be 0, too; without a frame where there is no terminal."""
    print_table("200 bids", _entries(CLEAN, 4, 7, 5, 2.0), "Every bid arrived.", is_good=True)
    assert capsys.readouterr().out.splitlines() == [
        "",
        "200 bids",
        "",
        "  sent                200   and 4 of them a second time, with the same deduplication id",
        "  delivered           200   rows in 7 Parquet files",
        "  lost                  0   sent, but in no file",
        "  doubled               0   rows that had come before",
        "  out of order          0   in their group, within files and across micro-batches",
        "  micro-batches         5   of 40 rows on average",
        "  throughput        100/s   2.0 s from the query's start to the end",
        "",
        "Every bid arrived.",
    ]


def test_a_fault_is_red(terminal: Terminal) -> None:
    """And what is as it should be is green."""
    entries = _entries(Audit(sent=200, delivered=200, lost=1, doubled=0, out_of_order=0, unknown=1), 4, 7, 5, 2.0)
    with redirect_stdout(terminal):
        print_table("200 bids", entries, "BROKEN", is_good=False)
    told = terminal.getvalue()
    assert [entry.name for entry in entries if entry.is_good is False] == ["lost", "unknown"]
    assert "\x1b[1;31m1\x1b[0m" in told
    assert "\x1b[1;32m0\x1b[0m" in told
    assert "\x1b[1;31mBROKEN\x1b[0m" in told
