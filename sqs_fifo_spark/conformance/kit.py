"""The run of the cases, side by side, and their verdicts."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed, wait
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError

from sqs_fifo_spark.clock import SYSTEM_CLOCK, Clock
from sqs_fifo_spark.conformance.bench import DELETES, Bench
from sqs_fifo_spark.conformance.case import Case, Differs, NotDecided, NotSupported
from sqs_fifo_spark.conformance.refusals import code_of, is_broken, is_trouble, is_unsupported, plain, said

HOLDS, DIFFERS, NOT_SUPPORTED, NOT_DECIDED = "holds", "differs", "not supported", "not decided"
VERDICTS = (HOLDS, DIFFERS, NOT_SUPPORTED, NOT_DECIDED)

NO_ANSWER = (BotoCoreError, ResponseParserError)

USD_PER_MILLION = 0.50
"""Price of a million calls on FIFO queues in us-east-1; other regions differ a little, and a first million is free."""
_ACCOUNT = re.compile(r"arn:\S+|https?://\S+|\b\d{12}\b")
"""Parts of an answer that may tell whose account it is: reports are sent to others."""
TRIES = 4
"""Tries of a call on AWS at the most, where it fails or is throttled."""


@dataclass(frozen=True, slots=True)
class Result:
    """The verdict on one case."""

    case: Case
    verdict: str
    expected: str = ""
    seen: str = ""
    calls: int = 0

    def as_json(self) -> dict[str, str]:
        of_case = {name: getattr(self.case, name) for name in ("id", "fact", "source")}
        return {**of_case, "verdict": self.verdict, "expected": self.expected, "seen": self.seen}


@dataclass
class Kit:
    """Runs cases against one endpoint; AWS's own without `endpoint_url`."""

    client: Any
    prefix: str
    clock: Clock = SYSTEM_CLOCK
    is_aws: bool = False
    left: list[str] = field(default_factory=list)
    """Names of queues that could not be deleted."""

    def run(self, cases: Sequence[Case], jobs: int = 16) -> Run:
        """Begin the cases, those first that take longest, so many at once; their results come as they end."""
        return Run(self, sorted(cases, key=lambda case: -case.seconds_on(is_aws=self.is_aws)), jobs)

    def judge(self, case: Case, stopped: threading.Event | None = None) -> Result:
        """Run one case and delete its queues."""
        prefix = f"{self.prefix}-{case.id.replace('.', '-')}"
        stopped = stopped or threading.Event()
        bench = Bench(self.client, prefix, self.clock, case.calls, self.is_aws, stopped)
        try:
            verdict, expected, seen = _verdict(case, bench)
        finally:
            self.left += bench.close()
        return Result(case, verdict, _ACCOUNT.sub("...", expected), _ACCOUNT.sub("...", seen), bench.calls)


class Run:
    """The results of cases, in the order in which they end; they begin with its `with` block, and end with it."""

    def __init__(self, kit: Kit, cases: Sequence[Case], jobs: int) -> None:
        self._kit = kit
        self._cases = cases
        self._pool = ThreadPoolExecutor(jobs, thread_name_prefix="conformance")
        self._stopped = threading.Event()
        self._futures: list[Future[Result]] = []

    def __len__(self) -> int:
        return len(self._cases)

    def __iter__(self) -> Iterator[Result]:
        return (future.result() for future in as_completed(self._futures))

    def __enter__(self) -> Run:
        try:
            for case in self._cases:
                self._futures.append(self._pool.submit(self._kit.judge, case, self._stopped))
        except BaseException:  # of a signal, too: what has begun would go on to its end
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._stopped.set()
        running = [future for future in self._futures if not future.cancel()]
        # Not in the pool's own way: Python 3.11 takes a thread for ended when a signal interrupts its join.
        while not all(future.done() for future in running):
            with suppress(KeyboardInterrupt):  # a second one: the first has ended the run, and queues are to be deleted
                wait(running)
        self._pool.shutdown()


def _verdict(case: Case, bench: Bench) -> tuple[str, str, str]:
    try:
        case.check(bench)
    except Differs as found:
        return DIFFERS, found.expected, found.seen
    except NotSupported as found:
        return NOT_SUPPORTED, "", str(found)
    except NotDecided as found:
        return NOT_DECIDED, "", str(found)
    except ClientError as error:
        if is_trouble(error) and (bench.is_aws or not is_broken(error)):
            return NOT_DECIDED, "", said(error)
        return (NOT_SUPPORTED if is_unsupported(code_of(error)) else DIFFERS), "no error", said(error)
    except (
        *NO_ANSWER,
        AttributeError,
        LookupError,
        TypeError,
        ValueError,
    ) as error:  # of an answer that lacks a field, or is broken; on AWS also of the network, or of lost credentials
        is_ours = bench.is_aws and isinstance(error, BotoCoreError)
        return (
            NOT_DECIDED if is_ours else DIFFERS,
            "an answer of SQS's form",
            f"{type(error).__name__}: {plain(str(error))[:120]}",
        )
    return HOLDS, "", ""


def make_client(endpoint_url: str | None, region: str | None, jobs: int) -> Any:
    """Return a client for the endpoint. Where there are no credentials, an endpoint outside AWS gets made-up ones."""
    session = boto3.session.Session(region_name=region)
    made_up = {"aws_access_key_id": "any", "aws_secret_access_key": "any"}
    return session.client(
        "sqs",
        endpoint_url=endpoint_url,
        region_name=session.region_name or ("us-east-1" if endpoint_url else None),
        config=Config(
            # Cases send on purpose what botocore would refuse.
            parameter_validation=False,
            max_pool_connections=3 * jobs,
            connect_timeout=5,
            read_timeout=40,
            retries={"total_max_attempts": 1 if endpoint_url else TRIES, "mode": "standard"},
            # What is said of AWS is never what an emulator did that the environment names.
            ignore_configured_endpoint_urls=True,
            user_agent_extra="sqs-fifo-spark-conformance",
        ),
        **(made_up if endpoint_url and session.get_credentials() is None else {}),
    )


def most_calls(cases: Sequence[Case]) -> int:
    """Return the most calls of a run, as they are billed: each 64 KiB of a payload counts as one. None is repeated."""
    return 1 + sum(case.calls + case.chunks + DELETES for case in cases)


def cost_usd(cases: Sequence[Case]) -> float:
    """Return what they cost at most, if each call fails as often as it is tried again."""
    return most_calls(cases) * TRIES * USD_PER_MILLION / 1e6


def report(endpoint: str, results: Sequence[Result]) -> str:
    """Return the report as JSON, the cases in the order of their ids, and of an endpoint only where it is."""
    address = urlsplit(endpoint)
    endpoint = f"{address.scheme}://{address.netloc}" if address.netloc else endpoint
    in_order = sorted(results, key=lambda result: result.case.id)
    return json.dumps({"endpoint": endpoint, "cases": [result.as_json() for result in in_order]}, indent=1) + "\n"
