"""The query protocol: `conformance` shows what it has to do; here, what is no request in it."""

from __future__ import annotations

from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from tests.unit.local.caller import Caller


@pytest.mark.parametrize(
    ("form", "code"),
    [
        (b"Action", "SerializationException"),
        (b"\xff=1", "SerializationException"),
        (b"Action=", "SerializationException"),
        (b"Action=ListQueues&A=1&A.1=2", "SerializationException"),
        (b"Action=ListQueues&A" + b".a" * 2_000 + b"=1", "SerializationException"),
        (b"Action=ReceiveMessage&QueueUrl=q.fifo&MaxNumberOfMessages=x", "SerializationException"),
        (b"Action=ReceiveMessage&QueueUrl=q.fifo&WaitTimeSeconds=" + b"9" * 5_000, "SerializationException"),
        (b"Action=SendMessageBatch&QueueUrl=q.fifo&Entries=", "AWS.SimpleQueueService.EmptyBatchRequest"),
        (b"Action=SetQueueAttributes&QueueUrl=q.fifo&Attribute.1.Name=x", "SerializationException"),
        (b"Action=NoSuchAction", "AWS.SimpleQueueService.UnsupportedOperation"),
    ],
)
def test_form_that_is_no_request_is_refused_in_xml(caller: Caller, form: bytes, code: str) -> None:
    """Whatever comes in, the answer is a 400 in the protocol's form, and the server has no defect to report."""
    with pytest.raises(HTTPError) as refused:
        urlopen(caller.server.endpoint_url, data=form)
    with refused.value as answer:
        assert answer.code == 400
        assert f"<Code>{code}</Code>" in answer.read().decode()
