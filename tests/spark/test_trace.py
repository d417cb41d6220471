"""A trace goes on from the producer, over source and sink, to the consumer."""

from __future__ import annotations

from typing import Any

import pytest

from tests.spark.support import Rig

XRAY = "Root=1-67891233-abcdef012345678912345678;Parent=53995c3f42cd8ad8;Sampled=1"


def test_a_context_comes_out_as_it_went_in(rig: Rig) -> None:
    """W3C's headers and baggage in message attributes, and X-Ray's header, in rows that nobody has touched."""
    pytest.importorskip("opentelemetry.sdk")
    from opentelemetry import baggage, trace
    from opentelemetry.baggage.propagation import W3CBaggagePropagator
    from opentelemetry.propagators.composite import CompositePropagator
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    propagator = CompositePropagator([TraceContextTextMapPropagator(), W3CBaggagePropagator()])
    tracer = TracerProvider().get_tracer("auction")
    contexts: dict[str, Any] = {}
    for number in range(3):
        with tracer.start_as_current_span("bid") as span:
            carrier: dict[str, str] = {}
            propagator.inject(carrier, baggage.set_baggage("lot", f"a, b={number}", trace.set_span_in_context(span)))
            contexts[str(number)] = span.get_span_context()
        rig.call(
            "SendMessage",
            QueueUrl=rig.url,
            MessageBody=str(number),
            MessageGroupId="lot",
            MessageDeduplicationId=str(number),
            MessageAttributes={name: {"DataType": "String", "StringValue": each} for name, each in carrier.items()},
            MessageSystemAttributes={"AWSTraceHeader": {"DataType": "String", "StringValue": XRAY}},
        )

    accepted = rig.create_queue("accepted.fifo")
    messages = rig.source()
    rig.drain_into_queue(messages.withColumn("messageDeduplicationId", messages.messageId), accepted)

    request = {"QueueUrl": accepted, "MaxNumberOfMessages": 10, "MessageAttributeNames": ["All"]}
    answer = rig.call("ReceiveMessage", **request, MessageSystemAttributeNames=["AWSTraceHeader"])
    assert [message["Body"] for message in answer["Messages"]] == ["0", "1", "2"]
    for message in answer["Messages"]:
        got = {name: value["StringValue"] for name, value in message["MessageAttributes"].items()}
        context = propagator.extract(got)
        came = trace.get_current_span(context).get_span_context()
        sent = contexts[message["Body"]]
        assert (came.trace_id, came.span_id, came.trace_flags) == (sent.trace_id, sent.span_id, sent.trace_flags)
        assert came.is_remote
        assert baggage.get_baggage("lot", context) == f"a, b={message['Body']}"
        assert message["Attributes"]["AWSTraceHeader"] == XRAY
