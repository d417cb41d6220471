"""No body and no credential reaches a log, whatever the level."""

from __future__ import annotations

import pytest

from sqs_fifo_spark.local import Faults
from tests.spark.support import LONG_S, ROOT, Rig, run_app

SECRET_KEY = "SECRETKEY-b7c1f0"
TOKEN = "SESSIONTOKEN-b7c1f0"
BODY = "SECRETBODY-b7c1f0"
ATTRIBUTE = "SECRETATTRIBUTE-b7c1f0"
CONTROL = "CONTROL-5e0a44"

# Python imports it at the start of each process: the driver's, the reader's beside it, and the workers'.
SITECUSTOMIZE = """
import logging, sys
logging.basicConfig(
    level=logging.DEBUG, stream=sys.stderr, format="%(process)d %(levelname)s %(name)s %(threadName)s: %(message)s"
)
logging.getLogger("py4j").setLevel(logging.INFO)
"""


def run_at_debug_level(app: str, rig: Rig, control: str) -> str:
    """Run an application whose processes log everything, which must succeed, and return the log."""
    site = rig.home / "site"
    site.mkdir()
    site.joinpath("sitecustomize.py").write_text(SITECUSTOMIZE)
    secrets = {"AWS_SECRET_ACCESS_KEY": SECRET_KEY, "AWS_SESSION_TOKEN": TOKEN}
    arguments = (app, rig.url, control, rig.home)
    return run_app(*arguments, log=rig.home / "log.txt", timeout_s=5 * LONG_S, PYTHONPATH=f"{site}:{ROOT}", **secrets)


def require_no_secret(log: str, *more: str) -> None:
    """The control's body shows in two processes, and its token; of ours there is nothing."""
    shown = {line.split()[0] for line in log.splitlines() if " DEBUG botocore" in line and CONTROL in line}
    assert len(shown) >= 2, "the control's bodies do not show: this test could not fail"
    assert f"{CONTROL}-TOKEN" in log, "the control's token does not show: this test could not fail"
    for secret in (SECRET_KEY, TOKEN, BODY, ATTRIBUTE, *more):
        found = [line[:300] for line in log.splitlines() if secret in line]
        assert not found, f"{len(found)} lines of log hold {secret}: {found[:3]}"


@pytest.mark.long
def test_no_log_at_debug_level_holds_a_body_or_a_credential(rig: Rig) -> None:
    """Driver, reader process and workers log everything, through throttling, lost answers and failed entries.

    The control: plain boto3 calls in the same processes, beside ours, show bodies and tokens of their own.
    """
    control = rig.create_queue("control.fifo")
    attributes = {"a": {"DataType": "String", "StringValue": ATTRIBUTE}}
    for url, body, count, more in (
        (rig.url, BODY, 100, {"MessageAttributes": attributes}),
        (control, CONTROL, 50, {}),
    ):
        for number in range(count):
            ids = {"MessageGroupId": f"g{number % 20}", "MessageDeduplicationId": f"d{number}"}
            rig.call("SendMessage", QueueUrl=url, MessageBody=f"{body} {number}", **ids, **more)
    rig.server.faults = Faults(seed=1, throttle=0.1, drop_answer=0.05, fail_entry=0.1)
    log = run_at_debug_level("logs.py", rig, control)
    assert rig.depth() == (0, 0)
    for where in ("reader", "worker"):
        assert f"control call in the {where}" in log
    require_no_secret(log)
