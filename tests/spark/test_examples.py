"""The applications in the pages' folder `examples`: each does what it says, as it stands there."""

from __future__ import annotations

import functools
import itertools
import json
import os
import re
import runpy
import socket
import sys
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Row

from tests.helpers import depth, wait_until
from tests.spark.setups import environment, run_to_end, settings
from tests.spark.sink import held_in
from tests.spark.support import LONG_S, ROOT, SPARK_VERSION, Rig, failure, require_alive, running
from tests.unit.test_readme import DOCS, snippets

pytestmark = pytest.mark.long  # they show what can be built, and no law
_NUMBERS = itertools.count()
_HOLD_S = 300
_PORT = "9324"


def example(name: str) -> SimpleNamespace:
    return SimpleNamespace(**runpy.run_path(str(DOCS / "examples" / f"{name}.py")))


def send(rig: Rig, group: str, *bodies: Any, url: str = "", **more: Any) -> None:
    """Send these bodies to one group; one that is no text is sent as JSON."""
    for body in bodies:
        text = body if isinstance(body, str) else json.dumps(body)
        given = {"MessageBody": text, "MessageGroupId": group, "MessageDeduplicationId": str(next(_NUMBERS)), **more}
        rig.call("SendMessage", QueueUrl=url or rig.url, **given)


def wait_for(rig: Rig, query: Any, url: str = "", *, left: tuple[int, int] = (0, 0)) -> None:
    """Wait until the queue has no more than this, visible and in flight, so that all else is committed."""

    def is_committed() -> bool:
        require_alive(query)
        return depth(functools.partial(rig.call, "GetQueueAttributes"), url or rig.url) == left

    wait_until(is_committed, LONG_S, f"the queue has {left} left")


def test_json_is_written_as_columns_and_the_rest_as_it_came(rig: Rig) -> None:
    others = ["no JSON", "null", "{}", '{"id": "b-3", "amount": "much"}', '{"id": "b-4", "amount": null}']
    send(rig, "lot-1", {"id": "b-1", "amount": 12.5}, *others[:2], {"id": "b-2", "amount": 13})
    send(rig, "lot-2", *others[2:])
    with running(example("json_and_the_rest").build(rig.spark, rig.url, str(rig.home))) as query:
        wait_for(rig, query)
    table = rig.spark.read.parquet(f"{rig.home}/bids").collect()
    bids = {row.id: (row.amount, row.body) for row in table if row.kind == "bid"}
    assert bids == {"b-1": (Decimal("12.50"), None), "b-2": (Decimal("13.00"), None)}
    assert sorted(row.body for row in table if row.kind == "other") == sorted(others)


@pytest.mark.parametrize(("delay", "is_late"), [("1 minute", True), ("15 minutes", False)])
def test_a_join_drops_what_a_group_brings_late(rig: Rig, delay: str, is_late: bool) -> None:
    """The first bid for lot-2 is held elsewhere, and the second stands behind it; lot-3 has a backlog."""
    lots = rig.create_queue("lots.fifo")
    module = example("two_queues")
    for lot in ("lot-1", "lot-2", "lot-3"):
        send(rig, lot, f"title of {lot}", url=lots)
    send(rig, "lot-2", "held", "behind")
    held = rig.call("ReceiveMessage", QueueUrl=rig.url, MaxNumberOfMessages=1, VisibilityTimeout=_HOLD_S)
    assert [message["Body"] for message in held["Messages"]] == ["held"]
    send(rig, "lot-3", *map(str, range(40)))
    rig.server.advance(100)
    send(rig, "other", "a lot without bids", url=lots)  # before the bid, so that the lots alone hold the watermark back
    send(rig, "lot-1", "bid")
    with running(module.build(rig.spark, lots, rig.url, str(rig.home), delay)) as query:
        wait_for(rig, query, left=(1, 1))
        of_backlog = module.late_rows(query)
        assert (of_backlog > 0) is is_late
        rig.server.advance(_HOLD_S)
        wait_for(rig, query)
        assert module.late_rows(query) == of_backlog + (2 if is_late else 0)

        watermark = query.recentProgress[-1]["eventTime"]["watermark"]
        for _ in range(2):
            rig.server.advance(_HOLD_S)
            send(rig, "lot-1", "the other queue brings nothing")
            wait_for(rig, query)
        assert query.recentProgress[-1]["eventTime"]["watermark"] == watermark
    joined = rig.spark.read.parquet(f"{rig.home}/joined").select("lot", "bid").collect()
    found = Counter(row.lot for row in joined)
    assert found == Counter({"lot-1": 3, "lot-2": 0 if is_late else 2, "lot-3": 40 - of_backlog})


@pytest.fixture
def state_store(rig: Rig) -> Iterator[None]:
    """The session's own again, after a test that sets another."""
    yield
    rig.spark.conf.unset("spark.sql.streaming.stateStore.providerClass")


@pytest.mark.skipif(SPARK_VERSION < (4, 1), reason="Spark 4.0 has no transformWithState of rows")
@pytest.mark.usefixtures("state_store")
def test_an_auction_goes_on_from_micro_batch_to_micro_batch(rig: Rig) -> None:
    """And over a restart. Ten messages of a group at most are in a micro-batch."""
    module = example("running_auction")
    send(rig, "lot-1", *(str(100 + number // 2) for number in range(25)))
    send(rig, "lot-2", "7.5", "6")
    for more in ((), ("112", "113")):
        send(rig, "lot-1", *more)
        with running(module.build(rig.spark, rig.url, str(rig.home))) as query:
            wait_for(rig, query)
    table = rig.spark.read.parquet(f"{rig.home}/leading").orderBy("auction", "bids").collect()
    assert [(row.auction, row.bids, row.leading) for row in table] == [
        *(("lot-1", 1 + 2 * number, 100 + number) for number in range(13)),
        ("lot-1", 27, 113),
        ("lot-2", 1, Decimal("7.50")),
    ]
    auction = module.Auction()
    auction._state = SimpleNamespace(get=lambda: None, update=lambda state: None)
    shuffled = [Row(sequenceNumber=number, body=number) for number in ("10", "9", "11")]
    assert [row.bids for row in auction.handleInputRows(("lot-3",), iter(shuffled), None)] == [1, 2, 3]


def test_a_table_keeps_the_newest_of_each(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when the driver dies right after a merge; and what is in the table already is not made older."""
    deltalake = pytest.importorskip("deltalake")
    from deltalake.table import TableMerger

    module, merge = example("newest_of_each"), TableMerger.execute
    newer = {"lot": ["lot-3"], "number": [Decimal(10**30)], "body": ["newer"]}
    deltalake.write_deltalake(f"{rig.home}/lots", pa.table(newer, module.COLUMNS))
    for lot in ("lot-1", "lot-2", "lot-3"):
        send(rig, lot, "1", "2", "3")

    def merge_and_die(merger: TableMerger) -> None:
        merge(merger)
        raise RuntimeError("the driver dies here")

    monkeypatch.setattr(TableMerger, "execute", merge_and_die)
    assert "the driver dies here" in failure(module.build(rig.spark, rig.url, str(rig.home)))
    monkeypatch.undo()
    send(rig, "lot-1", *map(str, range(4, 15)))
    with running(module.build(rig.spark, rig.url, str(rig.home))) as query:
        wait_for(rig, query)
        send(rig, "lot-3", "older than the table's")
        wait_for(rig, query)
        send(rig, "lot-2", "4")
        wait_for(rig, query)
    table = deltalake.DeltaTable(f"{rig.home}/lots").to_pyarrow_table().to_pylist()
    assert {row["lot"]: row["body"] for row in table} == {"lot-1": "14", "lot-2": "4", "lot-3": "newer"}
    assert len(table) == 3


def test_dead_letters_go_back_in_order_once(rig: Rig) -> None:
    """Those that can be repaired, to the queue that they came from; what failed again is kept, with the hopeless."""
    dead, target = rig.create_queue("dead.fifo"), rig.create_queue("other.fifo")
    policy = {"deadLetterTargetArn": "arn:aws:sqs:us-east-1:000000000000:dead.fifo", "maxReceiveCount": 1}
    rig.call("SetQueueAttributes", QueueUrl=rig.url, Attributes={"RedrivePolicy": json.dumps(policy)})
    send(rig, "lot-1", '{"amount": "1,50"}', "hopeless", '{"amount": 2,25}')
    repaired = {"repaired": {"DataType": "String", "StringValue": "yes"}}
    send(rig, "lot-2", '{"amount": "3,75"}', MessageAttributes=repaired)
    receive = functools.partial(rig.call, "ReceiveMessage", QueueUrl=rig.url, MaxNumberOfMessages=10)
    assert len(receive(VisibilityTimeout=1)["Messages"]) == 4
    rig.server.advance(2)
    assert not receive().get("Messages")
    with running(example("dead_letters").build(rig.spark, dead, target, str(rig.home))) as query:
        wait_for(rig, query, dead)
    back = held_in(rig.server, rig.url)
    assert [(each.message_group_id, each.body) for each in back] == [
        ("lot-1", '{"amount": "1.50"}'),
        ("lot-1", '{"amount": 2.25}'),
    ]
    assert all(each.attributes["repaired"]["StringValue"] == "yes" for each in back)
    assert held_in(rig.server, target) == []
    given_up = rig.spark.read.parquet(f"{rig.home}/given-up").collect()
    assert sorted(row.body for row in given_up) == sorted(["hopeless", '{"amount": "3,75"}'])


def test_a_loop_becomes_a_query(rig: Rig, ends_when_drained: None) -> None:
    """As the page for those who come from boto3 has it."""
    _, code = snippets(DOCS / "from-boto3.md")
    send(rig, "lot-1", "100", "110")
    exec(code, {"spark": rig.spark, "url": rig.url, "home": str(rig.home)})
    assert sorted(row.body for row in rig.spark.read.parquet(f"{rig.home}/bids").collect()) == ["100", "110"]


@pytest.mark.skipif(SPARK_VERSION < (4, 2), reason="AvailableNow drains a queue, and a listener has figures, since 4.2")
def test_tutorial_runs_as_it_stands(tmp_path: Path) -> None:
    """In two terminals: one for the queue, on a port of its own, and one for the rest. Each prints what is shown."""
    page = (DOCS / "tutorial.md").read_text(encoding="utf-8")
    files = re.findall(r"Save this as `(\w+\.py)`.*?```python\n(.*?)```", page, re.DOTALL)
    (tmp_path / "tutorial").mkdir()
    for name, code in files:
        (tmp_path / "tutorial" / name).write_text(code)
    blocks = re.findall(r"```(sh|text)\n(.*?)```", page, re.DOTALL)
    bin_path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    variables = environment(PATH=bin_path, HOME=tmp_path, SPARK_CONF_DIR=settings(tmp_path), PYTHONPATH=ROOT)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    first, *others = (code.replace(_PORT, port) for kind, code in blocks if kind == "sh")
    is_open = f"(: </dev/tcp/127.0.0.1/{port}) 2>/dev/null"
    start = f"{first.strip()} &\ntrap 'kill %1' EXIT\nuntil {is_open}; do sleep 0.1; done\n"
    printed = run_to_end(["bash", "-c", start + "".join(others)], tmp_path, variables)
    printed = " ".join(printed.split())
    pieces = re.split("…|\n", "\n".join(text for kind, text in blocks if kind == "text"))
    assert [piece for piece in pieces if " ".join(piece.split()) not in printed] == []
    assert printed.count("|120.00|") == 1
