"""The page on tables: each of its recipes writes every message once, whatever Spark repeats and whoever comes late."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pytest

from sqs_fifo_spark import DataLossError, once
from sqs_fifo_spark.batch_ids import Batch
from tests.crash.postgres import PostgresServer
from tests.helpers import wait_until
from tests.spark.support import LONG_S, Rig, Sent, failure, recipe, running

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_START, _WAIT = "writer = ", "query.awaitTermination()\n"
COLUMNS = ["messageId", "messageGroupId", "sequenceNumber", "body"]


class Recipe:
    """The code of the page's section, which reads the rig's queue."""

    def __init__(self, title: str, rig: Rig, **names: Any) -> None:
        begin, _, end = recipe("tables.md", f"## {title}").partition(_START)
        self._start = _START + end.replace(_WAIT, "")
        assert end.endswith(_WAIT)
        self.names: dict[str, Any] = {"messages": rig.source(), "home": rig.home, **names}
        exec(begin, self.names)

    def run(self, checkpoint: str = "checkpoint") -> Any:
        """Start the query and return it."""
        assert "/checkpoint" in self._start
        exec(self._start.replace("/checkpoint", f"/{checkpoint}"), self.names)
        return self.names["query"]


def delta_rows(recipe: Recipe) -> list[tuple[str, ...]]:
    table = recipe.names["DeltaTable"](f"{recipe.names['home']}/bids")
    return [tuple(row[name] for name in COLUMNS) for row in table.to_pyarrow_table().to_pylist()]


def has_rows(recipe: Recipe, sent: Mapping[str, Sent]) -> bool:
    return sent.keys() <= {row[0] for row in delta_rows(recipe)}


def iceberg_rows(recipe: Recipe) -> list[tuple[str, ...]]:
    rows = recipe.names["catalog"].load_table("auction.bids").scan().to_arrow().to_pylist()
    return [tuple(row[name] for name in COLUMNS) for row in rows]


def postgres_rows(recipe: Recipe) -> list[tuple[str, ...]]:
    with recipe.names["psycopg"].connect(recipe.names["address"]) as database:
        return list(database.execute("SELECT id, group_id, sequence_number, body FROM bids").fetchall())


@pytest.mark.law("source-5")
def test_an_answer_that_the_catalog_loses_costs_nothing(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client asks again, as boto3 does for Glue, and is told of a conflict: with the commit that has landed."""
    pytest.importorskip("pyiceberg")
    from pyiceberg.exceptions import CommitFailedException

    recipe = Recipe("Iceberg", rig)
    catalog, names = recipe.names["catalog"], recipe.names
    commit_table, is_lost = catalog.commit_table, [False, True, False]

    def lose_an_answer(*arguments: Any) -> Any:
        answer = commit_table(*arguments)
        if is_lost.pop(0):
            raise CommitFailedException("a conflict")
        return answer

    monkeypatch.setattr(catalog, "commit_table", lose_an_answer)
    write = once(names["load"], names["write"], query="q", changed=names["Changed"])
    for number in range(3):
        write(rig.spark.createDataFrame([(str(number), "group", "1", "body")], COLUMNS), number)
    assert sorted(row[0] for row in iceberg_rows(recipe)) == ["0", "1", "2"]
    assert is_lost == []


@pytest.mark.law("source-5")
@pytest.mark.parametrize("name", ["commit.retry.num-retries", "commit.retry.total-timeout-ms"])
def test_a_table_for_which_pyiceberg_may_not_look_again_is_refused(rig: Rig, name: str) -> None:
    """If the answer to a commit were lost, it would delete the files of the commit that has landed."""
    pytest.importorskip("pyiceberg")
    recipe = Recipe("Iceberg", rig)
    with recipe.names["catalog"].load_table("auction.bids").transaction() as change:
        change.set_properties({name: "0"})
    write = once(recipe.names["load"], recipe.names["write"], query="q", changed=recipe.names["Changed"])
    with pytest.raises(ValueError, match=f"remove the table's property {name}: "):
        write(rig.spark.createDataFrame([("1", "group", "1", "body")], COLUMNS), 0)
    assert iceberg_rows(recipe) == []


def test_a_query_keeps_its_name_as_long_as_its_checkpoint(rig: Rig) -> None:
    """So a run finds what the last one wrote, and a new checkpoint nothing of the old one's."""
    last: dict[str, int] = {}
    written: list[tuple[Batch, int]] = []

    def write(df: DataFrame, batch: Batch, _: object) -> None:
        written.append((batch, df.count()))
        last[batch.query] = batch.id

    into = once(lambda batch: (None, last.get(batch.query)), write)
    for checkpoint in ("checkpoint", "checkpoint", "other"):
        rig.send(10, groups=2)
        writer = rig.source().writeStream.foreachBatch(into)
        with running(writer.option("checkpointLocation", str(rig.home / checkpoint)).start()) as query:
            rig.drain(query)
            assert query.id in last
    assert len(last) == 2
    for name, ended in last.items():
        assert [batch.id for batch, _ in written if batch.query == name] == list(range(ended + 1))
    assert sum(rows for _, rows in written) >= len(rig.sent)


@pytest.mark.law("source-5")
def test_two_queries_into_one_table_lose_nothing_to_each_other(rig: Rig) -> None:
    """Each has a record of its own, though their batch ids are the same; and so has one with a new checkpoint."""
    pytest.importorskip("deltalake")
    recipe = Recipe("Delta, without a jar", rig)
    for checkpoint in ("checkpoint", "other"):
        sent = rig.send(10, groups=2, body=checkpoint)
        query = recipe.run(checkpoint)
        rig.drain(query)
        wait_until(functools.partial(has_rows, recipe, sent), LONG_S, "the table has all rows")
        query.stop()
    assert len(delta_rows(recipe)) == len(rig.sent)


Rows = Callable[[Recipe], list[tuple[str, ...]]]


@pytest.fixture
def address(request: pytest.FixtureRequest) -> Iterator[str]:
    """That of a PostgreSQL server, for a test that says it needs one."""
    if not request.param:
        yield ""
        return
    with PostgresServer() as server:
        yield server.address


@pytest.mark.law("source-5")
@pytest.mark.parametrize(
    ("title", "rows", "package", "late", "address"),
    [
        ("Delta, without a jar", delta_rows, "deltalake", "Concurrent transaction failed", ""),
        ("Iceberg", iceberg_rows, "pyiceberg", "^$", ""),
        pytest.param("PostgreSQL", postgres_rows, "psycopg", "another driver", "server", marks=pytest.mark.long),
    ],
    indirect=["address"],
)
def test_a_recipe_writes_each_message_once(
    rig: Rig, title: str, rows: Rows, package: str, late: str, address: str
) -> None:
    """A micro-batch that was written comes again; then a driver that stood still meanwhile goes on."""
    pytest.importorskip(package)
    recipe = Recipe(title, rig, address=address)
    write = recipe.names["write"]

    def write_and_die(df: DataFrame, batch: Batch, table: Any) -> None:
        write(df, batch, table)
        raise RuntimeError("the driver dies here")

    sent = rig.send(20, groups=4)
    recipe.names["write"] = write_and_die
    assert "the driver dies here" in failure(recipe.run())
    written = rows(recipe)
    assert written

    recipe.names["write"] = write
    query = recipe.run()
    rig.drain(query)
    stood_still, last = recipe.names["load"](Batch(query.id, 0))
    sent |= rig.send(20, groups=4, body="more")
    rig.drain(query)
    wait_until(lambda: len(rows(recipe)) >= len(sent), LONG_S, "the table has all rows")
    query.stop()
    found = rows(recipe)
    assert Counter(row[0] for row in found) == Counter(sent.keys())
    assert {row[0]: (row[1], int(row[2])) for row in found} == {
        message_id: (each.message_group_id, each.sequence_number) for message_id, each in sent.items()
    }

    frame = rig.spark.createDataFrame([("id", "group", "1", "late")], COLUMNS)
    with pytest.raises(Exception, match=late):
        write(frame, Batch(query.id, last + 1), stood_still)
    with pytest.raises(DataLossError, match=r"micro-batch 0 of the query .+ does not follow \d+"):
        once(recipe.names["load"], write, query=query.id)(frame, 0)
    assert sorted(rows(recipe)) == sorted(found)
