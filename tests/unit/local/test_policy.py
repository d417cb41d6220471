"""IAM policies of access keys: what they allow, deny and refuse, as AWS does it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sqs_fifo_spark.local import LocalQueueServer, SqsError
from sqs_fifo_spark.local.policy import Policies, read_policies
from tests.unit.local.caller import Caller
from tests.unit.local.model_queue import ARN, a_message

QUEUE = f"{ARN}q.fifo"


def statement(actions: Any, resources: Any = "*", effect: str = "Allow", **others: Any) -> dict[str, Any]:
    return {"Effect": effect, "Action": actions, "Resource": resources, **others}


def document(*statements: Any) -> dict[str, Any]:
    return {"Version": "2012-10-17", "Statement": list(statements)}


def may(action: str, *statements: dict[str, Any]) -> bool:
    try:
        Policies({"KEY": document(*statements)}).require("KEY", action, QUEUE)
    except SqsError as error:
        return error.query_code != "AccessDenied"
    return True


@pytest.mark.parametrize(
    ("actions", "action", "is_allowed"),
    [
        ("sqs:SendMessage", "SendMessage", True),
        (["sqs:ReceiveMessage", "sqs:SendMessage"], "SendMessage", True),
        ("SQS:sendmessage", "SendMessage", True),
        ("sqs:Send*", "SendMessage", True),
        ("sqs:?endMessage", "SendMessage", True),
        ("*", "ListQueues", True),
        ("sqs:ReceiveMessage", "SendMessage", False),
        ("sqs:Send", "SendMessage", False),
        ("s3:*", "SendMessage", False),
        # A batch action is no permission of its own on AWS.
        *(
            (f"sqs:{each}", f"{each}Batch", True)
            for each in ("SendMessage", "DeleteMessage", "ChangeMessageVisibility")
        ),
        ("sqs:SendMessageBatch", "SendMessageBatch", False),
    ],
)
def test_an_action_is_allowed_by_its_name_or_by_wildcards(actions: Any, action: str, is_allowed: bool) -> None:
    """In any case; and a batch action by the name of its single one, only."""
    assert may(action, statement(actions)) is is_allowed


@pytest.mark.parametrize(
    ("resources", "is_allowed"),
    [
        *((given, True) for given in (QUEUE, [f"{QUEUE}x", QUEUE], "arn:aws:sqs:*:*:q.fifo", f"{ARN}?.fifo")),
        *((given, False) for given in (f"{ARN}Q.fifo", QUEUE[:-5], QUEUE.replace("us-east", "eu-west"))),
    ],
)
def test_a_queue_is_named_by_its_arn(resources: Any, is_allowed: bool) -> None:
    """With wildcards, and in the same case."""
    assert may("SendMessage", statement("sqs:*", resources)) is is_allowed


def test_a_deny_beats_every_allow() -> None:
    """Wherever it stands; and it concerns nothing else."""
    allow, deny = statement("sqs:*"), statement("sqs:SendMessage", QUEUE, "Deny")
    for statements in ((allow, deny), (deny, allow)):
        assert not may("SendMessageBatch", *statements)
        assert may("ReceiveMessage", *statements)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ([], "is no IAM policy document"),
        ({"Version": "2012-10-17"}, "is no IAM policy document"),
        (document("x"), "must be a JSON map"),
        (document(statement("sqs:*", Condition={"Bool": {}})), "has the element 'Condition', which this"),
        (document(statement("sqs:*"), statement("sqs:*", NotAction="sqs:*")), "has the element 'NotAction'"),
        (document(statement("sqs:*", Principal="*")), "has the element 'Principal'"),
        (document(statement("sqs:*", effect="allow")), "has the Effect 'allow'"),
        (document(statement("SendMessage")), "has the Action 'SendMessage'"),
        (document(statement([])), r"has the Action \[\]"),
        (document(statement("sqs:*", 1)), "has the Resource 1"),
        (document(statement("sqs:*", "orders.fifo")), "has the Resource 'orders.fifo'"),
        (document(statement("sqs:*", "arn:aws:sqs:*:*:${aws:username}")), "has a variable in its Resource"),
    ],
)
def test_a_policy_that_is_not_evaluated_as_on_aws_is_refused(given: Any, says: str) -> None:
    """In one line, which names the access key: else a test would count on what nobody looks at."""
    with pytest.raises(ValueError, match=rf"^(statement \d of )?the policy of 'KEY' {says}") as told:
        LocalQueueServer(policies={"KEY": given})
    assert "\n" not in str(told.value)


def test_the_command_reads_a_key_and_a_file(tmp_path: Path) -> None:
    """A wrong argument, bad JSON, or a second policy for a key is an error of one line."""
    (tmp_path / "policy.json").write_text(json.dumps(document(statement("sqs:*"))))
    (tmp_path / "text").write_text("sqs:*")
    good = f"KEY={tmp_path}/policy.json"
    assert read_policies([good]) == {"KEY": document(statement("sqs:*"))}
    for given, says in (("KEY", "give KEY=FILE"), (f"K={tmp_path}/text", "not JSON"), (good, "has a policy already")):
        with pytest.raises(ValueError, match=says) as told:
            read_policies([good, given])
        assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("READER", "with an explicit deny in an identity-based policy"),
        ("NOBODY", "because no identity-based policy allows the sqs:sendmessage action"),
    ],
)
def test_a_refusal_names_user_action_and_queue_as_sqs_does(key: str, reason: str) -> None:
    """Nothing is sent, and a key without a policy goes on."""
    deny = statement(["sqs:SendMessage", "sqs:ListQueues"], effect="Deny")
    policies = {"READER": document(statement("sqs:*"), deny), "NOBODY": document()}
    entries = [{"Id": "1", **a_message()}]
    with LocalQueueServer(queues=["q.fifo"], policies=policies) as server:
        caller = Caller(server)
        status, answer = caller.call("SendMessageBatch", access_key=key, Entries=entries)
        assert status == 403
        assert answer["__type"] == "com.amazonaws.sqs#AccessDeniedException"
        assert answer["message"] == (
            f"User: arn:aws:iam::000000000000:user/{key} is not authorized to perform: sqs:sendmessage on resource: "
            f"{QUEUE} {reason}"
        )
        assert caller.held() == []
        assert len(caller.call("SendMessageBatch", access_key="OTHER", Entries=entries)[1]["Successful"]) == 1
