"""No body and no credential reaches a log, whatever the level."""

from __future__ import annotations

from pathlib import Path

import boto3
import pytest

from sqs_fifo_spark.local import Faults
from tests.spark.support import ROOT, Rig, run_app

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


@pytest.mark.long
def test_no_log_at_debug_level_holds_a_body_or_a_credential(rig: Rig, tmp_path: Path) -> None:
    """Driver, reader process and workers log everything, through throttling, lost answers and failed entries.

    The control: plain boto3 calls in the same processes, beside ours, show bodies and tokens of their own.
    """
    site = tmp_path / "site"
    site.mkdir()
    site.joinpath("sitecustomize.py").write_text(SITECUSTOMIZE)
    control = rig.create_queue("control.fifo")
    sqs = boto3.client("sqs", endpoint_url=rig.server.endpoint_url)
    try:
        for number in range(100):
            sqs.send_message(
                QueueUrl=rig.url,
                MessageBody=f"{BODY} {number}",
                MessageGroupId=f"g{number % 20}",
                MessageDeduplicationId=f"d{number}",
                MessageAttributes={"a": {"DataType": "String", "StringValue": ATTRIBUTE}},
            )
        for number in range(50):
            sqs.send_message(
                QueueUrl=control,
                MessageBody=f"{CONTROL} {number}",
                MessageGroupId=f"g{number}",
                MessageDeduplicationId=f"d{number}",
            )
    finally:
        sqs.close()
    rig.server.faults = Faults(seed=1, throttle=0.1, drop_answer=0.05, fail_entry=0.1)
    log = run_app(
        "logs.py",
        rig.url,
        control,
        tmp_path,
        log=tmp_path / "log.txt",
        PYTHONPATH=f"{site}:{ROOT}",
        AWS_SECRET_ACCESS_KEY=SECRET_KEY,
        AWS_SESSION_TOKEN=TOKEN,
    )
    assert rig.depth() == (0, 0)
    for where in ("reader", "worker"):
        assert f"control call in the {where}" in log
    lines = [line for line in log.splitlines() if " DEBUG botocore" in line]
    shown = {line.split()[0] for line in lines if CONTROL in line}
    assert len(shown) >= 2, "the control's bodies do not show in reader and worker: this test could not fail"
    assert f"{CONTROL}-TOKEN" in log, "the control's token does not show: this test could not fail"
    for secret in (SECRET_KEY, TOKEN, BODY, ATTRIBUTE):
        found = [line[:300] for line in log.splitlines() if secret in line]
        assert not found, f"{len(found)} lines of log hold {secret}: {found[:3]}"
