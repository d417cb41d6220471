#!/usr/bin/env bash
# aws-lambda-powertools 3.37.0, idempotency; its table is that of moto 5.2.5 (DynamoDB)
# Bet: where the key has two parts, such as "[customer, payment]", a message that lacks one of them has no key:
#   raise_on_no_idempotency_key=True raises IdempotencyKeyError for it (the documentation has such an event for its
#   example of a failure), and without that it is handled without a check.
# Behaviour: a key counts as missing when all its parts are. With one part left, that part and a null are the key. All
#   messages of the customer that lack the other part are one for it: the function runs for the first of them, and each
#   other one gets the first one's result. Nothing is raised or warned of.
# Cost: a producer that calls the field paymentId now, or leaves it out, has one payment made for each customer. The
#   handler reports all as done, and SQS deletes them. Refuse a message without one of the fields before the check, or
#   set payload_validation_jmespath: then the second one raises.
# Seen: both parts: made [10, 20], answers ['paid 10', 'paid 20']
#       one part missing: made [10], answers ['paid 10', 'paid 10']
#       one part missing, raise_on_no_idempotency_key: made [10], answers ['paid 10', 'paid 10']
#       both parts missing, raise_on_no_idempotency_key: made [], answers ['IdempotencyKeyError', 'IdempotencyKeyError']
#       one part missing, payload_validation_jmespath: made [10], answers ['paid 10', 'IdempotencyValidationError']
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check \
    "aws-lambda-powertools[jmespath]==3.37.0" boto3==1.44.8 "moto[dynamodb]==5.2.5"
cat > "$place/run.py" <<'PY'
import os
import sys
import warnings

os.environ.update(
    AWS_ACCESS_KEY_ID="k", AWS_SECRET_ACCESS_KEY="s", AWS_DEFAULT_REGION="us-east-1", POWERTOOLS_SERVICE_NAME="payments"
)
import boto3
from aws_lambda_powertools.utilities.idempotency import (
    DynamoDBPersistenceLayer,
    IdempotencyConfig,
    idempotent_function,
)
from moto import mock_aws

warnings.simplefilter("error", UserWarning)  # What the package would warn of becomes an error.


class Context:
    def get_remaining_time_in_millis(self):
        return 60_000


def run(*bodies, **settings):
    made = []
    with mock_aws():
        boto3.client("dynamodb").create_table(
            TableName="done",
            KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )
        layer = DynamoDBPersistenceLayer(table_name="done")
        config = IdempotencyConfig(event_key_jmespath="[customer, payment]", **settings)
        config.register_lambda_context(Context())

        @idempotent_function(data_keyword_argument="body", persistence_store=layer, config=config)
        def pay(body):
            made.append(body["amount"])
            return f"paid {body['amount']}"

        answers = []
        for body in bodies:
            try:
                answers.append(pay(body=body))
            except Exception as error:
                answers.append(type(error).__name__)
    return f"made {made}, answers {answers}"


def payments(**names):
    """Two payments, whose fields have these names."""
    return [
        {names.get("customer", "customer"): 7, names.get("payment", "payment"): f"p{amount}", "amount": amount}
        for amount in (10, 20)
    ]


half, none = payments(payment="paymentId"), payments(customer="customerId", payment="paymentId")
must = {"raise_on_no_idempotency_key": True}
seen = {
    "both parts": run(*payments()),
    "one part missing": run(*half),
    "one part missing, raise_on_no_idempotency_key": run(*half, **must),
    "both parts missing, raise_on_no_idempotency_key": run(*none, **must),
    "one part missing, payload_validation_jmespath": run(*half, payload_validation_jmespath="amount"),
}
for case, end in seen.items():
    print(f"{case}: {end}")
once = "made [10], answers ['paid 10', 'paid 10']"
expected = [
    "made [10, 20], answers ['paid 10', 'paid 20']",
    once,
    once,
    "made [], answers ['IdempotencyKeyError', 'IdempotencyKeyError']",
    "made [10], answers ['paid 10', 'IdempotencyValidationError']",
]
sys.exit(list(seen.values()) != expected)
PY
"$place/venv/bin/python" "$place/run.py"
