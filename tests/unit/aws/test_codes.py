"""The error of a denied call names the one thing to grant, or to correct."""

from __future__ import annotations

from types import SimpleNamespace

import botocore.exceptions
import pytest

from sqs_fifo_spark.aws import client as aws
from sqs_fifo_spark.aws.codes import LostHoldError, MessageRefusedError, error_from_aws
from sqs_fifo_spark.errors import AccessDeniedError, QueueRequestError
from tests.unit.aws.answering import source_queue

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
        ("InvalidSignatureException", "Correct the credentials that driver and executors find"),
        ("KmsAccessDenied", "'kms:Decrypt' and, for a sink, 'kms:GenerateDataKey' on the key"),
        ("KMS.DisabledException", "and see that it is enabled"),
        ("InvalidSecurity", "use https:// in 'queueUrl' and 'endpointUrl'"),
    ],
)
def test_what_is_no_permission_of_sqs_is_not_told_as_one(code: str, says: str) -> None:
    """Neither a signature that is not taken, nor the key of an encrypted queue."""
    error = error_from_aws("receive_message", URL, code, "")
    assert isinstance(error, AccessDeniedError)
    assert says in str(error)
    assert "sqs:ReceiveMessage" not in str(error)


def test_an_expired_handle_is_lost_whoever_is_at_fault() -> None:
    """LocalStack 2026.3.0 names its own fault for the entry of a batch. To try again would last as long as a commit."""
    said = "Value x for parameter ReceiptHandle is invalid. Reason: The receipt handle has expired."
    fault = {"SenderFault": False}
    error = error_from_aws("delete_message_batch", URL, "InvalidParameterValueException", said, sender_fault=fault)
    assert isinstance(error, LostHoldError)


def test_an_address_that_does_not_fit_is_told_with_the_options_to_correct() -> None:
    """SQS says no more than that the address is not valid for the endpoint."""
    error = error_from_aws("send_message_batch", URL, "InvalidAddress", "The address is not valid for this endpoint.")
    assert type(error) is QueueRequestError
    assert "Correct 'region' or 'endpointUrl' so that they fit 'queueUrl'" in str(error)


@pytest.mark.parametrize("operation", ["get_queue_attributes", "receive_message", "AssumeRole"])
def test_only_a_call_that_sends_has_a_message_refused(operation: str) -> None:
    """Any other is refused as a request is: whoever raises that anew with more words gives it one text."""
    for code in ("InvalidParameterValue", "MissingParameter"):
        assert type(error_from_aws(operation, URL, code, "no")) is QueueRequestError
        assert type(error_from_aws("send_message_batch", URL, code, "no")) is MessageRefusedError


def test_a_role_that_may_not_be_assumed_is_told_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the call to SQS that fails, but SQS was never asked."""
    told = {"Error": {"Code": "AccessDenied"}, "ResponseMetadata": {"HTTPStatusCode": 403}}

    def deny(**arguments: object) -> None:
        raise botocore.exceptions.ClientError(told, "AssumeRole")

    client = SimpleNamespace(get_queue_attributes=deny)
    monkeypatch.setattr(aws, "sqs_client", lambda config, wait_time_s=0: client)
    with pytest.raises(AccessDeniedError) as error:
        source_queue(URL).describe()
    assert str(error.value) == (
        f"AWS denied AssumeRole on '{URL}': AccessDenied. Let the role's trust policy and, for 'roleArn', a policy of "
        "the caller allow 'sts:AssumeRole'."
    )


LATE = "Signature expired: 20261127T100000Z is now earlier than 20261127T101000Z (20261127T101500Z - 5 min.)"
EARLY = "Signature not yet current: 20261127T103000Z is still later than 20261127T102000Z (20261127T101500Z + 5 min.)"


@pytest.mark.parametrize(
    ("code", "text", "shown"),
    [
        ("InvalidSignatureException", LATE, "it was signed at 20261127T100000Z, and AWS's clock says 20261127T101500Z"),
        ("SignatureDoesNotMatch", EARLY, "it was signed at 20261127T103000Z, and AWS's clock says 20261127T101500Z"),
        ("RequestExpired", "Request has expired.", "(receive_message"),
    ],
)
def test_a_wrong_clock_is_told_as_one(code: str, text: str, shown: str) -> None:
    """With both times; no permission would help, and no other credentials."""
    error = error_from_aws("receive_message", URL, code, f"{text} SECRET", status=403)
    assert isinstance(error, AccessDeniedError)
    assert shown in str(error)
    assert "Synchronise the clocks of driver and executors" in str(error)
    assert not any(wrong in str(error) for wrong in ("credentials", "permission", "SECRET"))


def refused(count: int, text: str, monkeypatch: pytest.MonkeyPatch, operation: str = "ReceiveMessage") -> list[str]:
    """Refuse the first `count` signatures of a client; what it is asked for."""
    asked: list[str] = []

    def receive_message(**arguments: object) -> dict[str, object]:
        asked.append(str(arguments["ReceiveRequestAttemptId"]))
        if len(asked) > count:
            return {}
        told = {"Error": {"Code": "InvalidSignatureException", "Message": text}}
        raise botocore.exceptions.ClientError(told, operation)

    client = SimpleNamespace(receive_message=receive_message)
    monkeypatch.setattr(aws, "sqs_client", lambda config, wait_time_s=0: client)
    return asked


@pytest.mark.parametrize("is_beside", [False, True])
def test_a_machine_that_stood_still_before_it_sent_signs_anew(is_beside: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its clock is right: a refused signature has had no effect, and the next one is taken."""
    asked = refused(1, LATE, monkeypatch)
    assert source_queue(URL).begin_receive(10, is_beside=is_beside).result() == []
    assert len(asked) == 2


@pytest.mark.parametrize(
    ("operation", "text", "most"),
    [("ReceiveMessage", LATE, 2), ("ReceiveMessage", EARLY, 1), ("AssumeRole", EARLY, 1)],
)
def test_a_clock_that_stays_wrong_ends_the_asking(
    operation: str, text: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told as such, not as a role's trust policy: that cannot help."""
    asked = refused(9, text, monkeypatch, operation)
    queue = source_queue(URL, roleArn="arn:aws:iam::123456789012:role/r")
    name = {"ReceiveMessage": "receive_message"}.get(operation, operation)
    with pytest.raises(AccessDeniedError, match=rf"refuses the time of a call \({name} .+Synchronise the clocks"):
        queue.receive(10)
    assert len(asked) == most


@pytest.mark.parametrize(
    ("operation", "code", "is_of_queue"),
    [
        ("get_queue_attributes", "AccessDenied", True),
        ("get_queue_attributes", "AccessDeniedException", True),
        ("receive_message", "KmsDisabled", True),
        ("receive_message", "KMS.AccessDeniedException", True),
        ("AssumeRole", "AccessDenied", False),
        ("get_queue_attributes", "ExpiredToken", False),
        ("get_queue_attributes", "InvalidClientTokenId", False),
        ("get_queue_attributes", "SignatureDoesNotMatch", False),
        ("get_queue_attributes", "SomethingNew", False),
    ],
)
def test_only_a_permission_or_a_key_is_a_fact_of_the_queue(operation: str, code: str, is_of_queue: bool) -> None:
    """Credentials that AWS does not take say nothing of it: a row that names the queue is not refused for them."""
    error = error_from_aws(operation, URL, code, "", status=403)
    assert isinstance(error, AccessDeniedError)
    assert error.is_of_queue is is_of_queue
