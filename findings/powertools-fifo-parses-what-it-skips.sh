#!/usr/bin/env bash
# aws-lambda-powertools 3.37.0, SqsFifoPartialProcessor with a model; pydantic 2.14.4
# Bet: once a message of a FIFO batch has failed, the ones after it are reported as failed, unread, and those before it
#   are done. So it is without a model, and BatchProcessor reports a message that its model refuses as one failure.
# Behaviour: each message that is skipped is parsed with the model first. One that the model refuses raises
#   ValidationError out of the processor, and the invocation has no list of failures at all. With skip_group_on_error, the
#   messages of other groups after it are not handled either.
# Cost: Lambda takes all messages of the batch for failed. Those that were handled are handled again, with each new
#   attempt, and at maxReceiveCount they go to the dead-letter queue, although they never failed. Parse in the handler.
# Seen: model, one invalid: handled ['1'], failed ['2', '3']
#       no model, two invalid: handled ['1'], failed ['2', '3']
#       model, two invalid: handled ['1'], raised ValidationError
#       model, two invalid in one group, then another group: handled ['1'], raised ValidationError
#       BatchProcessor, model, two invalid: handled ['1'], failed ['2', '3']
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check aws-lambda-powertools==3.37.0 pydantic==2.14.4
cat > "$place/run.py" <<'PY'
import sys

from aws_lambda_powertools.utilities.batch import BatchProcessor, EventType, SqsFifoPartialProcessor
from aws_lambda_powertools.utilities.batch import process_partial_response
from aws_lambda_powertools.utilities.parser.models import SqsRecordModel
from pydantic import BaseModel, Json


class Order(BaseModel):
    id: int


class Record(SqsRecordModel):
    body: Json[Order]


VALID, INVALID = '{"id": 1}', '{"id": "one"}'


def record(number, body, group):
    return {
        "messageId": str(number),
        "receiptHandle": "h",
        "body": body,
        "attributes": {
            "ApproximateReceiveCount": "1",
            "ApproximateFirstReceiveTimestamp": "1795860000001",
            "MessageDeduplicationId": str(number),
            "MessageGroupId": group,
            "SenderId": "sender",
            "SentTimestamp": "1795860000000",
            "SequenceNumber": f"{number:020}",
        },
        "messageAttributes": {},
        "md5OfBody": "5d41402abc4b2a76b9719d911017c592",
        "eventSource": "aws:sqs",
        "eventSourceARN": "arn:aws:sqs:us-east-1:123456789012:orders.fifo",
        "awsRegion": "us-east-1",
    }


def run(processor, *messages):
    handled = []

    def handle(record):
        if isinstance(record.body, str):
            Order.model_validate_json(record.body)
        handled.append(getattr(record, "messageId", None) or record.message_id)

    event = {"Records": [record(number, *message) for number, message in enumerate(messages, 1)]}
    try:
        response = process_partial_response(event=event, record_handler=handle, processor=processor)
    except Exception as error:
        return f"handled {handled}, raised {type(error).__name__}"
    return f"handled {handled}, failed {[item['itemIdentifier'] for item in response['batchItemFailures']]}"


one = [(VALID, "g"), (INVALID, "g"), (VALID, "g")]
two = [(VALID, "g"), (INVALID, "g"), (INVALID, "g")]
seen = {
    "model, one invalid": run(SqsFifoPartialProcessor(model=Record), *one),
    "no model, two invalid": run(SqsFifoPartialProcessor(), *two),
    "model, two invalid": run(SqsFifoPartialProcessor(model=Record), *two),
    "model, two invalid in one group, then another group": run(
        SqsFifoPartialProcessor(model=Record, skip_group_on_error=True), *two, (VALID, "h")
    ),
    "BatchProcessor, model, two invalid": run(BatchProcessor(EventType.SQS, model=Record), *two),
}
for case, end in seen.items():
    print(f"{case}: {end}")
reported, raised = "handled ['1'], failed ['2', '3']", "handled ['1'], raised ValidationError"
sys.exit(list(seen.values()) != [reported, reported, raised, raised, reported])
PY
"$place/venv/bin/python" "$place/run.py"
