"""Bugs planted into what an operator's repair does, and into what the query makes of it."""

from __future__ import annotations

from tests.simulation.planting import Mutations, rewrite

REPAIR_MUTATIONS = Mutations()
planted = REPAIR_MUTATIONS.planted
rewritten = REPAIR_MUTATIONS.rewritten


@planted("serve what is moved aside", "source.segment.Segment.served")
def _(served, segment, skipped=frozenset()):
    return served(segment)


@planted("release by deleting", "source.queue.Queue.release")
def _(release, queue, receipts):
    receipts = list(receipts)
    queue.delete(receipts)
    return release(queue, receipts)


rewritten(
    "look for what is moved aside before claiming the journal",
    "source.driver.startup.open_journal",
    "    claim = journal.claim(",
    "    skipped = journal.skipped()\n    journal.skipped = lambda: skipped\n    claim = journal.claim(",
)
rewritten(
    "deal out what is moved aside",
    "source.driver.planning.deal_out",
    "if receipt.message_id not in skipped:",
    "if True:",
)
rewritten(
    "carry what is moved aside",
    "source.driver.verdict.judge",
    " or message_id in skipped",
    "",
)


@planted("skip without looking whether it is marked")
def _():
    rewrite("cli.repair_commands.skip.callback", "if journal.skip_of(message_id) is None:", "if True:")
    rewrite("source.repair.skip", "takeover.journal.skip_of(message_id) is None", "True")


@planted("let two operators hold the journal", "source.journal_objects.Journal._put_own")
def _(put_own, journal, name, data, token):
    return put_own(journal, name, data, token) or (name.startswith("drivers/") and b'"isCommand"' in data)


rewritten(
    "take the journal from a query that had little time to answer",
    "source.owner._answers",
    "+ ANSWER_MARGIN_S",
    "",
)
rewritten(
    "take the journal before there is a place for what is moved",
    "cli.repair_commands.skip.callback",
    "        with aside as put_aside:\n",
    "        after = journal.claim(repair.this_command(now=0), after=after)\n        with aside as put_aside:\n",
)
rewritten(
    "release what another driver holds",
    "source.repair.release",
    "    takeover.require_claim()\n    released",
    "    released",
)
rewritten(
    "release without a word of the query that holds it now",
    "source.repair.release",
    "    takeover.require_claim()\n    return",
    "    return",
)
rewritten(
    "say that the query goes on without it, though one began before the mark",
    "source.repair.skip",
    "    try:\n        takeover.require_claim()\n",
    "    try:\n        pass\n",
)
rewritten(
    "take any command for a proof that no query came before it",
    "source.repair.skip",
    " and owner.claim == takeover.claim + 1",
    "",
)
rewritten(
    "say nothing of the other place that a message was moved to",
    "source.repair.skip",
    'mark.get("to") != to or (is_on_host and mark.get("host") != host)',
    "False",
)
rewritten(
    "take one path on two machines for one place",
    "source.repair.skip",
    ' or (is_on_host and mark.get("host") != host)',
    "",
)
rewritten(
    "move a message to a file without its lock",
    "cli.repair_commands._to_file.__wrapped__",
    "            fcntl.flock(out, fcntl.LOCK_EX)\n",
    "",
)
rewritten(
    "believe in a row of a file that nobody has synced",
    "cli.repair_commands._to_file.__wrapped__",
    "            os.fsync(out.fileno())  # whoever wrote it may have been killed before that\n",
    "",
)
rewritten(
    "add to a line that was cut off",
    "cli.repair_commands._to_file.__wrapped__",
    'there and not there.endswith(b"\\n")',
    "False",
)
rewritten(
    "send what is moved under its producer's deduplication id",
    "cli.repair_commands._to_queue",
    '"messageId" if name == "messageDeduplicationId" else name for',
    "name for",
)
rewritten(
    "mark before it is put aside",
    "source.repair.skip",
    "        put_aside(row)\n",
    "        takeover.journal.put_skip(message_id, {})\n        put_aside(row)\n",
)
rewritten(
    "drop more than what is settled when the journal is taken over",
    "source.driver.startup.settle_claim",
    "if epoch <= ledger.epoch\n",
    "if epoch <= ledger.epoch + 1\n",
)
