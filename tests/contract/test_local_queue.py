"""An unmodified boto3 client's view: first what moto answers too, then what only AWS and we do."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from botocore.exceptions import ClientError

from sqs_fifo_spark.clock import ManualClock
from tests.contract.conftest import Queue
from tests.helpers import depth


def code_of(call: Callable[[], object]) -> str:
    """The error code that boto3 shows for `call`, which must fail."""
    with pytest.raises(ClientError) as caught:
        call()
    code: str = caught.value.response["Error"]["Code"]
    return code


# The same on both


def test_messages_of_a_group_come_in_order(queue: Queue) -> None:
    """Ten messages in one receive, in the order of their sending."""
    for number in range(10):
        queue.send(str(number))
    assert queue.bodies() == [str(number) for number in range(10)]


def test_group_in_flight_gives_no_more_and_other_groups_do(queue: Queue) -> None:
    """The lock holds a group, not the queue."""
    queue.send("a1", "a")
    queue.send("a2", "a")
    assert queue.bodies(1) == ["a1"]
    queue.send("b1", "b")
    assert queue.bodies() == ["b1"]


def test_partial_delete_keeps_the_group_locked(queue: Queue) -> None:
    """Only when all in-flight messages of a group are deleted does the next one come."""
    for body in "123":
        queue.send(body)
    first, second = queue.receive(2)
    queue.delete(first)
    assert queue.bodies() == []
    queue.delete(second)
    assert queue.bodies() == ["3"]


def test_released_messages_come_back_with_their_receive_counted(queue: Queue) -> None:
    """Visibility 0 releases at once."""
    queue.send("1")
    queue.hide(queue.receive()[0], 0)
    assert queue.receive()[0]["Attributes"]["ApproximateReceiveCount"] == "2"


def test_duplicate_of_a_waiting_message_is_not_stored(queue: Queue) -> None:
    """Sent twice with one deduplication id, a message is there once."""
    queue.send("1", MessageDeduplicationId="same")
    queue.send("1", MessageDeduplicationId="same")
    assert queue.bodies() == ["1"]


def test_message_attributes_arrive_with_types_and_bytes(queue: Queue) -> None:
    """Strings, numbers and bytes arrive as sent; botocore itself checks the digests."""
    attributes = {
        "text": {"DataType": "String", "StringValue": "é"},
        "number": {"DataType": "Number.int", "StringValue": "7"},
        "bytes": {"DataType": "Binary", "BinaryValue": b"\x00\xff"},
    }
    queue.send("body é", MessageAttributes=attributes)
    message = queue.receive(MessageAttributeNames=["All"])[0]
    assert message["MessageAttributes"] == attributes
    assert message["Body"] == "body é"


def test_batch_answers_name_each_entry(queue: Queue) -> None:
    """Sends and deletes in batches list each id under Successful."""
    entries = [
        {"Id": str(i), "MessageBody": str(i), "MessageGroupId": "g", "MessageDeduplicationId": f"x{i}"}
        for i in range(3)
    ]
    sent = queue.client.send_message_batch(QueueUrl=queue.url, Entries=entries)
    assert [entry["Id"] for entry in sent["Successful"]] == ["0", "1", "2"]
    handles = [message["ReceiptHandle"] for message in queue.receive()]
    done = queue.client.delete_message_batch(
        QueueUrl=queue.url, Entries=[{"Id": str(i), "ReceiptHandle": handle} for i, handle in enumerate(handles)]
    )
    assert [entry["Id"] for entry in done["Successful"]] == ["0", "1", "2"]
    assert not done.get("Failed")
    assert queue.bodies() == []


def test_repeated_entry_ids_are_refused(queue: Queue) -> None:
    """Two entries of one batch cannot share an id."""
    entries = [{"Id": "a", "ReceiptHandle": "h"}, {"Id": "a", "ReceiptHandle": "h"}]
    with pytest.raises(queue.client.exceptions.BatchEntryIdsNotDistinct):
        queue.client.delete_message_batch(QueueUrl=queue.url, Entries=entries)


def test_unknown_queue_has_the_code_of_the_old_protocol(queue: Queue) -> None:
    """boto3 shows the query code, and the modelled exception matches."""
    with pytest.raises(queue.client.exceptions.QueueDoesNotExist) as caught:
        queue.client.get_queue_url(QueueName="missing.fifo")
    assert caught.value.response["Error"]["Code"] == "AWS.SimpleQueueService.NonExistentQueue"


def test_send_without_group_is_refused(queue: Queue) -> None:
    """MessageGroupId is required on a FIFO queue."""
    call = queue.client.send_message
    assert code_of(lambda: call(QueueUrl=queue.url, MessageBody="b", MessageDeduplicationId="d")) == "MissingParameter"


def test_attributes_tell_fifo_and_counts(queue: Queue) -> None:
    """FifoQueue and the approximate counts are there under All."""
    queue.send("1", "a")
    queue.send("2", "b")
    queue.receive(1)
    shown = queue.client.get_queue_attributes(QueueUrl=queue.url, AttributeNames=["All"])["Attributes"]
    assert shown["FifoQueue"] == "true"
    assert shown["QueueArn"].endswith(f":{queue.name}")
    assert depth(queue.client.get_queue_attributes, queue.url) == (1, 1)


def test_standard_queue_shows_no_fifo_attribute(queue: Queue) -> None:
    """A client can tell a standard queue by the missing attribute."""
    url = queue.client.create_queue(QueueName=queue.name.removesuffix(".fifo"))["QueueUrl"]
    shown = queue.client.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert "FifoQueue" not in shown


# What moto gets wrong


def test_expired_handle_is_refused_with_the_recorded_codes(strict: Queue, clock: ManualClock) -> None:
    """InvalidParameterValue alone, ReceiptHandleIsInvalid in a batch; the message comes back."""
    strict.send("1")
    old = strict.receive(VisibilityTimeout=1)[0]
    clock.advance(1)
    with pytest.raises(ClientError, match="The receipt handle has expired") as caught:
        strict.delete(old)
    assert caught.value.response["Error"]["Code"] == "InvalidParameterValue"
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400
    done = strict.client.delete_message_batch(
        QueueUrl=strict.url, Entries=[{"Id": "0", "ReceiptHandle": old["ReceiptHandle"]}]
    )
    assert [(e["Code"], e["SenderFault"]) for e in done["Failed"]] == [("ReceiptHandleIsInvalid", True)]
    assert strict.bodies() == ["1"]


def test_visibility_errors_have_the_recorded_codes(strict: Queue, clock: ManualClock) -> None:
    """Gone: InvalidParameterValue. Lapsed: MessageNotInflight. Made up: ReceiptHandleIsInvalid."""
    strict.send("1")
    message = strict.receive(VisibilityTimeout=1)[0]
    clock.advance(0.5)
    with pytest.raises(ClientError, match=r"beyond the limit \[43200 seconds\]"):
        strict.hide(message, 43_200)
    clock.advance(1)
    with pytest.raises(strict.client.exceptions.MessageNotInflight):
        strict.hide(message, 10)
    with pytest.raises(strict.client.exceptions.ReceiptHandleIsInvalid):
        strict.hide({"ReceiptHandle": "made-up"}, 10)
    message = strict.receive()[0]
    strict.delete(message)
    assert code_of(lambda: strict.hide(message, 10)) == "InvalidParameterValue"


def test_tags_move_tasks_and_sources_come_under_their_names_and_in_their_types(strict: Queue) -> None:
    """A dead-letter queue as a client reads it."""
    client, dead = strict.client, strict.another()
    client.tag_queue(QueueUrl=dead.url, Tags={"a": "1", "b": "2"})
    client.untag_queue(QueueUrl=dead.url, TagKeys=["a"])
    assert client.list_queue_tags(QueueUrl=dead.url)["Tags"] == {"b": "2"}
    source = strict.another()
    source.give_up_to(dead)
    assert client.list_dead_letter_source_queues(QueueUrl=dead.url)["queueUrls"] == [source.url]
    for body in "12":
        source.send(body)
    source.receive(VisibilityTimeout=0)
    assert source.receive() == []
    handle = client.start_message_move_task(SourceArn=dead.arn, MaxNumberOfMessagesPerSecond=1)["TaskHandle"]
    [task] = client.list_message_move_tasks(SourceArn=dead.arn)["Results"]
    assert (task["TaskHandle"], task["Status"]) == (handle, "RUNNING")
    assert isinstance(task["StartedTimestamp"], int)
    assert client.cancel_message_move_task(TaskHandle=handle)["ApproximateNumberOfMessagesMoved"] == 1
    with pytest.raises(client.exceptions.ResourceNotFoundException):
        client.start_message_move_task(SourceArn=f"{dead.arn}.none")


def test_concurrent_receives_never_get_the_same_message(strict: Queue) -> None:
    """Eight clients at once drain a queue, and each message goes to one of them, in group order."""
    for number in range(100):
        strict.send(str(number), f"g{number % 5}")
    taken: list[list[int]] = [[] for _ in range(5)]
    lock = threading.Lock()

    def drain() -> None:
        while True:
            messages = strict.receive()
            if not messages and not depth(strict.client.get_queue_attributes, strict.url)[0]:
                return
            with lock:
                for message in messages:
                    taken[int(message["Body"]) % 5].append(int(message["Body"]))
            for message in messages:
                strict.delete(message)

    with ThreadPoolExecutor(8) as pool:
        for worker in [pool.submit(drain) for _ in range(8)]:
            worker.result(30)
    assert taken == [list(range(group, 100, 5)) for group in range(5)]
