"""The finding of one check of `doctor`, as a line for the operator."""

from __future__ import annotations

from dataclasses import dataclass

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


def ok(check: str, says: str) -> Finding:
    return Finding(OK, check, says)


def warning(check: str, says: str, remedy: str = "") -> Finding:
    return Finding(WARNING, check, says, remedy)


def failure(check: str, says: str, remedy: str = "") -> Finding:
    return Finding(FAILURE, check, says, remedy)


def not_checked(check: str, why: str) -> Finding:
    return warning(check, f"not checked, because {why}")
