"""`local-queue` in a process of its own: its lines, its end, and its needs."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys

import pytest

from tests.unit.local.caller import call

COMMAND = [sys.executable, "-W", "error", "-m", "sqs_fifo_spark", "local-queue"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_command_prints_its_endpoint_and_exits_zero_on_a_signal(number: signal.Signals) -> None:
    """Flushed lines tell where it is and what to give as `queueUrl`; queues and faults are as the flags say."""
    flags = ["--port", "0", "--queue", "a.fifo", "--throttle", "1", "--fault-action", "SendMessage"]
    flags += ["--fault-queue", "a.fifo", "--plan", "server_error:ListQueues:2"]
    with subprocess.Popen([*COMMAND, *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        try:
            assert line.startswith("local SQS FIFO queue at http://127.0.0.1:")
            endpoint = line.split()[-1]
            assert process.stdout.readline() == f"queueUrl: {endpoint}/000000000000/a.fifo\n"
            assert call(endpoint, "ListQueues")[1] == {"QueueUrls": [f"{endpoint}/000000000000/a.fifo"]}
            assert call(endpoint, "ListQueues")[0] == 500
            answers = [call(endpoint, "SendMessage", QueueUrl=name)[1] for name in ("a.fifo", "b.fifo")]
            kinds = [answer["__type"].partition("#")[2] for answer in answers]
            assert kinds == ["ThrottlingException", "QueueDoesNotExist"]
        finally:
            process.send_signal(number)
        # Not `communicate`, which would miss what `readline` has read ahead.
        assert process.stderr is not None
        out, err = process.stdout.read(), process.stderr.read()
    assert (process.returncode, err) == (0, "")
    assert out.splitlines()[:6] == [
        f"page for a browser: {endpoint}/",
        "",
        "# Any credentials will do. In the shell, before Python or Spark starts:",
        "export AWS_ACCESS_KEY_ID=any AWS_SECRET_ACCESS_KEY=any",
        "export AWS_DEFAULT_REGION=us-east-1",
        f"export AWS_ENDPOINT_URL_SQS={endpoint}",
    ]
    assert f'queue_url = "{endpoint}/000000000000/a.fifo"' in out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "status", "message"),
    [
        (["--throttle", "2"], 2, "'throttle' is 2.0"),
        (["--queue", "q.fifo", "--queue", "plain"], 2, "queue 'plain' cannot be made: The name of a FIFO queue"),
        (["--port", "65536"], 2, "port must be 0-65535"),
        (["--plan", "drop:SendMessage:1"], 2, "unknown planned fault 'drop'"),
        (["--host", "192.0.2.1"], 3, "192.0.2.1"),
    ],
)
def test_command_says_in_one_line_why_it_cannot_start(flags: list[str], status: int, message: str) -> None:
    """A wrong value is exit status 2; what it cannot have, such as a file or an address, is 3."""
    assert message in one_line(status, "--port", "0", *flags)


def test_command_whose_port_is_in_use_says_so() -> None:
    """Exit status 3: somebody else has it, and another one is free."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        line = one_line(3, "--port", port)
    assert port in line
    assert "Give another --port" in line


def one_line(status: int, *flags: str) -> str:
    """Return the one line with which the command ends at once."""
    done = subprocess.run([*COMMAND, *flags], capture_output=True, text=True, timeout=20, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (status, "", 1)
    return done.stderr
