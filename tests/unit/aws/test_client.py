"""Credentials: found in the AWS chain, and shown to nobody."""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn

import botocore.session
import pytest
from botocore.credentials import RefreshableCredentials

from sqs_fifo_spark.aws import client as aws
from sqs_fifo_spark.aws.credentials import S3Credentials
from sqs_fifo_spark.aws.sdk_logs import without_sdk_logs
from sqs_fifo_spark.errors import AccessDeniedError, JournalUnavailableError, MissingPackageError
from sqs_fifo_spark.local import Faults, LocalQueueServer
from sqs_fifo_spark.options import AWS_CHAIN
from tests.unit.aws.answering import source_queue
from tests.unit.aws.standins import SECRET, TOKEN, TokenService

WEB_TOKEN = "WEBTOKEN-77aa"


@pytest.fixture
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment has no key, and AWS's SDK looks for one elsewhere."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)


@pytest.fixture
def web_identity(sts: TokenService, no_keys: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of a pod whose service account has a role."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", sts.url)
    (tmp_path / "token").write_text(WEB_TOKEN)
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "token"))
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/journal")


def by_us() -> str:
    found = S3Credentials()()
    assert found["token"] == TOKEN
    return str(found["secret_access_key"])


def by_the_sdk_alone() -> str:
    credentials = botocore.session.get_session().get_credentials()
    assert credentials is not None
    return str(credentials.get_frozen_credentials().secret_key)


@pytest.mark.usefixtures("web_identity")
@pytest.mark.parametrize(("find", "is_shown"), [(by_us, False), (by_the_sdk_alone, True)])
def test_the_journal_s_credentials_are_in_no_log(
    find: Callable[[], str], is_shown: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever the level. The control: the SDK by itself logs them while it fetches them."""
    with caplog.at_level(logging.DEBUG):
        assert find() == SECRET
    assert any(secret in caplog.text for secret in (SECRET, TOKEN, WEB_TOKEN)) is is_shown


def test_loggers_that_the_sdk_makes_later_are_quiet_too(caplog: pytest.LogCaptureFixture) -> None:
    """Also where another one has gone meanwhile."""
    names = logging.root.manager.loggerDict
    with without_sdk_logs():
        logging.getLogger("elsewhere")
    with caplog.at_level(logging.DEBUG):
        for later in ("botocore.later", "urllib3.later"):
            names.pop("elsewhere", None)
            logging.getLogger(later).debug("before")
            with without_sdk_logs():
                logging.getLogger(later).debug("within")
            names.pop(later)
    assert [record.message for record in caplog.records] == ["before", "before"]


@pytest.fixture
def credentials_file(no_keys: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Write the file of credentials with another access key; the AWS chain has nothing else."""
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))

    def write(key: str) -> None:
        (tmp_path / "credentials").write_text(f"[default]\naws_access_key_id={key}\naws_secret_access_key=any\n")

    write("old")
    return write


def silent() -> dict[str, str]:
    """Answer as botocore has it from a metadata service that does not answer."""
    return {}


def broken() -> dict[str, str]:
    raise OSError(SECRET)


@pytest.mark.slow
@pytest.mark.parametrize("renew", [silent, broken])
@pytest.mark.parametrize("minutes_left", [14, 4, -1])
def test_keys_that_are_valid_are_used_though_they_cannot_be_renewed(
    monkeypatch: pytest.MonkeyPatch, renew: Callable[[], dict[str, str]], minutes_left: int
) -> None:
    """For queue and journal, until they expire; the SDK wants new ones a quarter of an hour before that."""
    expires_at = datetime.now(timezone.utc) + timedelta(minutes=minutes_left)
    found = RefreshableCredentials("AKIDHELD", SECRET, TOKEN, expires_at, renew, "iam-role")
    monkeypatch.setattr("botocore.session.Session.get_credentials", lambda session: found)
    with LocalQueueServer(queues=["bids.fifo"]) as server:
        queue, journal = source_queue(server.queue_url("bids.fifo")), S3Credentials()
        if minutes_left > 0:
            assert queue.receive(10) == []
            assert journal()["secret_access_key"] == SECRET
            return
        with pytest.raises(AccessDeniedError, match="no usable AWS credentials") as denied:
            queue.receive(10)
        with pytest.raises(RuntimeError) as refused:
            journal()
    assert SECRET not in f"{denied.value}{refused.value}"


def test_credentials_renewed_in_their_file_are_taken_by_a_process_that_has_used_the_old_ones(
    credentials_file: Callable[[str], None],
) -> None:
    """Spark keeps its workers for query after query; the SDK reads the file once. Until then the refusal is told."""
    with LocalQueueServer(queues=["bids.fifo"]) as server:
        queue = source_queue(server.queue_url("bids.fifo"))
        queue.describe()
        server.faults = Faults(expired_keys=frozenset({"old"}))
        with pytest.raises(AccessDeniedError, match=r"does not take the credentials \(get_queue_attributes .+Renew"):
            queue.describe()
        credentials_file("new")
        queue.describe()
        assert queue.receive(10) == []


@pytest.mark.usefixtures("web_identity")
@pytest.mark.parametrize(("left_s", "stated_s"), [(1_000, 600), (700, 600), (400, 400)])
def test_the_journal_s_credentials_count_as_old_when_they_are(left_s: int, stated_s: int) -> None:
    """When they expire, or after ten minutes: what is asked again may have been renewed."""
    credentials = S3Credentials()
    credentials()
    now = datetime.now(timezone.utc)
    credentials._credentials._advisory_refresh_timeout = 0
    credentials._credentials._expiry_time = now + timedelta(seconds=left_s)
    assert abs(credentials()["expires_at"] - now - timedelta(seconds=stated_s)) < timedelta(seconds=20)


PROCESS = "[default]\ncredential_process = {}\n"
EXPIRED = json.dumps(
    {
        "Version": 1,
        "AccessKeyId": "AKIATEMP",
        "SecretAccessKey": SECRET,
        "SessionToken": TOKEN,
        "Expiration": "2020-01-01T00:00:00Z",
    }
)


@pytest.fixture
def credential_process(no_keys: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let the AWS chain have nothing but a program: it runs the lines of shell one after the other, the last again."""
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    (tmp_path / "config").write_text(PROCESS.format(f"/bin/sh {tmp_path}/script"))

    def write(*lines: str) -> None:
        count = f'n=$(($(cat {tmp_path}/n 2>/dev/null || echo 0) + 1)); echo $n > {tmp_path}/n; case "$n" in\n'
        cases = [f"{number if line is not lines[-1] else '*'}) {line} ;;\n" for number, line in enumerate(lines, 1)]
        (tmp_path / "script").write_text(count + "".join(cases) + "esac\n")

    return write


@pytest.fixture
def ask_queue() -> Iterator[Callable[[], object]]:
    """Make one call to a queue, with a client of its own."""
    with LocalQueueServer(queues=["bids.fifo"]) as server:
        yield lambda: source_queue(server.queue_url("bids.fifo")).describe()


def ask_store() -> None:
    S3Credentials()()


def without_web_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/r")


def without_pod_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config").unlink()
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://169.254.170.23/v1/credentials")
    monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", str(tmp_path / "none"))


def without_metadata_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config").unlink()
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://example.com/x")


def running(line: str) -> Callable[[Path, pytest.MonkeyPatch], object]:
    return lambda tmp_path, monkeypatch: (tmp_path / "script").write_text(line)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("break_chain", "kind"),
    [
        (without_web_token, "FileNotFoundError"),
        (without_pod_token, "FileNotFoundError"),
        (without_metadata_host, "ValueError"),
        (lambda tmp_path, _: (tmp_path / "config").write_text(PROCESS.format("/no/such/program")), "FileNotFoundError"),
        (running(f"echo 'welcome {SECRET}'"), "JSONDecodeError"),
        (running(f"echo '[\"{SECRET}\"]'"), "AttributeError"),
        (running(f"echo '{EXPIRED}'"), "RuntimeError"),
        (running(f"echo 'no {SECRET}' >&2; exit 1"), "CredentialRetrievalError"),
    ],
)
@pytest.mark.usefixtures("credential_process")
def test_a_broken_chain_is_told_by_the_kind_of_its_error_alone(
    break_chain: Callable[[Path, pytest.MonkeyPatch], object],
    kind: str,
    ask_queue: Callable[[], object],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its files and programs fail as they like, and what they say may hold a key; queue and journal raise our own."""
    break_chain(tmp_path, monkeypatch)
    with pytest.raises(AccessDeniedError, match=rf"no usable AWS credentials for .+ \({kind}\)\. Give") as told:
        ask_queue()
    assert told.value.has_no_credentials
    with pytest.raises((JournalUnavailableError, RuntimeError), match=kind) as told_by_store:
        ask_store()
    for error in (told.value, told_by_store.value):
        assert SECRET not in "".join(traceback.format_exception(error))


@pytest.mark.slow
@pytest.mark.parametrize("hiccup", ["exit 1", "echo nonsense", f"echo '{EXPIRED}'"])
def test_a_hiccup_of_the_chain_costs_no_call(
    hiccup: str, credential_process: Callable[..., None], ask_queue: Callable[[], object]
) -> None:
    """It is asked once more."""
    good = EXPIRED.replace("2020", "2099")
    again = [hiccup, f"echo '{EXPIRED}'"] if "2020" in hiccup else [hiccup]
    credential_process(*again, f"echo '{good}'")
    ask_queue()


def test_a_bug_is_not_taken_for_missing_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error outside of the AWS chain is raised as it is."""
    monkeypatch.setattr(aws, "sqs_client", lambda *_: SimpleNamespace(get_queue_attributes=lambda **_: 1 / 0))
    with pytest.raises(ZeroDivisionError):
        source_queue("http://127.0.0.1:1/1/q.fifo").describe()


@pytest.mark.parametrize("by", ["queue", "store"])
def test_what_a_credential_process_says_is_in_no_log(
    by: str, credential_process: Callable[..., None], ask_queue: Callable[[], object], caplog: pytest.LogCaptureFixture
) -> None:
    """The SDK warns of keys that it cannot renew, with a traceback that holds the program's words: here without."""
    credential_process(f"echo '{EXPIRED}'", f"echo 'no {SECRET}' >&2; exit 1")
    with pytest.raises((AccessDeniedError, RuntimeError)):
        (ask_queue if by == "queue" else ask_store)()
    assert "Refreshing temporary credentials failed during mandatory refresh period. (Credential" in caplog.text
    assert SECRET not in caplog.text


@pytest.mark.slow
def test_a_client_is_built_once_for_each_configuration() -> None:
    """Building one takes tens of milliseconds. When one is forgotten, those of others stay."""
    config, another = (aws.ClientConfig(region, "http://127.0.0.1:1") for region in ("us-east-1", "us-east-2"))
    first, other = aws.sqs_client(config), aws.sqs_client(another)
    assert aws.sqs_client(config) is first
    assert aws.sqs_client(config, 20) is not first
    aws.forget_clients(config)
    assert aws.sqs_client(config) is not first
    assert aws.sqs_client(another) is other


def test_a_client_is_built_without_a_look_at_all_services(monkeypatch: pytest.MonkeyPatch) -> None:
    """botocore looks into the folders of 400 services, twice, to find the one that it is asked for."""
    monkeypatch.setattr("botocore.loaders.Loader.list_available_services", None)
    aws.sqs_client(aws.ClientConfig("us-east-1", "http://127.0.0.1:1", replace(AWS_CHAIN, role_session_name="looking")))


def test_the_sdk_reads_its_data_once_for_all_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes 8 MiB in each process that reads it, and no credentials to do so."""
    with monkeypatch.context() as without_chain:
        without_chain.setattr("botocore.session.Session.get_credentials", None)
        aws.read_sdk_data()
    monkeypatch.setattr("botocore.loaders.JSONFileLoader.load_file", None)
    for name in ("one", "other"):
        aws.sqs_client(aws.ClientConfig("eu-west-1", None, replace(AWS_CHAIN, role_session_name=name)))


@pytest.mark.parametrize(
    "endpoint",
    [
        None,
        SimpleNamespace(),
        SimpleNamespace(http_session=SimpleNamespace()),
        SimpleNamespace(http_session=SimpleNamespace(_pool_classes_by_scheme=None)),
    ],
)
def test_a_botocore_that_does_not_fit_is_told(monkeypatch: pytest.MonkeyPatch, endpoint: object) -> None:
    """Its connections are private to it: without ours, rows could be sent too late, so none is sent."""
    events = SimpleNamespace(register=lambda *_, **__: None)
    client = SimpleNamespace(meta=SimpleNamespace(events=events), _endpoint=endpoint)
    monkeypatch.setattr("botocore.session.Session.create_client", lambda *_, **__: client)
    monkeypatch.setattr("botocore.__version__", "9.9.9")
    for _ in range(2):
        with pytest.raises(MissingPackageError) as told:
            aws.sqs_client(aws.ClientConfig("us-east-1", "http://127.0.0.1:1"))
        assert str(told.value).startswith("botocore 9.9.9 does not fit: its connections cannot be watched")
        assert "Install another version of it with pip" in str(told.value)
        assert len(str(told.value).splitlines()) == 1


def test_a_session_in_the_place_of_boto3_s_changes_no_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """The import of AWS's extended client puts one there, for all code in the process."""

    def extended(*_: object, **__: object) -> NoReturn:
        raise AssertionError("an extended client")

    monkeypatch.setattr("boto3.session.Session", extended)
    monkeypatch.setattr("boto3.Session", extended)
    aws.sqs_client(aws.ClientConfig("us-east-1", "http://127.0.0.1:1", replace(AWS_CHAIN, role_session_name="alone")))
