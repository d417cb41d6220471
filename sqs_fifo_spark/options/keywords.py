"""The keywords of `read_fifo` and `write_fifo`, with their types. Made by .ci/keywords.py from the declared options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypedDict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Required


class _CallKeywords(TypedDict, total=False):
    """The options of both sides."""

    queue_owner_account_id: str
    region: str
    endpoint_url: str
    service_credential: str
    credentials_provider: str
    profile: str
    aws_access_key_id: str
    aws_secret_access_key: str
    aws_session_token: str
    role_arn: str
    role_session_name: str
    role_external_id: str
    sts_endpoint: str
    journal_credentials: Literal["queue", "chain"]
    journal_endpoint_url: str


class ReadKeywords(_CallKeywords, total=False):
    """The options of a source."""

    queue_url: str
    journal_location: Required[str]
    queue_urls: str | Sequence[str]
    queue_name_prefix: str
    queue_discovery_seconds: int
    visibility_timeout_seconds: int
    heartbeat_seconds: float
    wait_time_seconds: int
    max_messages_per_trigger: int
    max_bytes_per_trigger: int | str
    max_fetch_seconds: float
    num_partitions: int
    max_calls_per_second: int
    link_bytes_per_second: int | str
    delete_after: Literal["commit", "journal"]
    unwrap: Literal["none", "sns"]
    payloads: Literal["none", "s3"]
    max_payload_bytes: int | str
    payload_errors: Literal["fail", "null"]
    delete_payloads: bool
    fail_on_data_loss: bool


class WriteKeywords(_CallKeywords, total=False):
    """The options of a sink."""

    queue_url: Required[str]
    message_group_id: str
    deduplication: Literal["column", "content"]
    journal_location: str
    order: Literal["strict", "batch"]
    on_disorder: Literal["log", "fail"]
    max_unrecorded_rows: int
    bad_records_path: str
    bad_records_queue_url: str
    bad_records_group: Literal["continue", "hold"]
    bad_records_max: int
    payload_location: str
    payload_threshold_bytes: int | str
    txn_app_id: str
    txn_version: int
    max_calls_per_second: int
