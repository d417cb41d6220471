"""All commands: help, versions, wrong usage, and how they end."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from sqs_fifo_spark.cli.commands import Commands, commands
from sqs_fifo_spark.cli.output import Status, print_error, printable
from sqs_fifo_spark.options import ConnectionOptions
from tests.helpers import run_python
from tests.unit.cli.conftest import Rig, error_of


def all_commands(group: Commands = commands, path: str = "") -> Iterator[tuple[str, click.Command]]:
    with click.Context(group) as ctx:
        for name in group.list_commands(ctx):
            command = group.get_command(ctx, name)
            assert command is not None, name
            yield f"{path}{name}", command
            if isinstance(command, Commands):
                yield from all_commands(command, f"{path}{name} ")


def test_every_command_and_every_flag_has_its_help() -> None:
    """Nobody has to read the code."""
    found = dict(all_commands())
    assert {"doctor", "journal show", "journal cat", "send", "peek", "local-queue", "demo"} <= set(found)
    for name, command in found.items():
        assert command.help, name
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                assert parameter.help, f"{name} {parameter.opts}"


@pytest.mark.parametrize("name", [name for name, _ in all_commands()])
def test_help_is_printed_and_all_is_well(name: str) -> None:
    result = CliRunner().invoke(commands, [*name.split(), "--help"])
    assert result.exit_code == Status.OK
    assert result.stdout.lower().startswith("usage: sqs-fifo-spark")


@pytest.mark.parametrize(
    "name", ["doctor", "send", "peek", "journal show", "journal cat", "journal export", "journal release"]
)
def test_each_option_of_a_connection_is_a_flag(name: str) -> None:
    """Those that are added later, too, for they come from the options' own table; but no secret, which `ps` shows."""
    flags = {flag for parameter in dict(all_commands())[name].params for flag in parameter.opts}
    assert {"--queue-url", "--endpoint-url", "--role-arn"} <= flags
    secrets = {"access_key_id", "secret_access_key", "session_token"}
    has_journal = name not in ("send", "peek")
    for each in dataclasses.fields(ConnectionOptions):
        is_flag = each.name not in secrets and (has_journal or not each.name.startswith("journal_"))
        assert ("--" + each.name.replace("_", "-") in flags) is is_flag
    assert not any("key" in flag or "token" in flag for flag in flags)


def test_exit_statuses_stand_in_the_help() -> None:
    printed = CliRunner().invoke(commands, ["--help"]).stdout
    for status in Status:
        assert f"\n    {int(status)}  " in printed


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["frobnicate"], "No such command 'frobnicate'. See 'sqs-fifo-spark --help'."),
        (["peek", "--frob"], "See 'sqs-fifo-spark peek --help'."),
        (["peek"], "option 'queueUrl' is missing."),
        (["peek", "--queue-url", "a/b"], "option 'queueUrl' is 'a/b'; it must be a queue's URL, ARN, or name, such as"),
        (["journal", "show"], "Missing option '--journal-location'."),
        *(
            (["journal", "show", "--journal-location", wrong], "'journalLocation' holds line breaks or other")
            for wrong in ("/a\nb", "s3://a/b\nc", "/no\udcff-utf-8")
        ),
        (["journal", "show", "--journal-location", ""], "'journalLocation' is empty"),
        (["journal", "show", "--journal-location", "/tmp/x", "--role-arn", "x"], "option 'roleArn' is 'x'"),
        (["doctor", "--queue-url", "https://h/1/b.fifo", "--role", "x"], "'x' is not one of"),
        (["doctor", "--queue-url", "https://h/1/b.fifo", "--journal-location", "x"], "a path must be absolute"),
    ],
)
def test_wrong_usage_is_one_line_and_status_2(rig: Rig, arguments: list[str], says: str) -> None:
    """Before anything is called."""
    result = rig.run(*arguments)
    assert says in error_of(result, Status.USAGE)
    assert result.stdout == ""


@pytest.mark.parametrize("group", [[], ["journal"]])
def test_a_group_without_a_command_shows_its_help(rig: Rig, group: list[str]) -> None:
    result = rig.run(*group)
    assert result.exit_code == Status.USAGE
    assert "Commands:" in result.stderr


@pytest.mark.parametrize("command", [["peek"], ["send", "--group", "g", "--body", "x", "--dedup-id", "1"]])
def test_an_unreachable_queue_is_one_line_and_status_3(rig: Rig, command: list[str]) -> None:
    """As a queue is that does not exist."""
    result = rig.run(*command, "--queue-url", rig.url.replace("bids", "bidz"))
    assert "does not exist" in error_of(result, Status.REFUSED)


def test_what_is_printed_moves_no_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    """Text from others may hold anything, and a terminal would obey it."""
    assert printable("a\x1b[2J\x9b\n\u202e") == r"a\x1b[2J\x9b\n\u202e"
    print_error("a\nb\x1b")
    assert capsys.readouterr().err == "error: a b\\x1b\n"


def test_an_interruption_before_a_command_begins_is_one_line() -> None:
    code = (
        "import sys\n"
        "from sqs_fifo_spark import cli\n"
        "def find_spec(name):\n"
        "    raise KeyboardInterrupt\n"
        "cli.find_spec = find_spec\n"
        "sys.exit(cli.main())\n"
    )
    ran = run_python(code)
    assert (ran.returncode, ran.stderr) == (Status.INTERRUPTED, "error: interrupted\n")


@pytest.mark.slow
def test_a_reader_that_has_gone_ends_a_command_without_a_traceback(rig: Rig) -> None:
    """As `| head` does."""
    rig.send(*map(str, range(10)))
    command = [sys.executable, "-m", "sqs_fifo_spark", "peek", "--queue-url", rig.url, "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        told = process.stderr.read()
        assert process.wait(60) == Status.PROBLEM
    assert told == b""
    assert [count for _, _, count in rig.receive()] == [2] * 10
