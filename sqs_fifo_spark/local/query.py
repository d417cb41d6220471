"""SQS's older protocol, which SDKs before the end of 2023 speak: forms in, XML out.

A request becomes one in the shape of AWS JSON, and an answer in that shape becomes XML.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl
from xml.sax.saxutils import escape

from sqs_fifo_spark.local import errors

CONTENT_TYPE = "application/x-www-form-urlencoded"
HINT = "This queue speaks AWS JSON 1.0, where X-Amz-Target is AmazonSQS.<Action>, and takes forms with an Action."

_DEEPEST = 6
"""SendMessageBatchRequestEntry.1.MessageAttribute.1.Value.StringValue has five dots."""
_NUMBERS = re.compile(r"(Max\w*|VisibilityTimeout|WaitTimeSeconds|DelaySeconds)")
_LISTS = {
    "Attributes": "Attribute",
    "Failed": "BatchResultErrorEntry",
    "MessageAttributes": "MessageAttribute",
    "Messages": "Message",
    "QueueUrls": "QueueUrl",
    "Tags": "Tag",
    "queueUrls": "QueueUrl",
}
"""Elements of lists and maps; those of batches and move tasks are named after the action."""


def read(body: bytes, path: str) -> tuple[str, dict[str, Any]]:
    """Return action and request of a form that was sent to `path`. Raises SerializationException for a broken one."""
    try:
        form = dict(parse_qsl(body.decode(), keep_blank_values=True, strict_parsing=True))
    except ValueError as error:
        raise errors.malformed_request("The request's body is not a form.") from error
    action = form.pop("Action", "")
    if not action.isalpha():
        raise errors.malformed_request(HINT)
    tree: dict[str, Any] = {} if path == "/" else {"QueueUrl": path}
    for name, value in form.items():
        *way, last = name.split(".")
        if len(way) > _DEEPEST:
            raise errors.malformed_request(f"The parameter {way[0]} is nested too deeply.")
        node = tree
        for part in way:
            node = node.setdefault(part, {})
            if not isinstance(node, dict):
                raise errors.malformed_request(f"The parameter {way[0]} is a text and a list.")
        node[last] = value
    return action, _members(tree, action)


def _members(node: Mapping[str, Any], action: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in node.items():
        if name == "Entries" or name.endswith("BatchRequestEntry"):  # botocore writes Entries when there are none
            found["Entries"] = _items(value) if isinstance(value, dict) else []
        elif not isinstance(value, dict):
            is_number = _NUMBERS.fullmatch(name) and value.isascii() and value.isdigit() and len(value) < 20
            found[name] = int(value) if is_number else value
        elif not all(key.isascii() and key.isdigit() for key in value):
            found[name] = _members(value)
        else:
            found["tags" if name == "Tag" and action == "CreateQueue" else f"{name}s"] = _items(value)
    return found


def _items(numbered: Mapping[str, Any]) -> Any:
    items = [numbered[number] for number in sorted(numbered, key=lambda number: (len(number), number))]
    read = [_members(item) if isinstance(item, dict) else item for item in items]
    if all(isinstance(item, dict) and "Value" in item for item in read):
        return {item.get("Name", item.get("Key", "")): item["Value"] for item in read}
    return read


def answer(action: str, request_id: str, content: Mapping[str, Any]) -> str:
    result = "".join(_element(name, value, action) for name, value in content.items())
    return (
        f'<?xml version="1.0"?><{action}Response xmlns="http://queue.amazonaws.com/doc/2012-11-05/">'
        f"<{action}Result>{result}</{action}Result>"
        f"<ResponseMetadata><RequestId>{request_id}</RequestId></ResponseMetadata></{action}Response>"
    )


def refusal(request_id: str, error: errors.SqsError) -> str:
    fault = "Sender" if error.sender_fault else "Receiver"
    content = {"Type": fault, "Code": error.query_code, "Message": error.message}
    inner = "".join(_element(name, value) for name, value in content.items())
    return (
        f'<?xml version="1.0"?><ErrorResponse xmlns="http://queue.amazonaws.com/doc/2012-11-05/">'
        f"<Error>{inner}</Error><RequestId>{request_id}</RequestId></ErrorResponse>"
    )


def _element(name: str, value: Any, action: str = "") -> str:
    element = _LISTS.get(name, f"{action}ResultEntry")
    if isinstance(value, list):
        return "".join(_element(element, item, action) for item in value)
    if isinstance(value, dict) and name in _LISTS:
        key = "Key" if name == "Tags" else "Name"
        return "".join(_element(element, {key: each, "Value": item}) for each, item in value.items())
    if isinstance(value, dict):
        text = "".join(_element(member, item, action) for member, item in value.items())
    else:
        text = escape(str(value).lower() if isinstance(value, bool) else str(value), {"\r": "&#13;"})
    return f"<{name}>{text}</{name}>"
