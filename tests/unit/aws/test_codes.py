"""What a denied call is told as: the one thing that is to be granted, or corrected."""

from __future__ import annotations

from types import SimpleNamespace

import botocore.exceptions
import pytest

from sqs_fifo_spark.aws import client as aws
from sqs_fifo_spark.aws.codes import error_from_aws
from sqs_fifo_spark.clock import SYSTEM_CLOCK
from sqs_fifo_spark.errors import AccessDeniedError
from sqs_fifo_spark.options import parse_source_options
from sqs_fifo_spark.source.queue import Queue

URL = "https://sqs.eu-west-1.amazonaws.com/123456789012/orders.fifo"


@pytest.mark.parametrize(
    ("operation", "permission"),
    [
        ("get_queue_attributes", "sqs:GetQueueAttributes"),
        ("receive_message", "sqs:ReceiveMessage"),
        ("delete_message_batch", "sqs:DeleteMessage"),
        ("change_message_visibility_batch", "sqs:ChangeMessageVisibility"),
        ("send_message_batch", "sqs:SendMessage"),
    ],
)
@pytest.mark.parametrize("code", ["AccessDenied", "AccessDeniedException"])
def test_a_permission_is_told_by_its_name_in_a_policy(operation: str, permission: str, code: str) -> None:
    """That of a batch call is the one of the single call: IAM knows no other."""
    error = error_from_aws(operation, URL, code, "User: arn:aws:iam::123456789012:user/x is not authorized", status=403)
    assert isinstance(error, AccessDeniedError)
    assert str(error) == (
        f"AWS denied {operation} on '{URL}': {code}. Grant the permission '{permission}' on the queue, or correct the "
        "credentials."
    )


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("SignatureDoesNotMatch", "Correct the credentials that driver and executors find"),
        ("RequestExpired", "or the clock of their machine"),
        ("KmsAccessDenied", "'kms:Decrypt' and, for a sink, 'kms:GenerateDataKey' on the key"),
        ("KMS.DisabledException", "and see that it is enabled"),
    ],
)
def test_what_is_no_permission_of_sqs_is_not_told_as_one(code: str, says: str) -> None:
    """Neither a signature that is not taken, nor the key of an encrypted queue."""
    error = error_from_aws("receive_message", URL, code, "")
    assert isinstance(error, AccessDeniedError)
    assert says in str(error)
    assert "sqs:ReceiveMessage" not in str(error)


def test_a_role_that_may_not_be_assumed_is_told_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the call to SQS that fails, but SQS was never asked."""
    told = {"Error": {"Code": "AccessDenied"}, "ResponseMetadata": {"HTTPStatusCode": 403}}

    def deny(**arguments: object) -> None:
        raise botocore.exceptions.ClientError(told, "AssumeRole")

    client = SimpleNamespace(get_queue_attributes=deny)
    monkeypatch.setattr(aws, "sqs_client", lambda config, wait_time_s=0: client)
    queue = Queue(parse_source_options({"queueUrl": URL, "journalLocation": "/journal"}), SYSTEM_CLOCK)
    with pytest.raises(AccessDeniedError) as error:
        queue.describe()
    assert str(error.value) == (
        f"AWS denied AssumeRole on '{URL}': AccessDenied. Let the role's trust policy and, for 'roleArn', a policy of "
        "the caller allow 'sts:AssumeRole'."
    )
