"""The facts of Spark's Python Data Source API that source and sink rest on: a sentence for each, and what is seen.

A case plays one story on a bench, and yields what was seen for each of its facts. What is seen is the same in all
versions, or stands under the first version of each behaviour. `python -m tests.conformance.spark.cases` prints the
tables of docs/spark-facts.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from psutil import pid_exists
from pyspark.sql import DataFrame

from tests.conformance.spark.bench import Bench, Note, short, told
from tests.helpers import wait_until

VERSIONS = ("4.0", "4.1", "4.2", "4.3")
NOW = {"availableNow": True}
GONE_S = 60.0


@dataclass(frozen=True)
class Fact:
    """A sentence, and what is seen from which version on."""

    sentence: str
    seen: dict[str, str]

    def on(self, version: tuple[int, ...]) -> str:
        """Return what is to be seen on a version; a newer one than all is held to the last."""
        return [seen for since, seen in self.seen.items() if _numbers(since) <= version][-1]

    def row(self) -> str:
        """Return the row of the fact in the table."""
        cells: dict[str, list[str]] = {}
        for version in VERSIONS:
            cells.setdefault(self.on(_numbers(version)), []).append(version)
        shown = [f"`{seen}`" if len(cells) == 1 else f"{', '.join(on)}: `{seen}`" for seen, on in cells.items()]
        return f"| {self.sentence} | {'<br>'.join(shown)} |"


@dataclass
class Case:
    """A story and its facts."""

    play: Callable[[Bench], Iterator[str]]
    about: str
    facts: list[Fact] = field(default_factory=list)


CASES: dict[str, Case] = {}


def case(about: str, *facts: tuple[str, str | dict[str, str]]) -> Callable[..., Callable[[Bench], Iterator[str]]]:
    """Make a case of a story."""

    def add(play: Callable[[Bench], Iterator[str]]) -> Callable[[Bench], Iterator[str]]:
        made = [Fact(sentence, seen if isinstance(seen, dict) else {"4.0": seen}) for sentence, seen in facts]
        CASES[play.__name__] = Case(play, about, made)
        return play

    return add


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")[:2]))


def markdown() -> str:
    """Return a table for each subject."""
    lines = []
    for about in dict.fromkeys(case.about for case in CASES.values()):
        lines += [f"## {about}", "", "| fact | seen |", "|---|---|"]
        lines += [fact.row() for case in CASES.values() if case.about == about for fact in case.facts] + [""]
    return "\n".join(lines).strip()


# Order of calls


@case(
    "Order of calls",
    (
        "A new query asks for the end before it plans, and for the beginning at least once.",
        {
            "4.0": "latestOffset(), initialOffset(), partitions(0, 2), read(0, 2), latestOffset()",
            "4.2": "initialOffset(), latestOffset(0, all), initialOffset(), partitions(0, 2), read(0, 2), "
            "latestOffset(2, all)",
        },
    ),
    (
        "A micro-batch is committed to the source while the next one is made, before its partitions are asked for.",
        {
            "4.0": "latestOffset(), commit(2), partitions(2, 3), read(2, 3), latestOffset()",
            "4.2": "latestOffset(2, all), commit(2), partitions(2, 3), read(2, 3), latestOffset(3, all)",
        },
    ),
    ("By then the next one's offsets are logged, and only the last one is in the commit log.", "offsets 1, commits 0"),
    (
        "With nothing new, neither a restart nor an idle query commits the last micro-batch.",
        {"4.0": "partitions(3, 3), latestOffset()", "4.2": "latestOffset(3, all)"},
    ),
    (
        "A restart whose last micro-batch was committed asks for the end first.",
        {
            "4.0": "partitions(3, 3), latestOffset(), commit(3), partitions(3, 4), read(3, 4), batch 2: [4]",
            "4.2": "latestOffset(3, all), commit(3), partitions(3, 4), read(3, 4), batch 2: [4]",
        },
    ),
    (
        "One whose last micro-batch was not committed plans that again first, under its id, though more has come.",
        {
            "4.0": "partitions(4, 4), partitions(3, 4), read(3, 4), batch 2: [4], latestOffset(), commit(4), "
            "partitions(4, 5), read(4, 5), batch 3: [5], latestOffset()",
            "4.2": "partitions(3, 4), read(3, 4), batch 2: [4], latestOffset(4, all), commit(4), partitions(4, 5), "
            "read(4, 5), batch 3: [5], latestOffset(5, all)",
        },
    ),
    (
        "A crash after the sink and before the commit log: the micro-batch is read and written again under its id.",
        {
            "4.0": "partitions(5, 5), partitions(4, 5), read(4, 5), batch 3: [5], latestOffset()",
            "4.2": "partitions(4, 5), read(4, 5), batch 3: [5], latestOffset(5, all)",
        },
    ),
)
def life(bench: Bench) -> Iterator[str]:
    bench.say(end=2)
    query = bench.start()
    query.processAllAvailable()
    yield bench.calls()
    bench.say(end=3)
    query.processAllAvailable()
    query.stop()
    notes = bench.noted()
    yield told(notes)
    offsets, commits = next(note.logs for note in notes if note.name == "commit")
    yield f"offsets {offsets}, commits {commits}"
    bench.run()
    yield bench.calls()
    bench.say(end=4)
    bench.run_down()
    yield bench.calls()
    bench.say(end=5)
    bench.run(sink=bench.collect)
    yield bench.calls()
    bench.forget_commit(3)
    bench.run(sink=bench.collect)
    yield bench.calls()


@case(
    "Order of calls",
    (
        "A new query has a first micro-batch even if nothing is there: from the beginning to the beginning.",
        {
            "4.0": "latestOffset(), initialOffset(), partitions(0, 0), read(0, 0), batch 0: []",
            "4.2": "initialOffset(), latestOffset(0, all), initialOffset(), partitions(0, 0), read(0, 0), batch 0: []",
        },
    ),
    (
        "If the first micro-batch fails, the restart asks for the beginning again, and not for the end.",
        {
            "4.0": "partitions(0, 0), initialOffset(), partitions(0, 0), read(0, 0)",
            "4.2": "initialOffset(), partitions(0, 0), read(0, 0)",
        },
    ),
)
def nothing_there(bench: Bench) -> Iterator[str]:
    bench.say(end=0)
    bench.run_down()
    yield bench.calls()
    bench.run()
    yield bench.calls().partition(", latestOffset")[0]


@case(
    "Order of calls",
    (
        "A limit of its own reaches `latestOffset`, where its signature takes parameters.",
        {
            "4.0": "latestOffset(), read(0, 5), latestOffset()",
            "4.2": "latestOffset(0, ReadMaxRows(max_rows=2)), read(0, 2), latestOffset(2, ReadMaxRows(max_rows=2)), "
            "commit(2), read(2, 4), latestOffset(4, ReadMaxRows(max_rows=2)), commit(4), read(4, 5), "
            "latestOffset(5, ReadMaxRows(max_rows=2))",
        },
    ),
    (
        "`reportLatestOffset` shows in the progress report, in place of the end. Before 4.2, offsets stand in "
        "`recentProgress` as Python writes a dict.",
        {"4.0": "{'at': 5}", "4.2": '{"newest": "5"}'},
    ),
    ("The report has no metrics of a Python source.", "{}"),
    ("A `latestOffset` without parameters gets none.", "latestOffset(), read(5, 6), latestOffset()"),
)
def limits(bench: Bench) -> Iterator[str]:
    bench.say(end=5)
    query = bench.start(reader="limited")
    query.processAllAvailable()
    source = query.recentProgress[0]["sources"][0]
    query.stop()
    yield bench.calls("latestOffset", "read", "commit")
    yield str(source["latestOffset"])
    yield str(source["metrics"])
    bench.say(end=6)
    bench.run(reader="old")
    yield bench.calls("latestOffset", "read")


@case(
    "AvailableNow and Once",
    (
        "A reader with the mixin is prepared, then asked until it has no more than its start.",
        {
            "4.0": "latestOffset(), initialOffset(), partitions(0, 3), read(0, 3)",
            "4.2": "prepare(), initialOffset(), latestOffset(0, ReadMaxRows(max_rows=2)), initialOffset(), "
            "partitions(0, 2), read(0, 2), latestOffset(2, ReadMaxRows(max_rows=2)), commit(2), partitions(2, 3), "
            "read(2, 3), latestOffset(3, ReadMaxRows(max_rows=2))",
        },
    ),
    ("At its end `stop` is not called; the last micro-batch is not committed.", "True"),
    (
        "The next run commits it, if there is something new, hours later perhaps.",
        {
            "4.0": "partitions(3, 3), latestOffset(), commit(3), partitions(3, 4), read(3, 4), batch 1: [4]",
            "4.2": "prepare(), latestOffset(3, ReadMaxRows(max_rows=2)), commit(3), partitions(3, 4), read(3, 4), "
            "batch 2: [4]",
        },
    ),
    (
        "A replay is prepared first as well.",
        {
            "4.0": "partitions(4, 4), partitions(3, 4), read(3, 4)",
            "4.2": "prepare(), partitions(3, 4), read(3, 4), latestOffset(4, ReadMaxRows(max_rows=2))",
        },
    ),
    (
        "Without the mixin, the end is asked once, without the reader's limit.",
        {
            "4.0": "partitions(4, 4), latestOffset(), commit(4), partitions(4, 9), read(4, 9)",
            "4.2": "latestOffset(4, all), commit(4), partitions(4, 9), read(4, 9)",
        },
    ),
    (
        "Once asks neither mixin nor limit.",
        {
            "4.0": "partitions(9, 9), latestOffset(), commit(9), partitions(9, 14), read(9, 14)",
            "4.2": "latestOffset(9, all), commit(9), partitions(9, 14), read(9, 14)",
        },
    ),
    (
        "With `spark.sql.streaming.triggerAvailableNowWrapper.enabled`, AvailableNow asks before a replay.",
        {
            "4.0": "latestOffset(), partitions(14, 14), partitions(9, 14), read(9, 14), latestOffset()",
            "4.2": "initialOffset(), latestOffset(0, all), partitions(9, 14), read(9, 14)",
        },
    ),
)
def available_now(bench: Bench) -> Iterator[str]:
    bench.say(end=3)
    bench.run(trigger=NOW, reader="available now")
    notes = bench.noted()
    yield told(notes)
    yield str(not {"stop()", "commit(3)"} & {note.call for note in notes})
    bench.say(end=4)
    bench.run_down(trigger=NOW, reader="available now")
    yield bench.calls()
    bench.run(trigger=NOW, reader="available now")
    yield bench.calls()
    bench.say(end=9)
    bench.run(trigger=NOW, reader="limited")
    yield bench.calls()
    bench.say(end=14)
    bench.run(trigger={"once": True}, reader="available now")
    yield bench.calls()
    bench.forget_commit(len(bench.offsets()) - 1)
    setting = "spark.sql.streaming.triggerAvailableNowWrapper.enabled"
    bench.spark.conf.set(setting, "true")
    bench.run(trigger=NOW)
    bench.spark.conf.unset(setting)
    yield bench.calls()


@case(
    "Offsets",
    (
        "They are logged as `json.dumps` writes them: keys become text, tuples lists. They are compared as that text: "
        "keys in another order are news, and so are one that goes back, and None.",
        '{"at": 2, "b": 3}, {"b": 3, "at": 2}, {"at": 1}, {"1": [1]}, null',
    ),
    (
        'None is no sign for "nothing new": it is an offset, planned and committed, and the next start.',
        {
            "4.0": "partitions(None, None), latestOffset(), commit(None), partitions(None, 7), latestOffset()",
            "4.2": "latestOffset(None, all), commit(None), partitions(None, 7), latestOffset(7, all)",
        },
    ),
    (
        "What is no JSON ends the query.",
        "PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR, TypeError: Object of type set is not JSON serializable",
    ),
)
def offsets(bench: Bench) -> Iterator[str]:
    first, *others = "{'at': 2, 'b': 3}", "{'b': 3, 'at': 2}", "{'at': 1}", "{1: (1,)}", "None"
    bench.say(offset=first)
    query = bench.start(shares="[]")
    query.processAllAvailable()
    for offset in others:
        bench.say(offset=offset)
        query.processAllAvailable()
    yield ", ".join(bench.offsets())
    query.stop()
    bench.noted()
    bench.say(offset="{'at': 7}")
    bench.run(shares="[]")
    yield bench.calls()
    bench.say(offset="{8}")
    yield bench.error(shares="[]")


# Partitions, tasks, processes


@case(
    "Partitions and reads",
    ("An empty list of partitions is a micro-batch without rows.", "partitions(0, 1), batch 0: []"),
    ("A generator of them is refused.", "TypeError: object of type 'generator' has no len()"),
    (
        "What is no InputPartition is refused by the task only.",
        "AssertionError: Expected the partition value to be of type 'InputPartition', but found 'int'.",
    ),
    ("Partitions of one micro-batch are read side by side, and rows keep no order between them.", "batch 1: [1, 2]"),
)
def partitions(bench: Bench) -> Iterator[str]:
    bench.say(end=1)
    bench.run(sink=bench.collect, shares="[]")
    yield bench.calls("partitions", "batch")
    bench.say(end=2)
    yield bench.error(sink=bench.collect, shares="(each for each in [])").rpartition(", ")[2]
    yield bench.error(sink=bench.collect, shares="[1]")
    bench.noted()
    bench.run(sink=bench.collect, shares="[Share(0, 1), Share(1, 2)]")
    yield bench.calls("batch")


@case(
    "Partitions and reads",
    (
        "Without an action in `foreachBatch` nothing is read, and the micro-batch is committed.",
        "0 reads, then commit(1)",
    ),
    ("Each action reads anew, from the same partitions.", "2 reads, 1 partitions"),
    ("The report counts the rows of each.", "2"),
    ("Rows that are persisted are read once.", "1 reads"),
    ("`foreachBatch` has the ids of query and micro-batch in local properties.", "query True, batch 0"),
)
def actions(bench: Bench) -> Iterator[str]:
    seen: list[str] = []

    def sink(rows: DataFrame, batch: int) -> None:
        context = rows.sparkSession.sparkContext
        query, number = (context.getLocalProperty(each) for each in ("sql.streaming.queryId", "streaming.sql.batchId"))
        seen.append(f"query {bool(query)}, batch {number}")
        kept = rows.persist() if batch == 2 else rows
        for _ in range(2 if batch else 0):
            kept.count()
        kept.unpersist()

    query = bench.start(sink=sink, end="1")
    by_batch: list[list[Note]] = []
    for end in (1, 2, 3):
        bench.say(end=end)
        query.processAllAvailable()
        by_batch.append(bench.noted())
    rows = query.recentProgress[1]["numInputRows"]
    query.stop()
    reads = [sum(note.name == "read" for note in notes) for notes in by_batch]
    yield f"{reads[0]} reads, then {told(by_batch[1], 'commit')}"
    yield f"{reads[1]} reads, {sum(note.name == 'partitions' for note in by_batch[1])} partitions"
    yield str(rows)
    yield f"{reads[2]} reads"
    yield seen[0]


@case(
    "Partitions and reads",
    (
        "A frame united with itself has one reader, which plans each micro-batch twice and commits it once.",
        "1 process, 2 partitions, 2 reads, 1 commit",
    ),
    ("Two frames of one source have a process each.", "2 processes"),
)
def unions(bench: Bench) -> Iterator[str]:
    bench.say(end=1)
    rows = bench.rows()
    query = bench.start(rows.union(rows), bench.collect)
    query.processAllAvailable()
    bench.noted()
    bench.say(end=2)
    query.processAllAvailable()
    query.stop()
    notes = bench.noted()
    count = {name: sum(note.name == name for note in notes) for name in ("partitions", "read", "commit")}
    readers = {note.pid for note in notes if note.name == "latestOffset"}
    yield f"{len(readers)} process, {count['partitions']} partitions, {count['read']} reads, {count['commit']} commit"
    (bench.home / "checkpoint").rename(bench.home / "done")
    bench.run(bench.rows().union(bench.rows()))
    yield f"{len({note.pid for note in bench.noted() if note.name == 'latestOffset'})} processes"


@case(
    "Processes",
    (
        "A query builds its reader in two processes: one to ask it, one to pickle it. Not once a micro-batch.",
        "2 built, 2 processes",
    ),
    ("All questions go to one of these, and none to the other.", "1 process"),
    ("Tasks read in neither.", "True"),
    (
        "A task gets the reader as it was built: what the asked one has set is not there, except in partitions.",
        "reader False, partition True",
    ),
    ("A task has the ids of query and micro-batch in local properties.", "True, True"),
    ("`query.stop()` ends the reader's process without a call of `stop`.", "True"),
    ("Keys of options come in lower case.", "columns, home, othercase, yields"),
)
def processes(bench: Bench) -> Iterator[str]:
    shown = "f'reader {asked}, partition {seen}', ', '.join(map(str, properties)), ', '.join(sorted(trace.options))"
    bench.say(end=1)
    seen: list[tuple[str, ...]] = []
    query = bench.start(
        sink=lambda rows, batch: seen.extend(tuple(row) for row in rows.collect()),
        columns="x STRING, y STRING, z STRING",
        yields=f"iter([({shown})])",
        otherCase="yes",
    )
    query.processAllAvailable()
    bench.say(end=2)
    query.processAllAvailable()
    query.stop()
    notes = bench.noted()
    built, asked, read = (
        {note.pid for note in notes if note.name in names}
        for names in (("streamReader",), ("initialOffset", "latestOffset", "partitions", "commit"), ("read",))
    )
    yield f"{sum(note.name == 'streamReader' for note in notes)} built, {len(built)} processes"
    yield f"{len(asked & built)} process"
    yield str(not read & built)
    yield from seen[0][:2]
    wait_until(lambda: not any(map(pid_exists, asked)), GONE_S, "the reader's process is gone")
    yield str("stop()" not in {note.call for note in [*notes, *bench.noted()]})
    yield seen[0][2]


@case(
    "Processes",
    ("A query is stopped while `latestOffset` waits: its process is gone, without an error.", "None"),
)
def stopped_in_a_poll(bench: Bench) -> Iterator[str]:
    bench.say(end=1)
    bench.run()
    bench.noted()
    bench.say(blocks="yes")
    query = bench.start()
    asked: list[Note] = []

    def is_asked() -> list[Note]:
        asked.extend(note for note in bench.noted() if note.name == "latestOffset")
        return asked

    wait_until(is_asked, GONE_S, "latestOffset is asked")
    query.stop()
    wait_until(lambda: not pid_exists(asked[0].pid), GONE_S, "the reader's process is gone")
    yield str(query.exception())


# Rows


@case(
    "Rows",
    ("Tuples are taken by place, lists too.", "[(1, 2)]"),
    ("A named Row is taken by name.", "[(1, 2)]"),
    ("Other things are refused.", "DATA_SOURCE_INVALID_RETURN_TYPE"),
    ("`read` may return an iterator only.", "DATA_SOURCE_INVALID_RETURN_TYPE"),
    (
        "`spark.sql.execution.arrow.maxRecordsPerBatch` of 0 stops every source.",
        "PYTHON_DATA_SOURCE_ERROR, AssertionError: The maximum arrow batch size should be greater than 0, but got '0'",
    ),
)
def rows(bench: Bench) -> Iterator[str]:
    for each in ("[1, 2]", "Row(y=2, x=1)", "{'x': 1, 'y': 2}"):
        yield bench.batch("x INT, y INT", f"[{each}]")
    bench.say(end=1)
    yield bench.error(yields="[(1,)]")
    setting = "spark.sql.execution.arrow.maxRecordsPerBatch"
    bench.spark.conf.set(setting, "0")
    try:
        yield bench.error()
    finally:
        bench.spark.conf.unset(setting)


MISMATCH = "DATA_SOURCE_RETURN_SCHEMA_MISMATCH"
_TIME = "datetime.datetime(1970, 1, 1, 0, 0)"
ARROW: dict[str, tuple[str, str, str | dict[str, str]]] = {
    "columns in another order": (
        "x INT, y INT",
        "{'y': pa.array([2], pa.int32()), 'x': pa.array([1], pa.int32())}",
        {"4.0": "[(2, 1)]", "4.2": MISMATCH},
    ),
    "a column of another name": ("x INT", "{'z': pa.array([1], pa.int32())}", MISMATCH),
    "a column less": ("x INT, y INT", "{'x': pa.array([1], pa.int32())}", MISMATCH),
    "int64 for INT": ("x INT", "{'x': pa.array([1])}", {"4.0": "another error", "4.2": MISMATCH}),
    "int32 for BIGINT": (
        "x BIGINT",
        "{'x': pa.array([1], pa.int32())}",
        {"4.0": "another error", "4.2": MISMATCH},
    ),
    "large_string for STRING": (
        "x STRING",
        "{'x': pa.array(['a'], pa.large_string())}",
        {"4.0": "[('a',)]", "4.2": MISMATCH},
    ),
    "a dictionary for STRING": (
        "x STRING",
        "{'x': pa.array(['a']).dictionary_encode()}",
        {"4.0": "another error", "4.2": MISMATCH},
    ),
    "type null for STRING": ("x STRING", "{'x': pa.nulls(1)}", {"4.0": "[(None,)]", "4.2": MISMATCH}),
    "TIMESTAMP without a zone": (
        "x TIMESTAMP",
        "{'x': pa.array([0], pa.timestamp('us'))}",
        {"4.0": f"[({_TIME},)]", "4.2": MISMATCH},
    ),
    "TIMESTAMP of another zone": (
        "x TIMESTAMP",
        "{'x': pa.array([0], pa.timestamp('us', tz='Asia/Tokyo'))}",
        {"4.0": f"[({_TIME},)]", "4.2": MISMATCH},
    ),
    "TIMESTAMP of UTC": ("x TIMESTAMP", "{'x': pa.array([0], pa.timestamp('us', tz='UTC'))}", f"[({_TIME},)]"),
    "TIMESTAMP in nanoseconds": (
        "x TIMESTAMP",
        "{'x': pa.array([0], pa.timestamp('ns', tz='UTC'))}",
        {"4.0": "another error", "4.2": MISMATCH},
    ),
    "a wider DECIMAL": (
        "x DECIMAL(10, 2)",
        "{'x': pa.array([None], pa.decimal128(12, 2))}",
        {"4.0": "[(None,)]", "4.2": MISMATCH},
    ),
    "a STRUCT's fields in another order": (
        "x STRUCT<a: INT, b: INT>",
        "{'x': pa.array([{'b': 2, 'a': 1}], pa.struct([('b', pa.int32()), ('a', pa.int32())]))}",
        {"4.0": "[(Row(a=2, b=1),)]", "4.2": MISMATCH},
    ),
    "a field that may be null for NOT NULL": (
        "x INT NOT NULL",
        "{'x': pa.array([1], pa.int32())}",
        {"4.0": "[(1,)]", "4.2": MISMATCH},
    ),
}


@case("RecordBatches", *[(f"Given {name}.", seen) for name, (_, _, seen) in ARROW.items()])
def record_batches(bench: Bench) -> Iterator[str]:
    for columns, data, _ in ARROW.values():
        seen = bench.batch(columns, f"[pa.RecordBatch.from_pydict({data})]")
        yield seen if seen.startswith(("[", MISMATCH)) else "another error"


@case(
    "RecordBatches",
    ("A stream is as strict as a batch.", {"4.0": "batch 0: [2]", "4.2": MISMATCH}),
    (
        "Only the first one of a partition is looked at; another schema after it fails where it is written.",
        "ArrowInvalid: Tried to write record batch with different schema",
    ),
)
def record_batches_of_a_stream(bench: Bench) -> Iterator[str]:
    columns, data, _ = ARROW["columns in another order"]
    bench.say(end=1)
    error = bench.error(sink=bench.collect, columns=columns, yields=f"iter([pa.RecordBatch.from_pydict({data})])")
    yield bench.calls("batch") if error == "no error" else error
    right = "pa.RecordBatch.from_pydict({'x': pa.array([1], pa.int32()), 'y': pa.array([2], pa.int32())})"
    yield bench.batch(columns, f"[{right}, pa.RecordBatch.from_pydict({data})]")


# Failures


def _failure(name: str) -> str:
    return f"PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR, OSError: {name} was told to fail"


@case(
    "Failures of the source",
    ("An error of `schema` shows at `load`.", "PYTHON_DATA_SOURCE_ERROR, OSError: schema was told to fail"),
    ("One of `streamReader` ends the query at its start.", "PYTHON_DATA_SOURCE_ERROR"),
    ("One of `latestOffset` ends it with its text, whose class is in the text only.", _failure("latestOffset")),
    ("One of `partitions` does, too.", _failure("partitions")),
    ("One of `read` does, too.", "OSError: read was told to fail"),
    ("After an error of the reader's own, its `stop` is called; after one of a task, it is not.", "True, True, False"),
    ("One of `commit` ends it, too.", _failure("commit")),
    (
        "That commit is not called again: the next micro-batch stands in the log, and goes on.",
        {
            "4.0": "partitions(2, 2), partitions(1, 2), read(1, 2), commit(2)",
            "4.2": "partitions(1, 2), read(1, 2), commit(2)",
        },
    ),
)
def failures(bench: Bench) -> Iterator[str]:
    bench.say(end=1, fails="schema")
    try:
        bench.rows()
    except Exception as error:
        yield short(error)
    bench.say(fails="streamReader")
    yield bench.error(bench.rows()).partition(", ")[0]
    stops = []
    for name in ("latestOffset", "partitions", "read"):
        bench.noted()
        bench.say(fails=name)
        yield bench.error()
        stops.append(bench.calls("stop") == "stop()")
    yield ", ".join(map(str, stops))
    bench.say(fails="nothing")
    bench.run()
    bench.say(fails="commit", end=2)
    yield bench.error()
    bench.noted()
    bench.say(fails="nothing")
    query = bench.start()
    query.processAllAvailable()
    bench.say(end=3)
    query.processAllAvailable()
    query.stop()
    yield bench.calls("partitions", "read", "commit").partition(", partitions(2")[0]


# Readers that read on the driver


@case(
    "Simple readers",
    (
        "`read` runs ahead on the driver, each time Spark asks for the end, and its rows are the micro-batch.",
        {
            "4.0": "initialOffset(), read(0), batch 0: [1, 2], read(2), commit(2), batch 1: [3], read(3)",
            "4.2": "initialOffset(), read(0), initialOffset(), batch 0: [1, 2], read(2), commit(2), batch 1: [3], "
            "read(3)",
        },
    ),
    ("A replay asks `readBetweenOffsets`, in tasks.", "readBetweenOffsets(3, 4), batch 2: [4], read(4)"),
)
def simple(bench: Bench) -> Iterator[str]:
    bench.say(end=2)
    query = bench.start(sink=bench.collect, reader="simple")
    query.processAllAvailable()
    bench.say(end=3)
    query.processAllAvailable()
    query.stop()
    yield bench.calls()
    bench.say(end=4)
    bench.run_down(reader="simple")
    bench.noted()
    bench.run(sink=bench.collect, reader="simple")
    yield bench.calls()


# The sink

WRITING = ("write", "commit", "abort", "streamWriter", "pickled")


def _writing(bench: Bench) -> str:
    kept = [note for note in bench.noted() if note.name in WRITING and (note.name != "commit" or "batch" in note.call)]
    return told(kept, *WRITING)


SHARES = "[Share(0, 1), Share(1, 2), Share(2, 3)]"


@case(
    "Sink",
    (
        "A writer is built to be pickled to the tasks, and another one to commit, for each micro-batch.",
        "streamWriter(False), pickled(), write(batch 0, Row 1), streamWriter(False), commit(batch 0, 0)",
    ),
    ("Each of these has a process of its own, other than those of the tasks.", "3 processes"),
    ("Options come in lower case, with the query's name and checkpoint.", "checkpointlocation, home, queryname"),
    ("Messages of a commit stand in the order of partitions.", "commit(batch 1, 0, 1, 2)"),
    (
        "A crash between that commit and Spark's own log: the same batch id is written and committed again.",
        "write(batch 1, Row 1), write(batch 1, Row 2), write(batch 1, Row 3), commit(batch 1, 0, 1, 2)",
    ),
    ("A micro-batch without partitions is written by one task, without rows.", "write(batch 2), commit(batch 2, 0)"),
)
def sink(bench: Bench) -> Iterator[str]:
    bench.say(end=1)
    query = bench.start(bench.rows(), "traced", queryName="named")
    query.processAllAvailable()
    query.stop()
    notes = bench.noted()
    ours = [note for note in notes if note.name in WRITING]
    yield told(ours, *WRITING)
    yield f"{len({note.pid for note in ours if note.name != 'pickled'})} processes"
    yield next(note.call for note in notes if note.name == "options").partition("(")[2].rstrip(")")
    bench.say(end=2)
    bench.run(bench.rows(shares=SHARES), "traced")
    yield told([note for note in bench.noted() if "batch" in note.call], "commit")
    bench.forget_commit(1)
    bench.run(bench.rows(shares=SHARES), "traced")
    done = [note.call for note in bench.noted() if "batch 1" in note.call]
    yield ", ".join(sorted(done[:-1]) + done[-1:])
    bench.say(end=3)
    bench.run(bench.rows(shares="[]"), "traced")
    yield told([note for note in bench.noted() if "batch" in note.call], "write", "commit", "abort")


@case(
    "Sink",
    ("An error of `write` ends the query with its text.", "OSError: write was told to fail"),
    ("`abort` gets None for a failed task.", "write(batch 0, Row 1), abort(batch 0, None)"),
    (
        "A `write` that returns None has failed.",
        "DATA_SOURCE_TYPE_MISMATCH, abort(batch 0, None)",
    ),
    ("An error of `commit` ends the query with its text.", _failure("commit")),
    (
        "`abort` comes after it, with the messages of all tasks.",
        "write(batch 0, Row 1), commit(batch 0, 0), abort(batch 0, 0)",
    ),
    ("One while it is pickled does, too, without `abort`.", "PYTHON_DATA_SOURCE_ERROR, nothing"),
    ("The restart writes that batch id.", "write(batch 0, Row 1), commit(batch 0, 0)"),
    ("Output mode complete is told as overwrite.", "streamWriter(True)"),
)
def failed_writes(bench: Bench) -> Iterator[str]:
    names = ("write", "commit", "abort")
    bench.say(end=1, fails="write")
    yield bench.error(bench.rows(), "traced")
    yield bench.calls(*names)
    bench.say(fails="nothing")
    error = bench.error(bench.rows(), "traced", message="None")
    yield f"{error.partition(', ')[0]}, {bench.calls('abort')}"
    bench.say(fails="commit")
    yield bench.error(bench.rows(), "traced")
    yield bench.calls(*names)
    bench.say(fails="pickled")
    error = bench.error(bench.rows(), "traced")
    yield f"{error.partition(', ')[0]}, {bench.calls(*names)}"
    bench.say(fails="nothing")
    bench.run(bench.rows(), "traced")
    yield bench.calls(*names)
    (bench.home / "checkpoint").rename(bench.home / "done")
    bench.run(bench.rows().groupBy("x").count(), "traced", mode="complete")
    yield bench.calls("streamWriter")


@case(
    "Sink",
    (
        "A DataSourceStreamArrowWriter takes RecordBatches.",
        {"4.0": "write(batch 0, Row 1)", "4.1": "write(batch 0, RecordBatch {'x': [1]})"},
    ),
)
def arrow_writer(bench: Bench) -> Iterator[str]:
    bench.say(end=1)
    bench.run(bench.rows(), "traced", writer="arrow")
    yield bench.calls("write")


if __name__ == "__main__":
    print(markdown())
