"""A setting that cannot work on the stated network is told of at the start, by the formulae of the pages' table."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from sqs_fifo_spark.aws.calls import MAX_CALL_BYTES, QueueFacts
from sqs_fifo_spark.options import parse_source_options
from sqs_fifo_spark.source.bandwidth import RENEWAL_S, bytes_at_once, most_held, visibility_needed_s
from sqs_fifo_spark.source.driver.startup import _warn
from sqs_fifo_spark.source.receive import Receive
from tests.manual_clock import ManualClock

DOCS = Path(__file__).resolve().parents[3] / "sqs_fifo_spark" / "docs"
NETWORKS = ((1, 300), (10, 50), (100, 10))
"""MB/s and ms for a request."""
PARTITIONS = (8, 64)
REQUIRED = {"queueUrl": "https://sqs.eu-west-1.amazonaws.com/0/a.fifo", "journalLocation": "/journal"}
QUEUE = QueueFacts("arn:aws:sqs:us-east-1:0:a.fifo", 345_600, None, False, True, MAX_CALL_BYTES)


def table() -> str:
    """Return the table of `docs/deploy.md`: what the defaults need, and how much of it there is."""
    defaults = parse_source_options(REQUIRED)
    heads = " | ".join(f"{count} partitions" for count in PARTITIONS)
    lines = [
        f"| bandwidth, delay of a request | {heads} | `maxMessagesPerTrigger` | receives |",
        "|---|" + "---|" * (len(PARTITIONS) + 2),
    ]
    for megabytes, delay_ms in NETWORKS:
        bytes_per_s, delay_s = megabytes * 1e6, delay_ms / 1_000
        sizes = [bytes_at_once(count, defaults.max_bytes_per_trigger, MAX_CALL_BYTES) for count in PARTITIONS]
        cells = [visibility_needed_s(size, bytes_per_s) for size in sizes]
        # As many as if heartbeats were shorter by as much as calls are longer than they are taken to be.
        by_delay = most_held(defaults.heartbeat_s * RENEWAL_S / max(RENEWAL_S, delay_s), None)
        held = min(by_delay, most_held(defaults.heartbeat_s, bytes_per_s))
        cells += [held // 1_000 * 1_000, int(defaults.max_fetch_s / delay_s)]
        lines.append(f"| {megabytes} MB/s, {delay_ms} ms | {' | '.join(f'{cell:,}' for cell in cells)} |")
    return "\n".join(lines)


def test_the_table_of_networks_is_current() -> None:
    """Between the markers stands what the formulae give, and nothing else."""
    begin, end = "<!-- networks:begin -->", "<!-- networks:end -->"
    text = (DOCS / "deploy.md").read_text(encoding="utf-8")
    assert text.count(begin) == text.count(end) == 1
    assert text.partition(begin)[2].partition(end)[0].strip() == table()


def test_what_is_said_to_be_enough_brings_answers_before_they_are_given_up() -> None:
    """Law 7: else the end of each answer is hidden, and comes again with a higher receive count."""
    size, bytes_per_s = bytes_at_once(8, 1, MAX_CALL_BYTES), 1e6
    enough_s = visibility_needed_s(size, bytes_per_s)
    receive = Receive("", ManualClock(), max_messages=10, wait_time_s=0, visibility_timeout_s=enough_s)
    assert size / bytes_per_s <= receive._within_s


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, []),
        ({"linkBytesPerSecond": "1000000"}, []),
        ({"linkBytesPerSecond": "650000"}, ["the 83886080 bytes that 8 partitions may receive at once take 129 s"]),
        ({"linkBytesPerSecond": "650000", "visibilityTimeoutSeconds": "162"}, []),
        ({"linkBytesPerSecond": "1000000", "maxBytesPerTrigger": "1g"}, ["to 1343, or lower maxBytesPerTrigger."]),
        ({"linkBytesPerSecond": "1000000", "numPartitions": "64"}, ["to 839, or lower numPartitions."]),
        (
            {"linkBytesPerSecond": "500000", "numPartitions": "1", "maxBytesPerTrigger": "1m"},
            ["about 16666 messages can be renewed in time (heartbeatSeconds: 40, linkBytesPerSecond: 500000)"],
        ),
    ],
)
def test_what_cannot_work_on_the_stated_network_is_told_with_the_figure_and_the_remedy(
    given: dict[str, str], says: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """One line for each setting; nothing where no network is stated, or where the remedy was taken."""
    with caplog.at_level(logging.WARNING):
        _warn(QUEUE, parse_source_options({**REQUIRED, **given}))
    assert len(caplog.messages) == len(says)
    assert all(text in line for text, line in zip(says, caplog.messages, strict=True))
    assert not any("\n" in line for line in caplog.messages)
