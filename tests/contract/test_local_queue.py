"""A client's view of the local queue: what `conformance` does not show of names, types and errors."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from botocore.exceptions import ClientError

from sqs_fifo_spark.clock import ManualClock
from tests.contract.conftest import Queue


def code_of(call: Callable[[], object]) -> str:
    """The error code that boto3 shows for `call`, which must fail."""
    with pytest.raises(ClientError) as caught:
        call()
    code: str = caught.value.response["Error"]["Code"]
    return code


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
