"""The finding of one check of `doctor`, as a line for the operator."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

OK = "ok"
WARNING = "warning"
FAILURE = "failure"
STYLES = {OK: "green", WARNING: "yellow", FAILURE: "red"}


@dataclass(frozen=True)
class Finding:
    """One line. `remedy` is for the operator to do, unless it stands in `says` or there is nothing to do."""

    level: str
    check: str
    says: str
    remedy: str = ""


ok = partial(Finding, OK)
warning = partial(Finding, WARNING)
failure = partial(Finding, FAILURE)


def not_checked(check: str, why: str) -> Finding:
    return warning(check, f"not checked, because {why}")
