"""Bugs planted into the source over several queues: into the union itself, its members and their shares."""

from __future__ import annotations

import math

from sqs_fifo_spark.errors import FencedError
from tests.simulation.planting import Mutations

UNION_MUTATIONS = Mutations()
planted = UNION_MUTATIONS.planted
rewritten = UNION_MUTATIONS.rewritten

_UNION = "source.driver.union.QueueUnion"
_QUEUES = "source.driver.membership.Membership"

rewritten(
    "ask a driver that is looking for work",
    f"{_UNION}.commit",
    "if not each.is_asked and (each.aside_until is None or each.key not in self.queues.listed)",
    "if each.aside_until is None or each.key not in self.queues.listed",
)
rewritten(
    "begin with the first answer alone",
    f"{_UNION}.latest_offset",
    "        if is_first and found:\n            found = self._of_one_batch(found)\n            break\n",
    "        if found:\n            break\n",
)
rewritten(
    "put what is new beside what Spark's log has lost",
    f"{_UNION}._of_one_batch",
    "return again or found",
    "return found",
)
rewritten(
    "say that there is nothing while a poll is about to bring something",
    "source.driver.member.wait_for_answer",
    "left_s <= 0 and all(each.has_looked for each in asked)",
    "left_s <= 0",
)
rewritten(
    "take Spark's place for a queue's start",
    f"{_UNION}.plan",
    "        if before is None:  # Spark's log does not say where it began\n"
    "            before = member.start = member.start or member.startless.initial_offset()\n",
    "        before = before or member.start or member.startless.initial_offset()\n"
    "        member.start = member.start or before\n",
)
rewritten(
    "let a refused queue end the query",
    f"{_UNION}._set_aside",
    "if not is_about_queue(error):",
    "if True:",
)
rewritten(
    "keep the driver of a refused queue",
    f"{_UNION}._set_aside",
    "    member.discard()\n",
    "",
)
rewritten(
    "never forget a queue that has left",
    f"{_QUEUES}.leave",
    "if member.has_settled(offset):",
    "if False:",
)
rewritten(
    "ask a queue that has left once more",
    f"{_UNION}.commit",
    "self.queues.without_ended(end)",
    "end",
)
rewritten(
    "leave a queue that has left to nobody",
    f"{_UNION}.commit",
    "if each.key in ends and",
    "if each.key in ends and each.key in self.queues.listed and",
)
rewritten(
    "leave to nobody what Spark has committed of a queue without a place",
    f"{_UNION}.plan",
    "    self._settle_left_out(start, end)\n",
    "",
)
rewritten(
    "ask a queue that has left for nothing",
    f"{_UNION}.latest_offset",
    "    if not self._has_begun:\n        self._ask_others(known, max_messages)\n",
    "",
)
rewritten(
    "ask a refused queue for nothing",
    f"{_UNION}._ask_others",
    "if not self.queues[key].is_asked:",
    "if key not in self.queues.listed and self.queues[key].is_free:",
)
rewritten(
    "announce a queue's first epoch blindly where Spark has said its place",
    f"{_UNION}._ask_for_work",
    "start is None and self._has_been_told",
    "start is None and self._tells_start",
)
rewritten(
    "forget what Spark was told once the list is another one",
    f"{_QUEUES}.free",
    "if each.key in self.listed or each.has_announced",
    "if each.key in self.listed",
)
UNION_MUTATIONS.changed("never try a refused queue again", "source.driver.union.ASIDE_S", math.inf)
UNION_MUTATIONS.changed("poll a queue only while Spark asks", "source.driver.union.POLLS_S", 0.0)


@planted("give all limits to each queue", "source.driver.sharing.share_limits")
def _(share, limits, expected):
    return dict.fromkeys(expected, limits)


@planted("take the claim of one queue for those of all", "source.driver.ownership.Ownership.require_claim")
def _(require_claim, owned):
    owners = vars(owned._queue.pace).setdefault("owners", {})  # of one run, which has one pace
    owners[id(owned)] = owned
    errors = []
    for each in owners.values():
        try:
            return require_claim(each)
        except FencedError as error:
            errors.append(error)
    raise errors[0]


@planted("forget the places of queues that do not move", "source.offsets.Offsets.moved")
def _(moved, offsets, places, **given):
    return type(offsets)(places)


@planted("take another queue's place", "source.offsets.Offsets.of")
def _(of, offsets, key):
    return next((offset for _, _, offset in offsets if offset.plan), None) or of(offsets, key)


@planted("wait for each poll before a micro-batch begins", "source.driver.member.Member.is_settled")
def _(is_settled, member):
    return member.has_answered or not member.is_asked


@planted("poll again as soon as Spark asks", "source.driver.member.Member._poll_begins")
def _(begins, member):
    """Nobody is told that a poll has begun, so that each micro-batch waits for it."""


@planted("end with a queue that is gone", "source.driver.startup.Preflight.__init__")
def _(make, preflight, queue, store, options):
    was, queue.may_go = queue.may_go, False
    try:
        make(preflight, queue, store, options)
    finally:
        queue.may_go = was
