"""The page on bodies: each recipe takes the documents that it is for, and drops no row of any other."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.support import recipe

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def run(spark: SparkSession, title: str, *bodies: Any) -> dict[str, Any]:
    """Return what the recipe of this title makes of messages with these bodies; one that is no text is sent as JSON."""
    texts = [body if isinstance(body, str) else json.dumps(body) for body in bodies]
    rows = [(str(number), text) for number, text in enumerate(texts)]
    names: dict[str, Any] = {"messages": spark.createDataFrame(rows, "messageId STRING, body STRING")}
    exec(recipe("bodies.md", f"## {title}"), names)
    return names


def found(frame: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict(recursive=True) for row in frame.orderBy("messageId").collect()]


def test_json_is_parsed_and_what_is_none_is_kept(spark: SparkSession) -> None:
    """As the page's table says."""
    good = {"id": "7", "amount": 12.5, "placedAt": "2026-11-29T10:00:00Z"}
    names = run(
        spark,
        "JSON",
        good,
        "no JSON",
        {"id": "8", "amount": "much"},
        {"id": None},
        '{"id": "9", "amount": 0.125}',
        '{"id": 7}',
        '{"id": {"a": 1.10}}',
        '{"id": 1.10}',
        '{"id": "10"}\n{"id": "11"}',
    )
    bids = {row["messageId"]: row["bid"] for row in found(names["bids"])}
    others = {row["messageId"]: row["bid"]["malformed"] for row in found(names["others"])}
    assert bids.keys() | others.keys() == {str(number) for number in range(9)}
    assert others == {"1": "no JSON", "2": '{"id": "8", "amount": "much"}'}
    assert (bids["0"]["id"], bids["0"]["amount"]) == ("7", Decimal("12.50"))
    assert bids["0"]["placedAt"] is not None
    assert (bids["3"]["id"], bids["3"]["amount"]) == (None, None)
    assert bids["4"]["amount"] == Decimal("0.13")
    assert (bids["5"]["id"], bids["6"]["id"]) == ("7", '{"a":1.1}')
    assert (bids["7"]["id"], bids["8"]["id"]) == ("1.1", "10")


def event(what: str, detail: dict[str, Any]) -> dict[str, Any]:
    """An event in EventBridge's envelope, as AWS documents it."""
    return {
        "version": "0",
        "id": "17793124-05d4-b198-2fde-7ededc63b103",
        "detail-type": what,
        "source": "shop.orders",
        "account": "111122223333",
        "time": "2026-11-29T10:00:00Z",
        "region": "eu-west-1",
        "resources": [],
        "detail": detail,
    }


def test_events_of_eventbridge_are_opened(spark: SparkSession) -> None:
    names = run(
        spark,
        "EventBridge",
        event("Order Changed", {"orderId": "o-1", "state": "paid", "more": [1]}),
        event("Order Removed", {"orderId": "o-2"}),
        "no event",
    )
    orders = found(names["orders"])
    assert [(row["messageId"], row["orderId"], row["state"]) for row in orders] == [("0", "o-1", "paid")]
    assert names["events"].count() == 3


def test_events_of_s3_are_opened(spark: SparkSession) -> None:
    """EventBridge's keys are not encoded."""
    detail = {
        "version": "0",
        "bucket": {"name": "pictures"},
        "object": {"key": "red flower+1.jpg", "size": 5, "etag": "b1946ac9", "sequencer": "00617F08299329D189"},
        "request-id": "N4N7GDK58NMKJ12R",
        "reason": "PutObject",
    }
    names = run(spark, "S3 events", event("Object Created", detail), "no event")
    assert found(names["objects"]) == [
        {
            "messageId": "0",
            "what": "Object Created",
            "name": "pictures",
            "key": "red flower+1.jpg",
            "size": 5,
            "sequencer": "00617F08299329D189",
        },
        {"messageId": "1", "what": None, "name": None, "key": None, "size": None, "sequencer": None},
    ]


@pytest.mark.parametrize(
    ("encoded", "key"), [("red+flower%2B1.jpg", "red flower+1.jpg"), ("a/b%3Dc.jpg", "a/b=c.jpg"), ("100%", None)]
)
def test_notifications_of_s3_are_opened(spark: SparkSession, encoded: str, key: str | None) -> None:
    """Each record is a row; and a body without any is one."""
    record = {
        "eventVersion": "2.1",
        "eventName": "ObjectCreated:Put",
        "eventTime": "2026-11-29T10:00:00.000Z",
        "s3": {
            "bucket": {"name": "pictures"},
            "object": {"key": encoded, "size": 5, "sequencer": "0055AED6DCD90281E5"},
        },
    }
    test = {"Service": "Amazon S3", "Event": "s3:TestEvent", "Time": "2026-11-29T10:00:00.000Z", "Bucket": "pictures"}
    rows = found(run(spark, "S3 notifications", {"Records": [record, record]}, test, "no event")["objects"])
    assert [(row["messageId"], row["name"], row["key"]) for row in rows] == [
        ("0", "pictures", key),
        ("0", "pictures", key),
        ("1", None, None),
        ("2", None, None),
    ]
