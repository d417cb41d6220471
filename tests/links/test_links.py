"""A link carries all unchanged, shared, late, or not at all, as it is told; large messages come over it too."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.parse import urlsplit

import boto3
import pytest

from sqs_fifo_spark.clock import SYSTEM_CLOCK
from sqs_fifo_spark.journal.location import open_store
from sqs_fifo_spark.local import LocalQueueServer
from tests.helpers import moto_bucket, wait_until
from tests.links.proxy import CHUNK, Link, Trouble, _Way
from tests.spark.support import ROOT

MIB = 1 << 20


@pytest.fixture(scope="module")
def server() -> Iterator[LocalQueueServer]:
    with LocalQueueServer(queues=["test.fifo"]) as running:
        yield running


@pytest.fixture
def link() -> Iterator[Link]:
    with Link(seed=1) as running:
        yield running


def call(url: str, action: str, *, timeout_s: float = 30.0, **request: Any) -> dict[str, Any]:
    """Make one call on a connection of its own."""
    with contextlib.closing(http.client.HTTPConnection(urlsplit(url).netloc, timeout=timeout_s)) as connection:
        connection.request("POST", "/", json.dumps(request), {"X-Amz-Target": f"AmazonSQS.{action}"})
        answer: dict[str, Any] = json.loads(connection.getresponse().read())
        return answer


def test_connections_share_the_bandwidth_fairly() -> None:
    """Four who have as much to carry do so in turn, and all together take as long as the link needs."""
    way, carried = _Way(16 * MIB), list[int]()

    async def carry(number: int) -> None:
        reader, writer = asyncio.StreamReader(), mock.AsyncMock()
        writer.write = lambda data: carried.append(number)
        reader.feed_data(bytes(MIB // 4))
        await way.carry_from(reader, MIB // 4, writer)

    async def carry_all() -> float:
        began = asyncio.get_running_loop().time()
        await asyncio.gather(*map(carry, range(4)))
        return asyncio.get_running_loop().time() - began

    assert asyncio.run(carry_all()) >= 0.06
    assert carried == [*range(4)] * (MIB // 4 // CHUNK)


def test_a_request_is_late_by_the_delay_of_its_action(server: LocalQueueServer, link: Link) -> None:
    """Others are not, and a change holds from the next request on."""
    url = link.front(server.endpoint_url)
    link.troubles = {"ListQueues": Trouble(delay_s=600)}
    call(url, "GetQueueUrl", QueueName="test.fifo")
    with pytest.raises(TimeoutError):
        call(url, "ListQueues", timeout_s=0.1)
    link.troubles = {"ListQueues": Trouble(delay_s=0.1)}
    began = SYSTEM_CLOCK.monotonic()
    call(url, "ListQueues")
    assert SYSTEM_CLOCK.monotonic() - began >= 0.1
    wait_until(lambda: link.requests == {"GetQueueUrl": 1, "ListQueues": 2}, 30, "not all are counted")


@pytest.mark.parametrize(
    ("grief", "error", "reaches"),
    [
        ("hang", TimeoutError, False),
        ("reset", (ConnectionResetError, BrokenPipeError), False),
        ("lose", http.client.RemoteDisconnected, True),
        ("cut", (ConnectionResetError, http.client.IncompleteRead), True),
    ],
)
def test_each_grief_is_seen_as_itself(
    server: LocalQueueServer, link: Link, grief: str, error: type[Exception], reaches: bool
) -> None:
    """And only those that befall the answer let the request have its effect."""
    url = link.front(server.endpoint_url)
    link.troubles = {"CreateQueue": Trouble(**{grief: 1.0})}
    timeout_s = 0.2 if grief == "hang" else 30.0
    with pytest.raises(error):
        call(url, "CreateQueue", timeout_s=timeout_s, QueueName=f"{grief}.fifo", Attributes={"FifoQueue": "true"})
    wait_until(lambda: link.griefs == {grief: 1}, 30, "it is not counted")
    urls = call(url, "ListQueues").get("QueueUrls", [])
    assert any(each.endswith(f"/{grief}.fifo") for each in urls) == reaches


def test_a_client_whose_server_does_not_answer_is_hung_up_on(link: Link) -> None:
    """Its connection is closed, not left to the garbage collector."""
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    with pytest.raises(ConnectionError):
        call(link.front(f"http://127.0.0.1:{port}"), "ListQueues")


def test_an_answer_names_the_host_that_the_client_called(server: LocalQueueServer, link: Link) -> None:
    """Else a client would leave the link with its next call."""
    url = link.front(server.endpoint_url)
    assert call(url, "GetQueueUrl", QueueName="test.fifo")["QueueUrl"].startswith(f"{url}/")


def test_the_seed_decides_who_comes_to_grief(server: LocalQueueServer) -> None:
    """The same requests in the same order, and about the share that was asked for."""

    def lost(seed: int) -> list[int]:
        with Link(seed=seed, troubles={"": Trouble(lose=0.3)}) as link:
            url = link.front(server.endpoint_url)
            found = []
            for number in range(40):
                with contextlib.suppress(http.client.RemoteDisconnected):
                    call(url, "ListQueues")
                    continue
                found.append(number)
            return found

    found = lost(1)
    assert found == lost(1) != lost(2)
    assert 4 <= len(found) <= 20


def test_a_client_that_leaves_is_missed_by_the_server(server: LocalQueueServer, link: Link) -> None:
    """A long poll that nobody waits for takes no message."""
    url, queue = link.front(server.endpoint_url), server.queue_url("test.fifo")
    with pytest.raises(TimeoutError):
        call(url, "ReceiveMessage", timeout_s=0.2, QueueUrl=queue, WaitTimeSeconds=20)
    wait_until(lambda: not server.waiting, 30, "nobody waits")


def test_a_journal_on_s3_works_over_a_link(link: Link, monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts, lists, reads in ranges and deletes, each known by its name; boto3, which expects a Continue, too."""
    with moto_bucket("links") as there:
        url = link.front(there)
        client = boto3.client("s3", endpoint_url=url)
        client.put_object(Bucket="links", Key="large", Body=b"x" * MIB)
        client.close()
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", url)
        store = open_store("s3://links/journal")
        assert store.put_if_absent("epochs/1/2", b"y" * MIB)
        assert store.list("epochs") == ["epochs/1/2"]
        assert store.get_range("epochs/1/2", 3, 4) == b"yyyy"
        store.delete(["epochs/1/2"])
    assert {"PUT epochs", "GET epochs", "GET list"} <= link.requests.keys()
    assert link.up.carried > 2 * MIB


LOAD = {"messages": 12, "groups": 6, "body-bytes": 262_144, "bandwidth": 200e3, "journal": "path", "mode": "commit"}


@pytest.mark.long
def test_each_comes_once_in_order_and_is_received_twice_at_most(tmp_path: Path) -> None:
    """The short form of `python -m tests.links`: a receive of ten needs 13 s, longer than a call may lack an answer."""
    load = [f"--{name}={value}" for name, value in LOAD.items()]
    log = tmp_path / "log.txt"
    with log.open("wb") as output:
        command = [sys.executable, "-m", "tests.links", *load]
        ended = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, cwd=ROOT)
    assert ended.returncode == 0, log.read_text(errors="replace")[-3000:]
