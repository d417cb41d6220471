"""The permissions of each access key: IAM policy documents, as far as this queue evaluates them.

As on AWS, an action that no statement allows is denied, a `Deny` beats every `Allow`, and a batch action needs the
permission of its single one: `DeleteMessageBatch` needs `sqs:DeleteMessage`. Elements that would be ignored here, such
as a `Condition`, are refused when a policy is given. Other than on AWS, to start a move of dead letters needs its own
action alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqs_fifo_spark.local import errors

_STATEMENT = ("Sid", "Effect", "Action", "Resource")
_ACTION = re.compile(r"\*|[A-Za-z0-9-]+:[A-Za-z*?]+")


@dataclass(frozen=True, slots=True)
class _Statement:
    is_allow: bool
    actions: re.Pattern[str]
    resources: re.Pattern[str]


class Policies:
    """The policies of those access keys that have one; every other key may do everything.

    Raises ValueError, with one line, for a document that is no policy, or has something that is not evaluated here.
    """

    def __init__(self, documents: Mapping[str, Any]) -> None:
        self._statements = {key: _statements(key, document) for key, document in documents.items()}

    def require(self, access_key: str, action: str, resource: str) -> None:
        """Raise AccessDenied, as SQS words it, unless the key may do `action` on the queue with the ARN `resource`."""
        statements = self._statements.get(access_key)
        if statements is None:
            return
        permission = f"sqs:{action.removesuffix('Batch')}"
        effects = {
            each.is_allow
            for each in statements
            if each.actions.fullmatch(permission) and each.resources.fullmatch(resource)
        }
        if effects != {True}:
            raise errors.access_denied(action, resource, user=access_key, is_explicit=False in effects)


def read_policies(given: Iterable[str]) -> dict[str, Any]:
    """Return the documents of arguments `KEY=FILE`, by access key. Raises ValueError, and OSError for the file."""
    documents: dict[str, Any] = {}
    for argument in given:
        key, _, name = argument.partition("=")
        if not key or not name:
            raise ValueError(f"--policy {argument}: give KEY=FILE, an access key and the file of its IAM policy")
        if key in documents:
            raise ValueError(f"--policy {argument}: the access key '{key}' has a policy already; give it one")
        try:
            documents[key] = json.loads(Path(name).read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"--policy {argument}: the file is not JSON ({error})") from None
    return documents


def _statements(key: str, document: Any) -> list[_Statement]:
    where = f"the policy of '{key}'"
    if not isinstance(document, Mapping) or "Statement" not in document:
        raise ValueError(f"{where} is no IAM policy document: it must be a JSON map with a Statement")
    _refuse_others(where, document, ("Version", "Id", "Statement"))
    given = document["Statement"]
    statements = given if isinstance(given, list) else [given]
    return [_statement(f"statement {number} of {where}", each) for number, each in enumerate(statements, 1)]


def _statement(where: str, given: Any) -> _Statement:
    if not isinstance(given, Mapping):
        raise ValueError(f"{where} must be a JSON map")
    _refuse_others(where, given, _STATEMENT)
    effect = given.get("Effect")
    if effect not in ("Allow", "Deny"):
        raise ValueError(f"{where} has the Effect {effect!r}; it must be Allow or Deny")
    actions, resources = (_texts(where, given, name) for name in ("Action", "Resource"))
    for action in actions:
        if not _ACTION.fullmatch(action):
            raise ValueError(f"{where} has the Action {action!r}; it must be like sqs:SendMessage, sqs:* or *")
    for resource in resources:
        if resource != "*" and not resource.startswith("arn:"):
            raise ValueError(f"{where} has the Resource {resource!r}; it must be an ARN or *")
        if "${" in resource:
            raise ValueError(f"{where} has a variable in its Resource, which this queue does not evaluate; take it out")
    return _Statement(effect == "Allow", _pattern(actions, re.IGNORECASE), _pattern(resources))


def _refuse_others(where: str, given: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for name in given:
        if name not in known:
            raise ValueError(f"{where} has the element {name!r}, which this queue does not evaluate; take it out")


def _texts(where: str, given: Mapping[str, Any], name: str) -> list[str]:
    value = given.get(name)
    texts: list[Any] = value if isinstance(value, list) else [value]
    if not texts or not all(isinstance(text, str) for text in texts):
        raise ValueError(f"{where} has the {name} {value!r}; it must be a text or a list of texts")
    return texts


def _pattern(wildcards: Iterable[str], flags: int = 0) -> re.Pattern[str]:
    """The pattern that matches any of these texts, in which `*` stands for any characters and `?` for one."""
    each = (re.escape(text).replace(r"\*", ".*").replace(r"\?", ".") for text in wildcards)
    return re.compile("|".join(f"(?:{text})" for text in each), flags)
