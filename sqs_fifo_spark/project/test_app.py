"""The app on a queue that the test has for itself. It needs Java, but no AWS account."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from app import start
from pyspark.sql import SparkSession

import sqs_fifo_spark


@pytest.fixture
def spark(sqs_fifo_environment: dict[str, str]) -> Iterator[SparkSession]:
    """Spark on this machine, whose Python workers find the local queue's keys in the environment."""
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    session = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
    sqs_fifo_spark.register(session)
    yield session
    session.stop()


def test_each_bid_arrives_once_and_in_order(spark: SparkSession, sqs_fifo_queue: Any, tmp_path: Path) -> None:
    """Any other body arrives as it came, and nothing is left in the queue."""
    bids = [(f"auction-{number % 100}", "Ada", number) for number in range(1_000)]
    for auction, bidder, amount in bids:
        sqs_fifo_queue.send(json.dumps({"bidder": bidder, "amount": amount}), auction)
    rejected = ["no JSON", '{"bidder": "Ada"}', '{"bidder": "Ada", "amount": "much"}', "null"]
    for body in rejected:
        sqs_fifo_queue.send(body, "auction-0")

    start(spark, sqs_fifo_queue.url, str(tmp_path), availableNow=True).awaitTermination()

    rows = spark.read.parquet(f"{tmp_path}/rows").orderBy("auction", "sequenceNumber").collect()
    arrived = [(row.auction, row.bidder, int(row.amount)) for row in rows if row.kind == "bid"]
    assert arrived == sorted(bids, key=lambda bid: bid[0])
    assert [row.body for row in rows if row.kind == "rejected"] == rejected
    assert sqs_fifo_queue.messages() == []
