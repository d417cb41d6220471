"""A journal as an operator's command sees it, which only looks: nothing is claimed, put or dropped.

A query may change it meanwhile. So an object that is gone when it is read was dropped since, and is left out; and lines
about different epochs may be of different moments.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import groupby
from operator import itemgetter
from typing import Any

from sqs_fifo_spark.aws.calls import QueueCalls
from sqs_fifo_spark.cli.flags import NOT_CALLED, given_options
from sqs_fifo_spark.cli.output import Track, time_text
from sqs_fifo_spark.clock import SYSTEM_CLOCK
from sqs_fifo_spark.errors import JournalCorruptError, JournalUnavailableError
from sqs_fifo_spark.journal.identity import IDENTITY
from sqs_fifo_spark.journal.location import journal_access, open_store
from sqs_fifo_spark.journal.store import Store
from sqs_fifo_spark.options import parse_source_options
from sqs_fifo_spark.options.queues import FOLDER
from sqs_fifo_spark.sink.marks import Writer, writers
from sqs_fifo_spark.source.journal_objects import Journal
from sqs_fifo_spark.source.owner import Owner
from sqs_fifo_spark.source.segment import Chain

_JOURNAL_OF_QUEUE = re.compile(rf"{FOLDER}/([^/]+)/{re.escape(IDENTITY)}")
_MOST_NAMED = 3


def open_journal(journal_location: str, chosen: Mapping[str, str | None], queue: QueueCalls | None = None) -> Journal:
    """Return the journal at this place, reached with the flags in `chosen`. A `queue` is asked for its ARN.

    Raises OptionError; JournalUnavailableError if there is none, or several of one source; JournalMismatchError if it
    is of another format, or of another queue than `queue`; and the errors of `aws.calls`.
    """
    store = _store(journal_location, chosen)
    queue_arn = queue.describe().arn if queue else None
    journal = Journal.look(store) if queue_arn is None else Journal.find(store, queue_arn)
    if journal is None:
        keys, below = _keys_in(store), f"{journal_location.rstrip('/')}/{FOLDER}"
        if keys:
            named = ", ".join(keys[:_MOST_NAMED]) + (", ..." if len(keys) > _MOST_NAMED else "")
            raise JournalUnavailableError(
                f"'{journal_location}' has no journal of its own, but {len(keys)} of queues that one source reads, "
                f"below '{below}': {named}. This command is for one of them: give its location, '{below}/{keys[0]}' "
                "for example. 'journal show' lists them."
            )
        raise JournalUnavailableError(
            f"there is no journal at '{journal_location}'. Correct the location; a source makes its journal when it "
            "starts, a sink with its first row."
        )
    return journal


def journals_below(journal_location: str, chosen: Mapping[str, str | None]) -> dict[str, str]:
    """Return the locations of the journals of a source that reads several queues, by the queues' keys, sorted.

    There are none where a journal itself is at `journal_location`. Raises OptionError, and JournalUnavailableError.
    """
    store = _store(journal_location, chosen)
    keys = [] if Journal.id_in(store) is not None else _keys_in(store)
    return {key: f"{journal_location.rstrip('/')}/{FOLDER}/{key}" for key in keys}


def _store(journal_location: str, chosen: Mapping[str, str | None]) -> Store:
    options = parse_source_options(
        {"queueUrl": NOT_CALLED, "journalLocation": journal_location, **given_options(chosen)}
    )
    return open_store(options.journal_location, journal_access(options))


def _keys_in(store: Store) -> list[str]:
    return [found[1] for found in map(_JOURNAL_OF_QUEUE.fullmatch, store.list(FOLDER)) if found]


def look_at(journal: Journal, track: Track) -> dict[str, Any]:
    """Return the JSON of `journal show`, whose fields `docs/cli-journal.md` explains.

    `track` goes once through the objects that are read. Raises JournalUnavailableError, and JournalCorruptError for a
    ledger that is damaged.
    """
    ledger = journal.ledger()
    objects = journal.objects().items()
    open_objects = [(epoch, name) for epoch, names in objects if epoch > ledger.epoch for name in names]
    places = sorted((epoch, journal.plan_of(name) or 0, name) for epoch, name in open_objects)
    plans: list[dict[str, Any]] = []
    damage: list[str] = []
    for (epoch, plan), of_plan in groupby(track(places, "open epochs"), itemgetter(0, 1)):
        seen = _plan(journal, epoch, plan, (name for _, _, name in of_plan), damage)
        if seen["segments"] or seen["caughtMessages"]:
            plans.append(seen)
    found, wrong = writers(journal.store)
    return {
        "location": journal.location,
        "journal": journal.id,
        "queueArn": journal.queue_arn,
        "claims": journal.claims(),
        "owner": _owner(journal.owner()),
        "skippedMessages": sorted(journal.skipped()),
        "ledger": {
            "settledEpoch": ledger.epoch,
            "settledPlan": ledger.plan,
            "unconfirmedDeletes": len(ledger.unconfirmed),
            "payloadsToDelete": len(ledger.payloads),
            "carriedMessages": sum(map(len, ledger.carried.values())),
        },
        "leftoverObjects": sum(len(names) for epoch, names in objects if epoch <= ledger.epoch),
        "plans": plans,
        "writers": list(map(_writer, found)),
        "damage": damage + wrong,
    }


def _plan(journal: Journal, epoch: int, plan: int, names: Iterable[str], damage: list[str]) -> dict[str, Any]:
    """Return the content of a plan's objects, whose `names` are by partition and link. Faults go to `damage`."""
    chains: dict[int, Chain] = {}
    partitions = segments = deferred = 0
    caught: list[int] = []
    for name in names:
        place = journal.link_of(name, plan)
        try:
            head = journal.head(name)
        except JournalCorruptError as error:
            damage.append(str(error))
            continue
        if head is None:
            continue
        if place is None:
            caught += [receipt.sent_at_ms for receipt in head.receipts]
            continue
        partitions, segments = head.origin.partitions, segments + 1
        deferred += sum(receipt.deferred for receipt in head.receipts)
        chains[place[0]] = head.chain  # the newest link has the sums of all
    times = [*caught, *(chain.oldest_ms for chain in chains.values() if chain.oldest_ms is not None)]
    oldest_s = min(times) / 1_000 if times else None
    return {
        "epoch": epoch,
        "plan": plan,
        "partitions": partitions,
        "partitionsStored": len(chains),
        "segments": segments,
        "isClosed": 0 < len(chains) == partitions and all(chain.is_last for chain in chains.values()),
        "messages": sum(chain.served for chain in chains.values()),
        "deferredMessages": deferred,
        "caughtMessages": len(caught),
        "bytes": sum(chain.size for chain in chains.values()),
        "oldestSentTimestamp": None if oldest_s is None else time_text(oldest_s),
        "oldestAgeSeconds": None if oldest_s is None else max(0.0, round(SYSTEM_CLOCK.now() - oldest_s, 3)),
    }


def _owner(owner: Owner | None) -> dict[str, Any] | None:
    if owner is None:
        return None
    return {
        "claim": owner.claim,
        "host": owner.host,
        "pid": owner.pid,
        "claimedTimestamp": time_text(owner.claimed_at),
        "isCommand": owner.is_command,
        "isRunning": owner.is_running_here(),
    }


def _writer(each: Writer) -> dict[str, Any]:
    counts = {"rows": each.rows, "bytes": each.size, "objects": each.objects}
    return {"writer": each.name, **counts, "lastUsedTimestamp": time_text(each.last_used_at)}
