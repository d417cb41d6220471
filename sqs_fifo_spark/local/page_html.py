"""The HTML of the local queue's page. Every value that is not `Html` already is escaped."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from html import escape
from string import Template
from typing import TypeVar
from urllib.parse import urlencode

HEADERS = {
    "Content-Type": "text/html; charset=utf-8",
    "Cache-Control": "no-store",
    # No script, nothing from elsewhere, and no other page's frame, in which a click could be stolen.
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
}

_ROWS = 100

T = TypeVar("T")

_DOCUMENT = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
$refresh
<link rel="icon" href="data:,">
<title>$title</title>
<style>
:root { color-scheme: light dark; --line: #8885; --soft: #8882; --bad: light-dark(#b00020, #ff8a80) }
body { font: 15px/1.45 system-ui, sans-serif; margin: 0 auto; max-width: 76rem; padding: 1rem }
header, form, .forms { display: flex; flex-wrap: wrap; gap: .5rem; align-items: end }
header { align-items: baseline; justify-content: space-between }
h1 { font-size: 1.3rem; margin: 0 } h2 { font-size: 1.05rem; margin: 1.6rem 0 .4rem }
p { margin: .4rem 0 } .bad { color: var(--bad); font-weight: 600; overflow-wrap: anywhere }
.scroll { overflow-x: auto; border: 1px solid var(--line); border-radius: 6px }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums }
th, td { text-align: left; padding: .3rem .6rem; white-space: nowrap; vertical-align: top }
th { background: var(--soft); font-weight: 600 } td { border-top: 1px solid var(--line) }
pre { border: 1px solid var(--line); border-radius: 6px; padding: .6rem; margin: .5rem 0;
  white-space: pre-wrap; overflow-wrap: anywhere }
form { border: 1px solid var(--line); border-radius: 6px; padding: .7rem }
label { display: grid; gap: .15rem; font-size: .85rem; min-width: 0 }
.wide { flex: 1 1 14rem } form.wide { flex-basis: 100% }
input, select, textarea, button { font: inherit; max-width: 100%; box-sizing: border-box; min-height: 2.1rem }
textarea { width: 100%; resize: vertical } .number { width: 6rem } button { padding: .15rem .8rem }
</style>
<header><h1>Local SQS FIFO queue</h1><span>$now UTC by its clock · $links</span></header>
$parts
</html>
"""
_FORMS = """<h2>Do</h2>
<div class="forms">
<form class="wide" method="post" action="/"><input type="hidden" name="queue" value="$queue">
<label class="wide">body<textarea name="body" rows="1" required></textarea></label>
<label>group<input name="group" value="$group" size="12"></label>
<label>deduplication id<input name="dedup_id" placeholder="a new one" size="14"></label>
<button name="do" value="send">Send to $queue</button></form>
<form method="post" action="/"><input type="hidden" name="queue" value="$queue">
<label>seconds<input class="number" name="seconds" type="number" min="0" step="any" value="30" required></label>
<button name="do" value="advance">Set the clock ahead</button></form>
<form method="post" action="/"><input type="hidden" name="queue" value="$queue">
<label>fault<select name="fault">$faults</select></label>
<label>action<select name="action">$actions</select></label>
<label>of<select name="of"><option value="$queue">$queue</option><option value="">any queue</option></select></label>
<label>calls<input class="number" name="times" type="number" min="1" value="1" required></label>
<button name="do" value="fail">Fail the next</button></form>
</div>
"""


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


def _fill(template: str, **values: object) -> Html:
    return Html(Template(template).substitute({name: _html(value) for name, value in values.items()}))


def _html(value: object) -> Html:
    return value if isinstance(value, Html) else Html(escape(str(value)))


def _each(template: str, values: Iterable[object]) -> Html:
    return Html("".join(_fill(template, value=value) for value in values))


def document(title: str, now: float, parts: Iterable[Html], *, links: Iterable[Html], refresh_s: int) -> str:
    """The whole page, which asks for itself again after `refresh_s` unless that is 0."""
    refresh = _fill('<meta http-equiv="refresh" content="$s">', s=refresh_s) if refresh_s else ""
    time = f"{_date(now):%Y-%m-%d %H:%M:%S}"
    return _fill(
        _DOCUMENT, title=title, now=time, links=Html(" · ".join(links)), parts=Html("".join(parts)), refresh=refresh
    )


def problem(line: str) -> Html:
    return _fill('<p class="bad" role="alert">$line</p>', line=line)


def text(body: str) -> Html:
    return _fill("<pre>$body</pre>", body=body)


def link(label: str, **query: str) -> Html:
    """A link to the page itself, with those parameters that are not empty."""
    address = "/?" + urlencode({name: value for name, value in query.items() if value})
    return _fill('<a href="$address">$label</a>', address=address, label=label)


def message_link(queue: str, message_id: str) -> Html:
    return link(message_id[:8], queue=queue, message=message_id)


def forms(queue: str, group: str, faults: Iterable[str], actions: Iterable[str]) -> Html:
    option = "<option>$value</option>"
    return _fill(_FORMS, queue=queue, group=group, faults=_each(option, faults), actions=_each(option, actions))


def table(heading: str, columns: Mapping[str, Callable[[T], object]], items: Sequence[T]) -> Html:
    """A section with a row for each of the first items, and the number of those left off."""
    rows = [_each("<td>$value</td>", [cell(item) for cell in columns.values()]) for item in items[:_ROWS]]
    return _fill(
        '<h2>$heading</h2><div class="scroll" tabindex="0"><table><tr>$heads</tr>$rows</table></div>$more',
        heading=heading,
        heads=_each("<th>$value</th>", columns),
        rows=_each("<tr>$value</tr>", rows),
        more=_fill("<p>and $count more</p>", count=len(items) - _ROWS) if len(items) > _ROWS else "",
    )


def moment(at: float | None, now: float) -> Html:
    """A time of day, and how far it lies from `now`."""
    if at is None:
        return Html()
    distance = timedelta(seconds=abs(round(at - now)))
    return _fill(
        '<time title="$full">$time</time> ($distance)',
        full=_date(at),
        time=f"{_date(at):%H:%M:%S}",
        distance=f"in {distance}" if at > now else f"{distance} ago",
    )


def shortened(body: str, limit: int) -> str:
    return body if len(body) <= limit else f"{body[:limit]}… ({len(body):,} characters)"


def _date(at: float) -> datetime:
    return datetime.fromtimestamp(at, timezone.utc)
