"""The credentials of an `Identity`: keys, a profile, somebody's function, the AWS chain; and a role over them.

An identity travels between processes, and of credentials only the keys that an option gives: each process of driver and
executors finds its own, and renews them before they expire. Of a failure only the kind of its error is logged, for its
text may hold secrets.
"""

from __future__ import annotations

import functools
import importlib
import math
import threading
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone
from typing import Any
from urllib.parse import urlsplit

import botocore.exceptions
import botocore.loaders
import botocore.parsers
import botocore.session
import botocore.utils
from botocore.config import Config
from botocore.credentials import (
    AssumeRoleCredentialFetcher,
    Credentials,
    DeferredRefreshableCredentials,
    RefreshableCredentials,
)

from sqs_fifo_spark.aws.sdk_logs import without_sdk_logs
from sqs_fifo_spark.clock import SYSTEM_CLOCK, Clock
from sqs_fifo_spark.errors import JournalUnavailableError, OptionError
from sqs_fifo_spark.option_rules import is_secret, region_of
from sqs_fifo_spark.options import AWS_CHAIN, Identity, base_of

ASSUME_ROLE = "AssumeRole"
CONNECT_TIMEOUT_S = 5
_STS_TIMEOUT_S = 5
"""Seconds that one try to assume a role may take to be answered."""
_CREDENTIAL_TTL = timedelta(minutes=10)
_RENEWED_S, _WAITED_FOR_S = 15 * 60, 10 * 60
"""Seconds before they expire from which credentials are renewed, and from which all calls wait: botocore's own."""
RENEW_EVERY_S = 30.0
"""Seconds after a renewal that failed, or brought keys that are to be renewed at once, until another one is tried."""
_DATABRICKS = "databricks.service_credentials:getServiceCredentialsProvider"


class ChainError(Exception):
    """No credentials, in a way of its own. Its text is the type of the error: the error's own may hold secrets."""


def sdk_config(read_timeout_s: float, *, tries: int = 1, **more: Any) -> Config:
    """Return the settings of a client of ours, which tries each call so often."""
    return Config(
        connect_timeout=CONNECT_TIMEOUT_S,
        read_timeout=read_timeout_s,
        retries={"mode": "standard", "total_max_attempts": tries},
        user_agent_extra="sqs-fifo-spark",
        **more,
    )


def open_session(identity: Identity) -> botocore.session.Session:
    """Return a new session of the SDK, which reads the files of the identity's profile."""
    session = botocore.session.get_session()
    if identity.profile is not None:
        session.set_config_variable("profile", identity.profile)
    session.lazy_register_component("data_loader", lambda: _loader(session.get_config_variable("data_path")))
    return session


class _Every(list[str]):
    """The names of all services, without a list of them."""

    def __contains__(self, name: object) -> bool:
        return True


@functools.cache
def _loader(data_path: str | None) -> Any:
    """Return botocore's loader of its data, which, to find one service, does not look into the folders of all 400.

    It keeps what it has read. All sessions share it, also those of processes that are forked from this one.
    """
    loader = botocore.loaders.create_loader(data_path)
    loader.list_available_services = lambda type_name: _Every()
    return loader


def find_credentials(identity: Identity, session: botocore.session.Session, region: str | None) -> Any:
    """Return botocore credentials of `identity`, which renew themselves if they expire; None if there are none.

    `region` is the queue's. A role is not assumed before the first call. Raises OptionError for a function that cannot
    be called, or does not return credentials; the SDK's errors; and ChainError for all else.
    """
    own = from_chain(lambda: _own(identity, session))
    if own is None or identity.role_arn is None:
        return own
    return _assumed_role(session, own, identity, region)


def from_chain(find: Callable[[], Any]) -> Any:
    """Return `find()`, which may run a program of the user's, read files and ask services.

    Raises ChainError for faults that none of the SDK's own errors names: a token file or a program that is not there,
    an answer that cannot be read, credentials that are renewed to expired ones.
    """
    try:
        return find()
    except (
        botocore.exceptions.BotoCoreError,
        botocore.exceptions.ClientError,
        botocore.parsers.ResponseParserError,
        OptionError,
    ):
        raise
    except (Exception, SystemExit) as error:  # a user's function may call `sys.exit`, with any text
        raise ChainError(type(error).__name__) from None


class Keys:
    """The keys to sign with: those of `credentials`, renewed in time by one thread, while others use the old ones.

    botocore lets each call renew them by itself, one after the other, from ten minutes before they expire. Where
    renewing takes long, fails, or brings nothing newer, a renewal of a hold would wait behind all others.
    """

    def __init__(self, credentials: Any, clock: Clock = SYSTEM_CLOCK) -> None:
        self._credentials = credentials
        self._renew = credentials.get_frozen_credentials
        self._clock = clock
        # Held by the thread that renews; guards `_next_at`.
        self._renewing = threading.Lock()
        self._next_at = -math.inf
        """The monotonic time from which on keys that are to be renewed are tried to be renewed again."""

    def __call__(self) -> Any:
        """Return the keys. Raises as `from_chain`, but not while those that there are have not expired."""
        keys = getattr(self._credentials, "_frozen_credentials", None)
        if keys is None or self._credentials._is_expired():
            return from_chain(self._renew)
        if self._credentials.refresh_needed() and self._renewing.acquire(blocking=False):
            try:
                return self._renewed_keys(keys)
            finally:
                self._renewing.release()
        return keys

    def _renewed_keys(self, keys: Any) -> Any:
        if self._clock.monotonic() < self._next_at:
            return keys
        try:
            return from_chain(self._renew)
        except Exception:  # botocore has logged that; the old ones serve until they expire
            return keys
        finally:
            self._next_at = self._clock.monotonic() + RENEW_EVERY_S


def _own(identity: Identity, session: botocore.session.Session) -> Any:
    """Return the credentials of the identity without its role, or None."""
    if identity.access_key_id is not None:
        return Credentials(identity.access_key_id, identity.secret_access_key, identity.session_token, "options")
    if identity.service_credential is not None:
        name = "serviceCredential", identity.service_credential
        provider = _function(_DATABRICKS, name, "It is Databricks' own: elsewhere, use 'roleArn' or 'profile'.")
        return _credentials_of(functools.partial(provider, identity.service_credential), name)
    if identity.credentials_provider is not None:
        name = "credentialsProvider", identity.credentials_provider
        remedy = "Install its module where the driver and all executors find it."
        return _credentials_of(_function(identity.credentials_provider, name, remedy), name)
    return session.get_credentials()


def _function(path: str, option: tuple[str, str], remedy: str) -> Callable[..., Any]:
    """Return the function at `path`, as module:function; `option` is the name and the value that ask for it."""
    module, _, name = path.partition(":")
    try:
        found: Callable[..., Any] = getattr(importlib.import_module(module), name)
    except Exception as error:
        what = f"this process cannot import {path} ({type(error).__name__})"
    else:
        if callable(found):
            return found
        what = f"{path} is no function"
    raise OptionError(f"option '{option[0]}' is {option[1]!r}; {what}. {remedy}") from None


def _credentials_of(ask: Callable[[], Any], option: tuple[str, str]) -> Any:
    """Return credentials from the result of `ask`: a session, credentials, a mapping, or None."""
    given = ask()
    if isinstance(given, Mapping):
        first = _as_metadata(given, option)
        if first["expiry_time"] is None:
            return Credentials(first["access_key"], first["secret_key"], first["token"], option[0])
        left_s = (datetime.fromisoformat(first["expiry_time"]) - datetime.now(timezone.utc)).total_seconds()
        return RefreshableCredentials.create_from_metadata(
            first,
            refresh_using=lambda: _as_metadata(ask(), option),
            method=option[0],
            advisory_timeout=min(
                _RENEWED_S, max(0.0, left_s / 2)
            ),  # else those of a quarter of an hour were asked for each call
            mandatory_timeout=min(_WAITED_FOR_S, max(0.0, left_s / 4)),
        )
    if hasattr(given, "get_credentials"):
        given = given.get_credentials()
    if given is not None and not (hasattr(given, "get_frozen_credentials") and hasattr(given, "__dict__")):
        raise _unusable(option, f"its result is a {type(given).__name__}")
    return given


def _as_metadata(given: Any, option: tuple[str, str]) -> dict[str, Any]:
    """Return a mapping in the form in which botocore takes renewed credentials."""
    if not isinstance(given, Mapping) or not given.get("access_key") or not given.get("secret_key"):
        raise _unusable(option, "its result has no 'access_key' or no 'secret_key'")
    keys = {name: given.get(name) for name in ("access_key", "secret_key", "token")}
    for name, value in keys.items():
        if value is not None and not (isinstance(value, str) and is_secret(value)):
            raise _unusable(option, f"the '{name}' that it returns is no text, or has a space or a line break in it")
    expires_at = given.get("expiry_time")
    if expires_at is not None:
        try:
            is_time = isinstance(expires_at, datetime)
            expires_at = expires_at if is_time else botocore.utils.parse_timestamp(expires_at)
        except ValueError:
            raise _unusable(option, "the 'expiry_time' that it returns is no time") from None
        if expires_at.tzinfo is None:
            raise _unusable(option, "the 'expiry_time' that it returns has no time zone")
        expires_at = expires_at.isoformat()
    return {**keys, "expiry_time": expires_at}


def _unusable(option: tuple[str, str], what: str) -> OptionError:
    return OptionError(
        f"option '{option[0]}' is {option[1]!r}; {what}. It must return a session of boto3 or botocore, credentials of "
        "botocore, or a dict with access_key, secret_key and, if there are, token and expiry_time with its time zone."
    )


def _assumed_role(
    session: botocore.session.Session, own: Credentials, identity: Identity, queue_region: str | None
) -> DeferredRefreshableCredentials:
    extra = {"RoleSessionName": identity.role_session_name}
    if identity.role_external_id:
        extra["ExternalId"] = identity.role_external_id
    region = sts_region(identity.sts_endpoint) or session.get_config_variable("region") or queue_region or "us-east-1"
    create_client = functools.partial(
        session.create_client,
        region_name=region,
        endpoint_url=identity.sts_endpoint,
        config=sdk_config(_STS_TIMEOUT_S, tries=3),
    )
    fetcher = AssumeRoleCredentialFetcher(create_client, own, identity.role_arn, extra_args=extra)
    return DeferredRefreshableCredentials(fetcher.fetch_credentials, "assume-role")


def sts_region(endpoint: str | None) -> str | None:
    """Return the region for which an endpoint of AWS wants its calls signed; the global one has a fixed one."""
    if endpoint is None:
        return None
    return "us-east-1" if urlsplit(endpoint).hostname == "sts.amazonaws.com" else region_of(endpoint)


def safe_text(error: Exception) -> str:
    """Return the part of an error that may be shown: its kind; of a refusal, also which call and why."""
    if isinstance(error, ChainError):
        return str(error)
    if isinstance(error, botocore.exceptions.ClientError):
        return f"{error.operation_name}: {error.response.get('Error', {}).get('Code', 'no code')}"
    return type(error).__name__


class S3Credentials:
    """Credentials of `identity` in the form in which obstore asks for them.

    Obstore's own provider for boto3 is not used: it says of credentials that they last half an hour, whenever they
    expire; reads a file once; and lets errors out with their text.
    """

    def __init__(self, identity: Identity = AWS_CHAIN, queue_region: str | None = None) -> None:
        self._identity = identity
        self._queue_region = queue_region
        with without_sdk_logs():
            try:
                session = open_session(identity)
                self.region: str | None = session.get_config_variable("region")
                self.ca_bundle: str | None = session.get_config_variable("ca_bundle")
                self._credentials = find_credentials(identity, session, queue_region)
                self._keys = Keys(self._credentials) if self._credentials is not None else _no_keys
            except OptionError:
                raise
            except Exception as error:  # not its text, as below
                raise no_credentials(identity, f" ({safe_text(error)})") from None

    def __bool__(self) -> bool:
        return self._credentials is not None

    def __call__(self) -> dict[str, Any]:
        with without_sdk_logs():
            try:
                if not isinstance(self._credentials, RefreshableCredentials):
                    # A file's content may have been renewed since; the old one is better than nothing.
                    session = open_session(self._identity)
                    found = find_credentials(self._identity, session, self._queue_region)
                    self._credentials = found or self._credentials
                    self._keys = Keys(self._credentials)
                frozen = self._keys()
            except OptionError as error:
                raise RuntimeError(str(error)) from None
            except Exception as error:  # obstore shows its text: that of a credential process holds anything
                raise RuntimeError(safe_text(error)) from None
        asked_again_at = datetime.now(timezone.utc) + _CREDENTIAL_TTL
        expires_at = getattr(self._credentials, "_expiry_time", None) or asked_again_at
        return {
            "access_key_id": frozen.access_key,
            "secret_access_key": frozen.secret_key,
            "token": frozen.token,
            "expires_at": min(asked_again_at, expires_at).astimezone(timezone.utc),  # obstore takes no other zone
        }


def _no_keys() -> Any:
    raise botocore.exceptions.NoCredentialsError


def no_credentials(identity: Identity, why: str = "") -> JournalUnavailableError:
    base = base_of(identity)
    if base is None:
        return JournalUnavailableError(
            f"the AWS chain gives no credentials for the journal on S3{why}. They come from environment, profile or "
            "instance role."
        )
    return JournalUnavailableError(
        f"option '{base}' gives no credentials for the journal on S3{why}. Its profile, module or credential must be "
        "there on driver and executors; or set journalCredentials to chain."
    )
