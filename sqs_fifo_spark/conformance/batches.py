"""Batch calls: all or nothing for their form, each entry by itself for the rest."""

from __future__ import annotations

from sqs_fifo_spark.conformance.bench import Bench
from sqs_fifo_spark.conformance.case import API, RECORDED, case
from sqs_fifo_spark.conformance.refusals import failures, outcome, require, require_refusal


@case(API)
def empty(bench: Bench) -> None:
    """A batch without entries is refused with EmptyBatchRequest."""
    require_refusal("EmptyBatchRequest", bench.queue().send_batch)


@case(API, RECORDED)
def eleven(bench: Bench) -> None:
    """A batch of 11 entries is refused with TooManyEntriesInBatchRequest, and stores nothing."""
    queue = bench.queue()
    require_refusal("TooManyEntriesInBatchRequest", queue.send_all, *map(str, range(11)))
    queue.expect_nothing("the batch was refused")


@case(API)
def equal_ids(bench: Bench) -> None:
    """Two entries with one id are refused with BatchEntryIdsNotDistinct, and nothing is stored."""
    queue = bench.queue()
    drafts = [{**queue.draft(mark), "Id": "x"} for mark in "12"]
    require_refusal("BatchEntryIdsNotDistinct", queue.send_batch, *drafts)
    queue.expect_nothing("the batch was refused")


@case(API, RECORDED)
def entry_id(bench: Bench) -> None:
    """The id of an entry has 1 to 80 letters, digits, hyphens and underscores."""
    queue = bench.queue()
    require({}, failures(queue.send_batch({**queue.draft("1"), "Id": "a-Z_9" * 16})), "failed")
    for wrong in ("x" * 81, "a b", "a.b"):
        require_refusal("InvalidBatchEntryId", queue.send_batch, {**queue.draft("2"), "Id": wrong})


@case(RECORDED)
def missing_group(bench: Bench) -> None:
    """An entry without a group fails the whole batch."""
    queue = bench.queue()
    drafts = queue.draft("1"), queue.draft("2", MessageGroupId=None)
    require_refusal(("InvalidParameterValue", "MissingParameter"), queue.send_batch, *drafts)
    queue.expect_nothing("the batch was refused")


@case(RECORDED)
def missing_deduplication_id(bench: Bench) -> None:
    """An entry without a deduplication id, where one is needed, fails the whole batch."""
    queue = bench.queue()
    drafts = queue.draft("1"), queue.draft("2", MessageDeduplicationId=None)
    require_refusal("InvalidParameterValue", queue.send_batch, *drafts)
    queue.expect_nothing("the batch was refused")


@case(API, "sources differ about the other entries: they are stored, or the whole batch is refused")
def refused_entry(bench: Bench) -> None:
    """An entry with a character that XML does not have is refused with InvalidMessageContents, alone or with all."""
    queue = bench.queue()
    drafts = queue.draft("1"), queue.draft("2", MessageBody="\x01"), queue.draft("3")
    code, answer = outcome(queue.send_batch, *drafts)
    if code:
        require("InvalidMessageContents", code)
        queue.expect_nothing("the batch was refused")
        return
    require({"1": "InvalidMessageContents"}, failures(answer), "failed")
    require("1, 3", queue.drain(2))


@case(API)
def deletes(bench: Bench) -> None:
    """Each entry of a batch of deletes succeeds or fails by itself."""
    queue = bench.queue()
    queue.send("1", group="a")
    first = queue.take_one("1")
    queue.send("2", group="b")
    second = queue.take_one("2")
    answer = queue.delete_batch([first, {"ReceiptHandle": "no-handle"}])
    require({"1": "ReceiptHandleIsInvalid"}, failures(answer), "failed")
    queue.release(second)
    queue.take("2")


@case(API)
def of_receipts(bench: Bench) -> None:
    """Batches of deletes and of visibility changes are refused as those of sends are."""
    queue = bench.queue()
    entry = {"ReceiptHandle": "no-handle", "VisibilityTimeout": 0}
    wrongs = {"EmptyBatchRequest": "", "BatchEntryIdsNotDistinct": "aa", "InvalidBatchEntryId": "a "}
    for action in ("DeleteMessageBatch", "ChangeMessageVisibilityBatch"):
        fields = entry if action.startswith("Change") else {"ReceiptHandle": "no-handle"}
        for code, ids in {**wrongs, "TooManyEntriesInBatchRequest": "abcdefghijk"}.items():
            require_refusal(code, queue.call, action, Entries=[{**fields, "Id": text} for text in ids])


@case(API)
def answers(bench: Bench) -> None:
    """Each entry's answer has its id, a message id, the body's MD5 and a sequence number."""
    queue = bench.queue()
    answer = queue.send_all("1", "2")
    require(["0", "1"], sorted(entry["Id"] for entry in answer["Successful"]), "ids")
    for entry in answer["Successful"]:
        for name in ("MessageId", "MD5OfMessageBody", "SequenceNumber"):
            require(True, bool(entry.get(name)), f"{name} is there:")


@case(API, chunks=64, seconds=4)
def size(bench: Bench) -> None:
    """A batch holds 1,048,576 bytes in all; one byte more is refused with BatchRequestTooLong."""
    queue = bench.queue_of_1_mib()
    bodies = ["x" * 524_288, "y" * 524_288]
    drafts = [queue.draft(body[:3], MessageBody=body) for body in bodies]
    require({}, failures(queue.send_batch(*drafts)), "failed")
    drafts[0] = queue.draft("more", MessageBody=bodies[0] + "x")
    require_refusal("BatchRequestTooLong", queue.send_batch, *drafts)
