"""The templates in `conf` say what they are to say, as far as that shows without AWS and without Databricks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
import yaml
from moto import mock_aws
from moto.cloudformation.utils import yaml_tag_constructor

CONF = Path(__file__).resolve().parents[2] / "conf"
BUNDLE = CONF / "databricks"
TEMPLATE = (CONF / "cloudformation.yaml").read_text(encoding="utf-8")
# Nor does moto know of alarms in a stack.
pytestmark = pytest.mark.filterwarnings("ignore:Tried to parse AWS..CloudWatch..Alarm")


class TemplateLoader(yaml.SafeLoader):  # type: ignore[misc]
    """Reads CloudFormation's short functions in their long form."""


TemplateLoader.add_multi_constructor("", yaml_tag_constructor)


@pytest.fixture
def clients() -> Iterator[dict[str, Any]]:
    """Clients of moto's AWS, by service."""
    with mock_aws():
        yield {name: boto3.client(name) for name in ("cloudformation", "sqs")}


def deploy(clients: dict[str, Any], **parameters: str) -> dict[str, str]:
    """Create the stack, and return its outputs."""
    given = [{"ParameterKey": name, "ParameterValue": value} for name, value in parameters.items()]
    clients["cloudformation"].create_stack(StackName="orders", TemplateBody=TEMPLATE, Parameters=given)
    (stack,) = clients["cloudformation"].describe_stacks(StackName="orders")["Stacks"]
    assert stack["StackStatus"] == "CREATE_COMPLETE"
    return {each["OutputKey"]: each["OutputValue"] for each in stack["Outputs"]}


def attributes(clients: dict[str, Any], url: str) -> dict[str, str]:
    found: dict[str, str] = clients["sqs"].get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    return found


def test_the_stack_has_a_queue_that_a_source_can_read_for_long(clients: dict[str, Any]) -> None:
    """FIFO with high throughput, encrypted, 14 days, and 10 receives before a message is put aside in a FIFO queue."""
    out = deploy(clients)
    queue, dead = (attributes(clients, out[name]) for name in ("QueueUrl", "DeadLetterQueueUrl"))
    for found in (queue, dead):
        assert found["FifoQueue"] == "true"
        assert found["SqsManagedSseEnabled"] == "true"
        assert found["MessageRetentionPeriod"] == "1209600"
        assert (found["DeduplicationScope"], found["FifoThroughputLimit"]) == ("messageGroup", "perMessageGroupId")
    assert (queue["QueueArn"], dead["QueueArn"]) == (out["QueueArn"], out["DeadLetterQueueArn"])
    assert (out["QueueUrl"][-12:], out["DeadLetterQueueUrl"][-17:]) == ("/orders.fifo", "/orders-dead.fifo")
    policy = json.loads(queue["RedrivePolicy"])
    assert (policy["deadLetterTargetArn"], int(policy["maxReceiveCount"])) == (dead["QueueArn"], 10)
    # moto does not keep this one.
    allowed = yaml.load(TEMPLATE, TemplateLoader)["Resources"]["DeadLetterQueue"]["Properties"]["RedriveAllowPolicy"]
    arn = "arn:${AWS::Partition}:sqs:${AWS::Region}:${AWS::AccountId}:${QueueName}.fifo"
    assert allowed == {"redrivePermission": "byQueue", "sourceQueueArns": [{"Fn::Sub": arn}]}


def test_the_stack_s_parameters_reach_its_queues(clients: dict[str, Any]) -> None:
    """Each of them that is about a queue."""
    out = deploy(
        clients,
        QueueName="bids",
        DeduplicationScope="queue",
        FifoThroughputLimit="perQueue",
        ContentBasedDeduplication="true",
        RetentionSeconds="86400",
        DeadLetterRetentionSeconds="172800",
        MaxReceiveCount="3",
    )
    queue, dead = (attributes(clients, out[name]) for name in ("QueueUrl", "DeadLetterQueueUrl"))
    assert out["QueueUrl"].endswith("/bids.fifo")
    assert (queue["DeduplicationScope"], queue["FifoThroughputLimit"]) == ("queue", "perQueue")
    assert queue["ContentBasedDeduplication"] == "true"
    assert (queue["MessageRetentionPeriod"], dead["MessageRetentionPeriod"]) == ("86400", "172800")
    assert int(json.loads(queue["RedrivePolicy"])["maxReceiveCount"]) == 3


def test_the_stack_s_alarms_watch_both_queues() -> None:
    """The oldest message, what waits, and each dead letter; they tell the topic if there is one."""
    resources = yaml.load(TEMPLATE, TemplateLoader)["Resources"]
    alarms = [each["Properties"] for each in resources.values() if each["Type"] == "AWS::CloudWatch::Alarm"]
    watched = {(each["MetricName"], str(each["Dimensions"][0]["Value"]), str(each["Threshold"])) for each in alarms}
    queue, dead = ({"Fn::GetAtt": [name, "QueueName"]} for name in ("Queue", "DeadLetterQueue"))
    assert watched == {
        ("ApproximateAgeOfOldestMessage", str(queue), str({"Ref": "OldestMessageSeconds"})),
        ("ApproximateNumberOfMessagesVisible", str(queue), str({"Ref": "WaitingMessages"})),
        ("ApproximateNumberOfMessagesVisible", str(dead), "0"),
    }
    tells = {"Fn::If": ["HasTopic", [{"Ref": "AlarmTopicArn"}], {"Ref": "AWS::NoValue"}]}
    for each in alarms:
        assert (each["Namespace"], each["ComparisonOperator"]) == ("AWS/SQS", "GreaterThanThreshold")
        assert each["AlarmActions"] == each["OKActions"] == tells


def test_the_bundle_names_files_and_variables_that_there_are() -> None:
    """Its script is beside it, its wheel is built where the tasks look for it, and no variable is unknown or idle."""
    text = (BUNDLE / "databricks.yml").read_text(encoding="utf-8")
    bundle = yaml.safe_load(text)
    used = {part.partition("}")[0] for part in text.split("${var.")[1:]}
    assert used == set(bundle["variables"])
    (wheel,) = bundle["artifacts"].values()
    source = BUNDLE / wheel["path"] / wheel["build"].split()[-1]
    assert source.joinpath("setup.py").is_file()
    for job in bundle["resources"]["jobs"].values():
        (task,), (cluster,) = job["tasks"], job["job_clusters"]
        assert task["job_cluster_key"] == cluster["job_cluster_key"]
        assert BUNDLE.joinpath(task["spark_python_task"]["python_file"]).is_file()
        assert task["libraries"] == [{"whl": "./dist/*.whl"}]
        assert "--wheel-dir dist" in wheel["build"]
