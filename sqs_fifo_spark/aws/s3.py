"""Single objects of S3 through boto3: it says clearly why a call fails, and follows a bucket to its region."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

import botocore.exceptions
import botocore.parsers
import urllib3.exceptions

from sqs_fifo_spark.aws.credentials import ChainError, find_credentials, open_session, safe_text, sdk_config
from sqs_fifo_spark.aws.sdk_logs import without_sdk_logs
from sqs_fifo_spark.errors import AccessDeniedError, PayloadError
from sqs_fifo_spark.options import Identity

CONCURRENT_CALLS = 160
KEYS_OF_A_DELETE = 1_000
_MISSING = ("NoSuchKey", "NoSuchVersion", "NoSuchBucket", "404")
_REFUSED = (
    "403",
    "AccessDenied",
    "AllAccessDisabled",
    "InvalidObjectState",
    "KeyTooLongError",
    "KMS.DisabledException",
    "KMS.KMSInvalidStateException",
    "KMS.NotFoundException",
)
"""Codes for which the object itself is to blame. All others may pass: what is slow or throttled may be a 400, too."""
_ELSEWHERE = ("PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException")
"""Codes for a bucket of another region, where boto3 could not follow."""
_CREDENTIALS = (
    "ExpiredToken",
    "InvalidAccessKeyId",
    "InvalidToken",
    "RequestTimeTooSkewed",
    "SignatureDoesNotMatch",
    "TokenRefreshRequired",
)
"""Codes of a refusal that says nothing of the object: the caller's keys or clock are wrong."""
_ACTIONS = {
    "read": ("read", "s3:GetObject"),
    "write": ("written", "s3:PutObject"),
    "delete": ("deleted", "s3:DeleteObject"),
}


@dataclass(eq=False, repr=False)
class S3:
    """The objects of all buckets. Thread-safe; not for a forked child.

    All calls raise PayloadError: `is_final` if the object is missing or S3 refuses it, else there was no answer, for
    long. And AccessDeniedError for credentials that are missing or wrong.
    """

    identity: Identity
    region: str | None
    """That of a request if neither AWS_REGION nor the SDK's configuration says one."""
    endpoint_url: str | None
    tries: int = 5
    read_timeout_s: float = 60
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _made: Any = None

    def read(self, bucket: str, key: str, most: int) -> bytes:
        """Return the object's first `most` bytes."""
        with _errors(f"s3://{bucket}/{key}", "read"):
            answer = self._client().get_object(Bucket=bucket, Key=key)
            with closing(answer["Body"]) as stream:  # its own block would give a stream that takes a cut one for whole
                data: bytes = stream.read(most)
        if len(data) < min(most, answer["ContentLength"]):
            raise PayloadError("S3's answer is cut off")
        return data

    def write(self, bucket: str, key: str, data: bytes) -> None:
        """Write the object, durably, over whatever is there."""
        with _errors(f"s3://{bucket}/{key}", "write"):
            self._client().put_object(Bucket=bucket, Key=key, Body=data)

    def delete(self, bucket: str, keys: Sequence[str]) -> dict[str, PayloadError]:
        """Delete up to `KEYS_OF_A_DELETE` objects, if they are there; return those that S3 does not, and why."""
        failed: dict[str, PayloadError] = {}
        with _errors(f"s3://{bucket}/{keys[0]}", "delete"):
            for key in keys:
                if not key.isprintable():  # the list of keys is XML, which cannot have it
                    self._client().delete_object(Bucket=bucket, Key=key)
            entries = [{"Key": key} for key in keys if key.isprintable()]
            if entries:
                answer = self._client().delete_objects(Bucket=bucket, Delete={"Objects": entries, "Quiet": True})
                for each in answer.get("Errors") or ():
                    failed[each["Key"]] = _error("delete", str(each.get("Code", "")))
        return failed

    def _client(self) -> Any:
        with self._lock:
            if self._made is None:
                self._made = self._make()
            return self._made

    def _make(self) -> Any:
        session = open_session(self.identity)
        credentials = find_credentials(self.identity, session, self.region)
        if credentials is None:
            raise botocore.exceptions.NoCredentialsError
        session._credentials = credentials
        environment = os.environ
        return session.create_client(
            "s3",
            region_name=environment.get("AWS_REGION") or session.get_config_variable("region") or self.region,
            endpoint_url=self.endpoint_url
            or environment.get("AWS_ENDPOINT_URL_S3")
            or environment.get("AWS_ENDPOINT_URL"),
            config=sdk_config(self.read_timeout_s, tries=self.tries, max_pool_connections=CONCURRENT_CALLS),
        )


@contextmanager
def _errors(url: str, action: str) -> Iterator[None]:
    with without_sdk_logs():
        try:
            yield
        except botocore.exceptions.ClientError as error:
            code = str(error.response.get("Error", {}).get("Code", ""))
            if code in _CREDENTIALS:
                raise AccessDeniedError(_no_use(f"S3 does not take the credentials ({code})", url, action)) from None
            raise _error(action, code) from None
        except (ChainError, botocore.exceptions.NoCredentialsError) as error:
            raise AccessDeniedError(
                _no_use(f"there are no usable AWS credentials ({safe_text(error)})", url, action)
            ) from None
        except botocore.exceptions.ParamValidationError:
            raise PayloadError("S3 has no bucket of such a name", is_final=True) from None
        except (
            botocore.exceptions.BotoCoreError,
            botocore.parsers.ResponseParserError,
            urllib3.exceptions.HTTPError,
            OSError,
        ) as error:
            raise PayloadError(f"S3 gives no answer ({type(error).__name__})") from None


def _no_use(why: str, url: str, action: str) -> str:
    return (
        f"{why}, so the payload {url!r} cannot be {_ACTIONS[action][0]}. Correct the credentials of driver and "
        "executors; journalCredentials says whether S3 gets those of the calls to SQS."
    )


def _error(action: str, code: str) -> PayloadError:
    if code in _MISSING:
        return PayloadError("there is no such bucket" if code == "NoSuchBucket" else "it is missing", is_final=True)
    if code in _ELSEWHERE:
        return PayloadError(f"its bucket is in another region than AWS_REGION or journalEndpointUrl say ({code})")
    if code in _REFUSED:
        return PayloadError(f"S3 refuses {_ACTIONS[action][1]} with {code}", is_final=True)
    return PayloadError(f"S3 fails with {code or 'no code'}")
