"""The forms on the wire: AWS JSON 1.0, whose errors keep their old codes, and the older query protocol."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from sqs_fifo_spark.conformance.bench import Bench
from sqs_fifo_spark.conformance.case import API, DOCUMENTATION, REPORT, Differs, NotSupported, case
from sqs_fifo_spark.conformance.refusals import bare, code_of, is_unsupported, require, require_no_trouble

_BURST = 640
"""Calls; SQS's quota is 300 a second, for each action on a queue without high throughput."""
_THROTTLED = {"ThrottlingException", "RequestThrottled"}


def _headers(answer: dict[str, Any]) -> dict[str, str]:
    found: dict[str, str] = answer["ResponseMetadata"]["HTTPHeaders"]
    return found


@case(API)
def json(bench: Bench) -> None:
    """An answer in AWS JSON 1.0 says so in its content type, and has a request id."""
    answer = bench.queue().send("1")
    require("application/x-amz-json-1.0", _headers(answer).get("content-type", "").partition(";")[0], "content type")
    require(True, bool(answer["ResponseMetadata"].get("RequestId")), "a request id:")


@case(API, DOCUMENTATION)
def error_names(bench: Bench) -> None:
    """An error has the name of the service model in its body, and its old code in the header x-amzn-query-error."""
    missing = bench.client.exceptions.QueueDoesNotExist
    try:
        bench.call("GetQueueUrl", QueueName=bench.name())
    except missing as error:
        header = _headers(error.response).get("x-amzn-query-error", "")
        require("AWS.SimpleQueueService.NonExistentQueue;Sender", header, "header")
    else:
        raise Differs("QueueDoesNotExist", "accepted")


@case(API, DOCUMENTATION)
def codes(bench: Bench) -> None:
    """Codes come as boto3 shows AWS's: most as they are, some with the prefix AWS.SimpleQueueService."""
    queue = bench.queue()
    message = {"ReceiptHandle": "no-handle"}
    refused: dict[str, Callable[[], object]] = {
        "AWS.SimpleQueueService.NonExistentQueue": lambda: bench.call("GetQueueUrl", QueueName=bench.name()),
        "AWS.SimpleQueueService.EmptyBatchRequest": queue.send_batch,
        "InvalidParameterValue": lambda: queue.receive(11),
        "ReceiptHandleIsInvalid": lambda: queue.delete(message),
    }
    for code, call in refused.items():
        try:
            call()
        except bench.client.exceptions.ClientError as error:
            require_no_trouble(code_of(error))
            require(code, code_of(error))
        else:
            raise Differs(code, "accepted")


def _code(text: str) -> str:
    return text.partition("<Code>")[2].partition("</Code>")[0]


def _query(bench: Bench, action: str, **form: str) -> tuple[int, str]:
    """Call in the query protocol. Raises NotSupported when the answer is no XML."""
    status, text = bench.post(bench.signed(**{"Action": action, "Version": "2012-11-05", **form}))
    code = _code(text)
    require_no_trouble(code)
    if is_unsupported(code) or (f"<{action}Response" not in text and "<ErrorResponse" not in text):
        raise NotSupported("the query protocol")
    return status, text


@case(DOCUMENTATION, "botocore has spoken AWS JSON since 1.31.81")
def query(bench: Bench) -> None:
    """The query protocol is spoken, too: forms in, with numbered lists, and XML out."""
    url = bench.queue().url
    entry = {"Id": "e", "MessageBody": "1", "MessageGroupId": "g", "MessageDeduplicationId": "d"}
    attribute = {"Name": "a", "Value.StringValue": "b", "Value.DataType": "String"}
    entry |= {f"MessageAttribute.1.{name}": value for name, value in attribute.items()}
    batch = {f"SendMessageBatchRequestEntry.1.{name}": value for name, value in entry.items()}
    status, text = _query(bench, "SendMessageBatch", QueueUrl=url, **batch)
    is_sent = "<SendMessageBatchResultEntry>" in text and "<Id>e</Id>" in text
    require("200 True", f"{status} {is_sent}", "status, sent:")
    names = {"AttributeName.1": "All", "MessageAttributeName.1": "All", "WaitTimeSeconds": "2"}
    _, text = _query(bench, "ReceiveMessage", QueueUrl=url, **names)
    for part in ("<Body>1</Body>", "<Name>SequenceNumber</Name>", "<StringValue>b</StringValue>"):
        require(True, part in text, f"{part} is received:")


@case(
    DOCUMENTATION, REPORT, "the code differs between them, and how many calls are too many", calls=_BURST + 2, seconds=4
)
def burst(bench: Bench) -> None:
    """In a burst, each call is answered, or refused as throttled: ThrottlingException or RequestThrottled."""
    url = bench.queue().url
    _query(bench, "ReceiveMessage", QueueUrl=url)
    form = {"Action": "ReceiveMessage", "Version": "2012-11-05", "QueueUrl": url}
    with ThreadPoolExecutor(32) as pool:
        answers = [*pool.map(bench.post, [bench.signed(**form)] * _BURST)]
    for code in {bare(_code(text)) or str(status) for status, text in answers} - _THROTTLED - {"200"}:
        require_no_trouble(code)
        raise Differs(f"each call answered, or refused with {' or '.join(sorted(_THROTTLED))}", code)


@case(DOCUMENTATION)
def query_error(bench: Bench) -> None:
    """The query protocol's error has its old code in XML."""
    status, text = _query(bench, "GetQueueUrl", QueueName=bench.name())
    require("400 True", f"{status} {'<Code>AWS.SimpleQueueService.NonExistentQueue</Code>' in text}", "status, code:")
