"""The options of the queue and of the identity that calls it, S3's included: the same on both sides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from sqs_fifo_spark import option_rules as rules
from sqs_fifo_spark.errors import OptionError
from sqs_fifo_spark.option_rules import option
from sqs_fifo_spark.options.table import options_of


def _own_endpoint(chosen: Mapping[str, Any]) -> str | None:
    """Return the queue's own host, unless it is AWS's standard one; OptionError for one that cannot be called."""
    endpoint = rules.endpoint_of(chosen["queue_url"])
    return endpoint and rules.endpoint(options_of(QueueOptions)["queue_url"], endpoint)


@dataclass(frozen=True, kw_only=True)
class QueueOptions:
    """The queue, and the host on which it is called."""

    queue_url: str = option(
        rules.queue,
        "The FIFO queue: its URL, such as `https://sqs.eu-west-1.amazonaws.com/123456789012/orders.fifo`, its ARN, or "
        "its name. SQS is asked for the URL of a name, which needs the permission `sqs:GetQueueUrl`.",
        is_required=True,
    )
    queue_owner_account_id: str | None = option(
        rules.account_id,
        "AWS account of a queue that is given by its name, if it is another one than that of the credentials.",
    )
    region: str | None = option(
        rules.text,
        "AWS region of the queue. It must be the one that `queueUrl` and `endpointUrl` name, if they do.",
        default_from=lambda chosen: (
            rules.region_of(chosen["queue_url"]) or rules.region_of(chosen.get("endpoint_url") or "")
        ),
        default_text="from `queueUrl`, else from `endpointUrl`, else the AWS chain",
    )
    endpoint_url: str | None = option(
        rules.endpoint,
        "Endpoint of SQS.",
        default_from=_own_endpoint,
        default_text="AWS's for the region, or `queueUrl`'s own host, if it is not AWS's standard one",
    )

    @property
    def queue_name(self) -> str:
        """The queue's name, which is the last part of its URL."""
        return urlsplit(self.queue_url).path.rpartition("/")[2]


@dataclass(frozen=True, kw_only=True)
class Identity:
    """The identity that signs calls to AWS. Travels to the executors; its repr has no secret.

    At most one of service credential, provider, profile and keys is given; else the AWS chain of each process is asked.
    A role is assumed with those credentials.
    """

    service_credential: str | None = option(
        rules.text,
        "On Databricks: name of a service credential of Unity Catalog whose credentials are used.",
    )
    credentials_provider: str | None = option(
        rules.function_path,
        "A function of yours, as `module:function`, that returns credentials. It is called without arguments in each "
        "process of driver and executors.",
    )
    profile: str | None = option(
        rules.text,
        "Profile of the AWS configuration files, which driver and executors must have.",
    )
    access_key_id: str | None = option(
        rules.secret,
        "Access key. Prefer a way that renews itself and leaves no key in the query.",
        needs=("awsSecretAccessKey",),
        repr=False,
        name="awsAccessKeyId",
    )
    secret_access_key: str | None = option(
        rules.secret,
        "Secret of `awsAccessKeyId`.",
        needs=("awsAccessKeyId",),
        repr=False,
        name="awsSecretAccessKey",
    )
    session_token: str | None = option(
        rules.secret,
        "Session token of `awsAccessKeyId`, if that is a temporary one. Nothing renews it.",
        needs=("awsAccessKeyId",),
        repr=False,
        name="awsSessionToken",
    )
    role_arn: str | None = option(
        rules.role_arn,
        "Role to assume for all calls to AWS: those to SQS, and those to S3.",
    )
    role_session_name: str = option(
        rules.session_name,
        "Session name of the assumed role.",
        default="sqs-fifo-spark",
        needs=("roleArn",),
    )
    role_external_id: str | None = option(
        rules.external_id,
        "External id that the role's trust policy asks for.",
        needs=("roleArn",),
        repr=False,
    )
    sts_endpoint: str | None = option(
        rules.endpoint,
        "Endpoint of STS, where the role is assumed.",
        default_text="AWS's for the region",
        needs=("roleArn",),
    )


AWS_CHAIN = Identity()
"""The identity of a query that names none."""
_BASES = ("service_credential", "credentials_provider", "profile", "access_key_id")
"""The fields of an identity that exclude each other."""


def _bases_of(identity: Identity) -> list[str]:
    declared = options_of(Identity)
    return [declared[field].name for field in _BASES if getattr(identity, field) is not None]


def base_of(identity: Identity) -> str | None:
    """Return the name of the option that gives the credentials; None for the AWS chain."""
    return next(iter(_bases_of(identity)), None)


@dataclass(frozen=True, kw_only=True)
class ConnectionOptions(Identity, QueueOptions):
    """The queue and the credentials, those for S3 included: the same on both sides."""

    journal_credentials: str = option(
        rules.one_of("queue", "chain"),
        "Whose credentials reach a journal on S3, payloads, or a sink's `badRecordsPath` there: `queue`, "
        "those of the calls to SQS, or `chain`, those that the AWS chain of each process gives.",
        default="queue",
    )
    journal_endpoint_url: str | None = option(
        rules.endpoint,
        "Endpoint of S3 for the journal, for payloads, and for a sink's `badRecordsPath`.",
        default_text="`AWS_ENDPOINT_URL_S3` or `AWS_ENDPOINT_URL` of each process, else AWS's for the region",
    )

    @property
    def identity(self) -> Identity:
        """The identity that signs the calls to SQS."""
        return Identity(**{field: getattr(self, field) for field in options_of(Identity)})

    @property
    def journal_identity(self) -> Identity:
        """The identity that signs the calls to S3."""
        return AWS_CHAIN if self.journal_credentials == "chain" else self.identity


def require_one_account(options: QueueOptions) -> None:
    if options.queue_owner_account_id is not None and not rules.is_name(options.queue_url):
        raise OptionError(
            "option 'queueOwnerAccountId' is given, and 'queueUrl' is no name but says the account itself. Leave "
            "queueOwnerAccountId out."
        )


def require_one_region(options: QueueOptions, queue_url: str = "queueUrl") -> None:
    """Require one region of hosts that are called as SQS's own: any other may sign for another than its name says."""
    in_url = rules.region_of(options.queue_url)
    for name, url in ((queue_url, options.queue_url), ("endpointUrl", options.endpoint_url or "")):
        region = rules.region_of(url) if rules.is_sqs(url) else None
        if region not in (None, options.region):
            other = queue_url if in_url == options.region else "region"
            raise OptionError(
                f"options '{name}' and '{other}' name two regions, {region!r} and {options.region!r}; a queue is "
                "called in its own only, and calls are signed for it. Correct one of them; 'region' may be left out "
                "where a URL names it."
            )


def require_one_base(identity: Identity) -> None:
    require_one(_bases_of(identity), "each says whose credentials are used")


def require_one(given: Sequence[str], why: str) -> None:
    """Raise OptionError if several of the options that exclude each other are given."""
    if len(given) > 1:
        raise OptionError(f"options '{given[0]}' and '{given[1]}' are both given, and {why}. Give one of them.")


def require_s3(options: ConnectionOptions, *, or_else: str = "", **locations: str | None) -> None:
    """Require options for S3 only with a location there; `or_else` is another remedy, behind the first."""
    given = {name: location for name, location in locations.items() if location is not None}
    if any(location.startswith(rules.S3_PREFIXES) for location in given.values()):
        return
    why = ", and ".join(f"'{name}' is {location!r}, which is not on S3" for name, location in given.items())
    why = why or f"neither {' nor '.join(map(repr, locations))} is given"
    for name, is_given in (
        ("journalEndpointUrl", options.journal_endpoint_url is not None),
        ("journalCredentials", options.journal_credentials == "chain"),
    ):
        if is_given:
            raise OptionError(
                f"option '{name}' is given, and {why}, so it would have no effect. Leave {name} out{or_else}."
            )
