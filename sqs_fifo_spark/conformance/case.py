"""The declaration of a case: a fact about SQS FIFO queues, its source, its cost, and the function that looks."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqs_fifo_spark.conformance.bench import Bench

Check = Callable[["Bench"], None]

# Sources of facts. The API text is botocore's service model; what is recorded was answered by AWS itself.
API, DOCUMENTATION, RECORDED, REPORT = "API text", "documentation", "recorded", "report"


SETTLE_S = 65
"""SQS takes up to a minute to purge a queue, or to put an attribute in force."""


@dataclass(frozen=True, slots=True)
class Case:
    """A fact that can be looked at: `check` returns where it holds, and else raises.

    `calls` is the most that the case makes, `chunks` the pieces of 64 KiB that are billed beside them. It takes some
    `seconds`; where SQS takes up to a minute to do as asked, it `settles`, and takes that minute on AWS.
    """

    id: str
    fact: str
    source: str
    calls: int
    chunks: int
    seconds: float
    settles: bool
    check: Check

    def seconds_on(self, *, is_aws: bool) -> float:
        return self.seconds + (SETTLE_S if is_aws and self.settles else 0)


class Differs(Exception):
    """The endpoint does otherwise than SQS. Carries no body but the marks of the kit's own messages."""

    def __init__(self, expected: str, seen: str) -> None:
        super().__init__(expected, seen)
        self.expected, self.seen = expected, seen


class NotSupported(Exception):
    """The endpoint does not have what the case is about."""


class NotDecided(Exception):
    """SQS might do all that was seen; what the case is about did not come up."""


declared: list[Case] = []
"""All cases of the modules that have been imported; `grounds` imports them all."""


def case(
    *sources: str, calls: int = 20, seconds: float = 2.0, chunks: int = 0, settles: bool = False
) -> Callable[[Check], Check]:
    """Declare the decorated function as a case; its docstring is the fact, its name and its module's the id."""

    def declare(check: Check) -> Check:
        ground = check.__module__.rpartition(".")[2]
        name = check.__name__.replace("_", "-")
        fact = " ".join((inspect.getdoc(check) or "").split())
        source = "; ".join(sources)
        declared.append(Case(f"{ground}.{name}", fact, source, calls, chunks, seconds, settles, check))
        return check

    return declare
