"""A plain call of boto3's, made beside ours to show that what it holds would be found in the log."""

from __future__ import annotations

import sys

import boto3


def control_call(url: str, where: str) -> None:
    """Receive from the control's queue with a token of its own, and say where that was."""
    client = boto3.client(
        "sqs",
        endpoint_url=url.rsplit("/", 2)[0],
        aws_access_key_id="control",
        aws_secret_access_key="control",
        aws_session_token="CONTROL-5e0a44-TOKEN",
    )
    client.receive_message(QueueUrl=url, VisibilityTimeout=0)
    print(f"control call in the {where}", file=sys.stderr, flush=True)
