"""The guard against web pages elsewhere, which can make a browser on this machine call the local queue.

The browser names a page's origin with all that it posts, and shows a page no answer of another origin. That leaves DNS
rebinding: the owner of a domain lets its name lead to this machine, so that their page and the queue have one origin.
So a request counts only under a name that no stranger can own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

# An address, a name without a dot, such as a container's, or one below a domain that public DNS does not have.
_OWN_NAME = re.compile(r"\[[0-9a-f:.]+\]|[0-9.]+|[^.]*|.+\.(localhost|local|internal)", re.IGNORECASE)


def refusal(headers: Mapping[str, str], listening: str) -> str | None:
    """One line that says why a request with these headers is refused, or None; the server listens on `listening`."""
    host, origin = headers.get("Host", ""), headers.get("Origin")
    if origin is not None and origin.partition("://")[2].lower() != host.lower():
        return f"the request comes from a page of {origin[:80]!r}; the local queue takes those of its own page only"
    name = re.sub(r":\d*$", "", host).rstrip(".")
    if name.lower() != listening.lower() and _OWN_NAME.fullmatch(name) is None:
        return (
            f"the local queue was called {name[:80]!r}, a name that a stranger may own; "
            "call it 127.0.0.1 or localhost, or start it with --host and that name"
        )
    return None
