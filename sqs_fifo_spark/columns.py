"""The source's columns as Arrow types. `schema` has them as Spark's; the sink takes some of them."""

from __future__ import annotations

import pyarrow as pa

_ATTRIBUTE_VALUE = pa.struct([("dataType", pa.string()), ("stringValue", pa.string()), ("binaryValue", pa.binary())])
_TIMESTAMP = pa.timestamp("us", tz="UTC")
_SNS = pa.struct(
    [
        ("topicArn", pa.string()),
        ("messageId", pa.string()),
        ("sequenceNumber", pa.string()),
        ("subject", pa.string()),
        ("timestamp", _TIMESTAMP),
    ]
)
ARROW_SCHEMA = pa.schema(
    [
        ("messageId", pa.string()),
        ("body", pa.string()),
        ("messageGroupId", pa.string()),
        ("messageDeduplicationId", pa.string()),
        ("sequenceNumber", pa.string()),
        ("sentTimestamp", _TIMESTAMP),
        ("firstReceiveTimestamp", _TIMESTAMP),
        ("receiveCount", pa.int32()),
        ("senderId", pa.string()),
        ("awsTraceHeader", pa.string()),
        ("deadLetterQueueSourceArn", pa.string()),
        ("messageAttributes", pa.map_(pa.string(), _ATTRIBUTE_VALUE)),
        ("sns", _SNS),
        ("payloadBucket", pa.string()),
        ("payloadKey", pa.string()),
        ("payloadError", pa.string()),
    ]
)
"""The source's columns, in order, as Arrow types."""
QUEUE_URL = pa.field("queueUrl", pa.string())
"""The column that says a row's queue. It is in no segment: a journal has one queue."""
