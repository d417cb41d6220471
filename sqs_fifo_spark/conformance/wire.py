"""The forms on the wire: AWS JSON 1.0, whose errors keep their old codes, and the older query protocol."""

from __future__ import annotations

from typing import Any

from sqs_fifo_spark.conformance.bench import Bench, require
from sqs_fifo_spark.conformance.case import API, DOCUMENTATION, Differs, NotSupported, case


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


@case(DOCUMENTATION, "botocore has spoken AWS JSON since 1.31.81")
def query(bench: Bench) -> None:
    """The query protocol is spoken, too: a form in, XML out."""
    queue = bench.queue()
    status, text = bench.query(Action="GetQueueUrl", QueueName=queue.url.rpartition("/")[2], Version="2012-11-05")
    if status != 200 and "<ErrorResponse" not in text:
        raise NotSupported("the query protocol")
    require("200 True", f"{status} {f'<QueueUrl>{queue.url}</QueueUrl>' in text}", "status, and the URL in XML:")


@case(DOCUMENTATION)
def query_error(bench: Bench) -> None:
    """The query protocol's error has its old code in XML."""
    status, text = bench.query(Action="GetQueueUrl", QueueName=bench.name(), Version="2012-11-05")
    if "<ErrorResponse" not in text:
        raise NotSupported("the query protocol")
    require("400 True", f"{status} {'<Code>AWS.SimpleQueueService.NonExistentQueue</Code>' in text}", "status, code:")
