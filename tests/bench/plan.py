"""The comparisons of the two suites."""

from __future__ import annotations

from dataclasses import replace

from tests.bench.model import Comparison, Entrant

TOPICS = ("drain", "hot", "bodies", "delay", "backlog", "partitions", "s3", "payloads", "sink", "latency", "floor")


def entrants(*ways: str) -> tuple[Entrant, ...]:
    return tuple(Entrant(way) for way in ways)


ALL = entrants("boto3", "awscrt", "node", "naive", "commit", "journal")
SINKS = entrants("sender", "sink", "sink-journal")
BATCH = {"order": "batch"}
HOT_SINKS = (
    *SINKS,
    Entrant("sink", "sink, batch", BATCH),
    Entrant("sink-journal", "sink-journal, batch", BATCH),
    Entrant("sink-journal", "sink-journal, batch, 80 unrecorded", {**BATCH, "maxUnrecordedRows": "80"}),
)
S3 = entrants("commit", "journal", "commit-s3", "journal-s3")
PAYLOADS = entrants("commit", "commit-pointers", "journal", "journal-pointers")


def _partitions(*counts: int) -> tuple[Entrant, ...]:
    pairs = [(way, str(count)) for way in ("commit", "journal") for count in counts]
    return tuple(Entrant(way, f"{way}, {count}", {"numPartitions": count}) for way, count in pairs)


def scaled(comparison: Comparison, scale: float) -> Comparison:
    """Return the comparison with another number of messages, at least twenty, and even."""
    return replace(comparison, messages=max(round(comparison.messages * scale / 2) * 2, 20))


def full() -> list[Comparison]:
    """All shapes, at least five rounds of each."""
    drain = Comparison("drain", "many groups", ALL, messages=50_000)
    hot = Comparison("hot", "one group", entrants("loop", "bare", "naive", "journal", "commit"), 1_000, groups=1)
    delay = replace(drain, topic="delay", messages=4_000)
    partitions = replace(drain, topic="partitions", delay_s=0.02, slots=8)
    sink = Comparison("sink", "sink, many groups", SINKS, messages=20_000)
    latency = Comparison("latency", "", entrants("boto3", "naive", "commit", "journal"), groups=50)
    return [
        Comparison("floor", "empty micro-batches", entrants("empty"), messages=50),
        drain,
        replace(drain, name="few groups", groups=200),
        hot,
        replace(hot, name="one group, 10 ms", delay_s=0.01, messages=500),
        replace(drain, topic="bodies", name="large bodies", messages=2_000, size=50_000, groups=500),
        *(replace(delay, name=f"round trip {ms} ms", delay_s=ms / 1000) for ms in (0, 10, 20)),
        replace(drain, topic="backlog", name="backlog of 10,000", messages=10_000),
        replace(
            drain,
            topic="backlog",
            name="backlog of 200,000",
            messages=200_000,
            entrants=entrants("boto3", "awscrt", "commit", "journal"),
        ),
        # Apart: Spark ends workers that are idle for a minute, and the others would pay for new ones.
        replace(partitions, name="one partition, 20 ms", messages=4_000, entrants=(Entrant("bare"), *_partitions(1))),
        replace(partitions, name="partitions, 20 ms", messages=8_000, entrants=_partitions(1, 2, 4, 8)),
        Comparison("s3", "journal on S3", S3),
        Comparison("payloads", "payloads on S3, 20 ms", PAYLOADS, size=50_000),
        replace(sink),
        replace(sink, name="sink, few groups", groups=200),
        replace(
            sink, name="sink, a group for each task, 10 ms", entrants=HOT_SINKS, messages=1_000, groups=2, delay_s=0.01
        ),
        replace(sink, name="sink, large bodies", size=50_000, messages=2_000, groups=500),
        replace(sink, name="sink, 20 ms", delay_s=0.02, messages=4_000),
        *(
            replace(latency, name=f"latency, {rate} a second", rate=float(rate), messages=max(rate * 10, 20))
            for rate in (1, 50, 500)
        ),
    ]


def quick() -> list[Comparison]:
    """A few small ones: each way once or more, in some minutes."""
    drain = Comparison("drain", "many groups", ALL, messages=4_000, groups=2_000, rounds=3)
    hot = Comparison("hot", "one group, 10 ms", entrants("loop", "bare", "journal", "commit"), 200, 1, delay_s=0.01)
    few = entrants("boto3", "naive", "commit", "journal")
    return [
        Comparison("floor", "empty micro-batches", entrants("empty"), messages=10, rounds=2),
        drain,
        replace(hot, rounds=2),
        replace(drain, topic="bodies", name="large bodies", messages=400, size=50_000, entrants=few, rounds=1),
        replace(drain, topic="delay", name="round trip 20 ms", messages=1_000, delay_s=0.02, entrants=few, rounds=2),
        Comparison("s3", "journal on S3", S3, 2_000, rounds=1),
        Comparison("sink", "sink, many groups", SINKS, messages=4_000, rounds=3),
        Comparison("latency", "latency, 50 a second", few, messages=250, groups=50, rate=50.0, rounds=1),
        replace(
            drain,
            topic="partitions",
            name="partitions",
            messages=2_000,
            entrants=_partitions(1, 8),
            delay_s=0.01,
            slots=8,
            rounds=1,
        ),
    ]
