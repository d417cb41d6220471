"""The fixtures for other people's tests: a queue for each, whatever their pytest is told, and nothing where unused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

ROOT = Path(__file__).resolve().parents[3]

# An installed package brings the plugin by its entry point; here it is this copy's, and loaded once.
PLUGIN = ("-p", "no:sqs_fifo_spark", "-p", "sqs_fifo_spark.local.pytest_plugin", "-p", "no:cacheprovider")
STRICT = ("-W", "error", "--strict-config", "--strict-markers")


@pytest.fixture
def other(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """Somebody else's project, with pytest in a process of its own and this package on the path."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    return pytester


def ends(other: pytest.Pytester, source: str, *arguments: str, **outcomes: int) -> pytest.RunResult:
    """Run these tests, and return what pytest has said, if their outcomes are those."""
    other.makepyfile(source)
    result = other.runpytest_subprocess(*PLUGIN, *STRICT, *arguments)
    result.assert_outcomes(**outcomes)
    return result


def test_each_test_has_a_queue_of_its_own(other: pytest.Pytester) -> None:
    """The next one does not see anything that one leaves behind, faults too, though it fails; the server is the same.

    Neither queue nor message collides with a name or a deduplication id that a test thought of.
    """
    source = """
    import pytest
    from sqs_fifo_spark.local import Faults

    NAMES = [f"test-{number}.fifo" for number in range(5)]
    seen = []

    def test_names(sqs_fifo_queue, sqs_fifo_server):
        for name in NAMES:
            request = {"QueueName": name, "Attributes": {"FifoQueue": "true"}}
            sqs_fifo_server.run(lambda model: model.call("CreateQueue", request))
        for number in range(5):
            sqs_fifo_queue.send("by hand", dedup_id=f"dedup-{number}")
        sqs_fifo_queue.send("new")
        assert len(sqs_fifo_queue.messages()) == 6

    @pytest.mark.parametrize("turn", [1, 2])
    def test_queue(turn, sqs_fifo_queue, sqs_fifo_server):
        assert sqs_fifo_queue.name.endswith(".fifo")
        assert sqs_fifo_queue.name not in NAMES
        assert sqs_fifo_queue.url == f"{sqs_fifo_queue.endpoint_url}/000000000000/{sqs_fifo_queue.name}"
        assert sqs_fifo_server.faults == Faults()
        assert sqs_fifo_queue.messages() == []
        sqs_fifo_queue.send("1")
        sqs_fifo_server.faults = Faults(throttle=1.0)
        sqs_fifo_queue.send("2")
        assert [message["body"] for message in sqs_fifo_queue.messages()] == ["1", "2"]
        seen.append((sqs_fifo_queue.name, sqs_fifo_server))

    def test_fails(sqs_fifo_server):
        sqs_fifo_server.faults = Faults(throttle=1.0)
        assert False

    def test_both(sqs_fifo_server):
        (first, server), (second, same) = seen
        assert first != second
        assert server is same is sqs_fifo_server
        assert sqs_fifo_server.faults == Faults()
        left = sqs_fifo_server.run(lambda model: model.call("ListQueues", {}))["QueueUrls"]
        assert [url.rpartition("/")[2] for url in left] == NAMES

    @pytest.fixture(scope="module")
    def throttled(sqs_fifo_server):
        sqs_fifo_server.faults = Faults(throttle=1.0)

    @pytest.mark.parametrize("turn", [1, 2])
    def test_of_a_fixture_for_several(turn, throttled, sqs_fifo_server, sqs_fifo_queue):
        assert sqs_fifo_server.faults == Faults(throttle=1.0)
        sqs_fifo_server.faults = Faults()
    """
    ends(other, source, passed=6, failed=1)


def test_client_and_helpers_see_the_same_queue(other: pytest.Pytester) -> None:
    """boto3 needs no settings; what was sent is received in order, and its history told."""
    source = """
    def test_queue(sqs_fifo_queue, sqs_fifo_server):
        first = sqs_fifo_queue.send("1", "a", attributes={"colour": "red"})
        assert sqs_fifo_queue.send("again", "a", "d") == sqs_fifo_queue.send("again", "a", "d")
        assert sqs_fifo_queue.queue_url == sqs_fifo_queue.url
        request = {"QueueUrl": sqs_fifo_queue.url, "MaxNumberOfMessages": 10, "MessageAttributeNames": ["All"]}
        messages = sqs_fifo_queue.client.receive_message(**request)["Messages"]
        assert [message["Body"] for message in messages] == ["1", "again"]
        assert messages[0]["MessageAttributes"]["colour"]["StringValue"] == "red"
        assert "Messages" not in sqs_fifo_queue.client.receive_message(**request)
        assert sqs_fifo_server.client is sqs_fifo_queue.client
        sqs_fifo_queue.advance(30)
        assert len(sqs_fifo_queue.client.receive_message(**request)["Messages"]) == 2
        told = [event["event"] for event in sqs_fifo_queue.history(first)]
        assert told == ["sent", "received", "lapsed", "received"]
        assert repr(sqs_fifo_queue) == f"LocalQueue({sqs_fifo_queue.url!r})"

    def test_deleted(sqs_fifo_queue):
        sqs_fifo_queue.client.delete_queue(QueueUrl=sqs_fifo_queue.url)
    """
    ends(other, source, passed=2)


@pytest.mark.slow
def test_factory_makes_queues_with_attributes(other: pytest.Pytester) -> None:
    """Several for one test, as `CreateQueue` would; it deletes them, and what it refuses is SQS's refusal."""
    source = """
    import boto3
    import pytest
    from botocore.config import Config
    from sqs_fifo_spark.local import Faults, SqsError

    def test_queues(sqs_fifo_queue_factory, sqs_fifo_queue):
        dead = sqs_fifo_queue_factory()
        arn = dead.client.get_queue_attributes(QueueUrl=dead.url, AttributeNames=["QueueArn"])
        redrive = '{"deadLetterTargetArn": "%s", "maxReceiveCount": 1}' % arn["Attributes"]["QueueArn"]
        queue = sqs_fifo_queue_factory({"RedrivePolicy": redrive, "VisibilityTimeout": "1"})
        queue.send("1")
        for _ in range(2):
            queue.client.receive_message(QueueUrl=queue.url)
            queue.advance(1)
        assert [message["body"] for message in dead.messages()] == ["1"]
        with pytest.raises(SqsError, match="InvalidAttributeValue"):
            sqs_fifo_queue_factory({"VisibilityTimeout": "43201"})
        assert len({dead.url, queue.url, sqs_fifo_queue.url}) == 3

    def test_quota(sqs_fifo_queue_factory, sqs_fifo_server, sqs_fifo_environment):
        queue = sqs_fifo_queue_factory()
        sqs_fifo_server.faults = Faults(calls_per_second=2)
        once = Config(retries={"total_max_attempts": 1})
        client = boto3.client("sqs", config=once)
        with pytest.raises(client.exceptions.ClientError, match="ThrottlingException"):
            while True:
                client.receive_message(QueueUrl=queue.url)
        client.close()

    def test_nothing_is_left(sqs_fifo_server):
        assert sqs_fifo_server.faults == Faults()
        assert sqs_fifo_server.run(lambda model: model.call("ListQueues", {})) == {}
    """
    ends(other, source, passed=3)


@pytest.mark.slow
def test_environment_leads_tested_code_to_the_server(other: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever profile and token the user has; afterwards it is as before."""
    monkeypatch.setenv("AWS_PROFILE", "mine")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "mine")
    source = """
    import os
    import boto3

    profile = os.environ.pop("AWS_PROFILE")
    boto3.setup_default_session(aws_access_key_id="mine", aws_secret_access_key="mine", aws_session_token="mine")
    os.environ["AWS_PROFILE"] = profile

    def test_code(sqs_fifo_environment, sqs_fifo_queue):
        assert boto3.client("sqs")._request_signer._credentials.access_key == "any"
        boto3.client("sqs").send_message(
            QueueUrl=sqs_fifo_queue.url, MessageBody="1", MessageGroupId="a", MessageDeduplicationId="1"
        )
        assert [message["body"] for message in sqs_fifo_queue.messages()] == ["1"]
        assert sqs_fifo_environment.items() <= os.environ.items()

    def test_after():
        assert boto3.DEFAULT_SESSION.get_credentials().access_key == "mine"
        assert "AWS_ENDPOINT_URL_SQS" not in os.environ
        assert os.environ["AWS_PROFILE"] == os.environ["AWS_SESSION_TOKEN"] == "mine"
    """
    ends(other, source, passed=2)


def test_refused_message_is_one_line_at_the_tests_own(other: pytest.Pytester) -> None:
    """With AWS's words, and no frame of ours."""
    result = ends(other, "def test_queue(sqs_fifo_queue): sqs_fifo_queue.send('1', group='a b')", failed=1)
    result.stdout.fnmatch_lines(["E *SqsError: InvalidParameterValue: Value a b for parameter MessageGroupId is *"])
    places = re.findall(r"^(\S+\.py):\d+: ", result.stdout.str(), re.MULTILINE)
    assert places == ["test_refused_message_is_one_line_at_the_tests_own.py"]


@pytest.mark.slow
def test_workers_of_xdist_do_not_meet(other: pytest.Pytester) -> None:
    """Each has a server of its own."""
    source = """
    import pytest

    @pytest.mark.parametrize("number", range(6))
    def test_queue(number, sqs_fifo_queue, sqs_fifo_server):
        sqs_fifo_queue.send(str(number))
        assert [message["body"] for message in sqs_fifo_queue.messages()] == [str(number)]
        assert len(sqs_fifo_server.run(lambda model: model.call("ListQueues", {}))["QueueUrls"]) == 1
    """
    ends(other, source, "-n", "2", passed=6)


def test_missing_aiohttp_is_one_line(other: pytest.Pytester) -> None:
    """No traceback, and the other tests run."""
    other.makeconftest("import sys; sys.modules['aiohttp'] = None")
    source = "def test_queue(sqs_fifo_queue): pass\n\ndef test_other(): pass"
    result = ends(other, source, passed=1, errors=1)
    told = "the fixture 'sqs_fifo_server' needs aiohttp: pip install 'aiohttp>=3.9'"
    assert result.outlines.count(told) == 1
    assert "No module named" not in result.stdout.str()


def test_unused_plugin_imports_nothing_heavy(other: pytest.Pytester) -> None:
    """Neither what it needs in a fixture, nor what the connector needs, nor the rest of the local queue."""
    source = """
    import sys

    def test_nothing():
        heavy = {"aiohttp", "boto3", "botocore", "pyspark", "pyarrow", "obstore", "asyncio"}
        assert heavy & set(sys.modules) == set()
        rooms = {name for name in sys.modules if name.startswith("sqs_fifo_spark.local.")}
        assert rooms == {"sqs_fifo_spark.local.pytest_plugin"}
    """
    ends(other, source, "-p", "no:xdist", passed=1)


@pytest.mark.slow
def test_examples_of_the_page_work(other: pytest.Pytester) -> None:
    """Every Python block of the page on the local queue, as it stands there."""
    page = (ROOT / "sqs_fifo_spark" / "docs" / "local-queue.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 4
    ends(other, "\n\n".join(blocks), passed=1)
