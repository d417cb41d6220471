"""Refuse a commit message that does not help its reader: git's hook `commit-msg`.

`python .ci/commit_message.py FILE` is called by pre-commit with the file that holds the message. It exits 1, and says
why in a line for each rule that is broken.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

MOST_CHARACTERS = 72
PROTOCOL = tuple(f"sqs_fifo_spark/{room}/" for room in ("source", "sink", "journal"))
"""Where a change needs a reason: the laws rest on the code below these."""

_SCISSORS = re.compile(r"^. -+ >8 -+$.*", re.MULTILINE | re.DOTALL)
_TRAILER = re.compile(r"[A-Za-z-]+: \S")
_TO_BE_MELDED = ("fixup! ", "squash! ", "amend! ")
"""A rebase melds these commits into others, and their messages are gone."""


def faults(message: str, changed: Iterable[str]) -> Iterator[str]:
    """Yield what is wrong with the message, without comments, of a commit that changes these files."""
    subject, *further = message.strip().splitlines() or [""]
    if subject.startswith(_TO_BE_MELDED):
        return
    if len(subject) > MOST_CHARACTERS:
        yield f"the subject has {len(subject)} characters; at most {MOST_CHARACTERS} are shown. Say the rest below it"
    if ";" in subject:
        yield "the subject has a ';': say one thing there, or make two commits"
    if further and further[0]:
        yield "the second line must be empty: git takes it for a part of the subject"
    touched = sorted(path for path in changed if path.startswith(PROTOCOL))
    if touched and all(_TRAILER.match(line) for line in further if line.strip()):
        yield f"'{touched[0]}' changes; say below the subject, after an empty line, why"


def git(*arguments: str, given: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", *arguments], input=given, capture_output=True, encoding="utf-8", check=False)


def main(arguments: list[str]) -> int:
    written = _SCISSORS.sub("", Path(arguments[0]).read_text(encoding="utf-8"))
    message = git("stripspace", "--strip-comments", given=written).stdout
    # The branch that is merged has the reasons in its own commits.
    is_merge = git("rev-parse", "--quiet", "--verify", "MERGE_HEAD").returncode == 0
    changed = "" if is_merge else git("diff", "--cached", "--name-only", "--no-renames", "-z").stdout
    found = list(faults(message, changed.split("\0")))
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
