"""A journal's identity, `journal.json`: its format, its id and its queue. Made once, read at every start."""

from __future__ import annotations

import re
import uuid
from typing import TypeVar

from sqs_fifo_spark.errors import JournalMismatchError, JournalUnavailableError
from sqs_fifo_spark.journal.documents import damaged, parse_json, to_json
from sqs_fifo_spark.journal.location import anchored
from sqs_fifo_spark.journal.store import Store

FORMAT = 1
IDENTITY = "journal.json"
"""Its name, in the store."""
_LATEST = 10**18
_IDENTIFIER = re.compile(r"[0-9A-Za-z_-]{1,64}")
_Self = TypeVar("_Self", bound="JournalIdentity")


class JournalIdentity:
    """A journal that stands in `store` and is called `id`."""

    def __init__(self, store: Store, journal_id: str, first_claim: int = 1, queue_arn: str = "") -> None:
        self.store = store
        """On an executor, a store that reads and writes only where the journal stands."""
        self.id = journal_id
        self.first_claim = first_claim
        """The number of its first claim. Only a driver that has found the journal, or made it, knows that."""
        self.queue_arn = queue_arn
        """Its queue. Known where `first_claim` is."""
        self.location = store.location

    @classmethod
    def find(cls: type[_Self], store: Store, queue_arn: str) -> _Self | None:
        """Return the journal in `store`, or None if there is none.

        Runs on the driver. Raises JournalMismatchError if it belongs to another queue or is of another format.
        """
        data = store.get(IDENTITY)
        if data is None:
            return None
        identity = parse_json(data, IDENTITY)
        if identity.get("format") != FORMAT:
            raise JournalMismatchError(
                f"the journal at '{store.location}' has format {identity.get('format')!r}; this version reads "
                f"{FORMAT}. Use the version that wrote it, or another journalLocation."
            )
        if identity.get("queueArn") != queue_arn:
            raise JournalMismatchError(
                f"the journal at '{store.location}' belongs to the queue {identity.get('queueArn')!r}, not to "
                f"'{queue_arn}'. Give each its own journalLocation."
            )
        match identity.get("journal"), identity.get("firstClaim"):
            case str(journal_id), int(first_claim) if _IDENTIFIER.fullmatch(journal_id) and 1 <= first_claim <= _LATEST:
                return cls(store, journal_id, first_claim, queue_arn)
        raise damaged(IDENTITY)

    @staticmethod
    def id_in(store: Store) -> str | None:
        """Return the id of the journal in `store`, of any queue, or None if there is none."""
        data = store.get(IDENTITY)
        found = None if data is None else parse_json(data, IDENTITY).get("journal")
        return found if isinstance(found, str) else None

    @classmethod
    def look(cls: type[_Self], store: Store) -> _Self | None:
        """Return the journal in `store`, of any queue, or None if there is none; for a command that only reads.

        Raises JournalMismatchError if it is of another format.
        """
        data = store.get(IDENTITY)
        return None if data is None else cls.find(store, str(parse_json(data, IDENTITY).get("queueArn")))

    @classmethod
    def join(cls: type[_Self], store: Store, journal_id: str) -> _Self:
        """Return the journal that the driver has opened, as an executor sees it.

        Raises JournalUnavailableError unless it stands in `store`: on a path of its own, an executor would keep
        received messages where the driver never finds them.
        """
        if cls.id_in(store) != journal_id:
            raise JournalUnavailableError(
                f"this executor does not find the driver's journal at '{store.location}', so it does nothing. "
                "journalLocation must be one place that driver and all executors share."
            )
        return cls(anchored(store, IDENTITY), journal_id)

    @classmethod
    def create(cls: type[_Self], store: Store, queue_arn: str, first_claim: int = 1) -> _Self:
        """Return the journal in `store`, made now if there is none. Runs on the driver."""
        document = {"format": FORMAT, "journal": uuid.uuid4().hex, "queueArn": queue_arn, "firstClaim": first_claim}
        store.put_if_absent(IDENTITY, to_json(document))
        journal = cls.find(store, queue_arn)
        if journal is None:
            raise JournalUnavailableError(f"the journal at '{store.location}' vanished while it was made.")
        return journal

    @staticmethod
    def check_store(store: Store) -> None:
        """Raise JournalUnavailableError unless `store` can be written and truly puts only absent objects."""
        token = uuid.uuid4().hex
        name, first = f"check/{token}/probe", token.encode()
        store.put_if_absent(name, first)  # its answer may be lost, so the object that stands there counts
        was_put_again = store.put_if_absent(name, b"second")
        kept = store.get(name)
        store.delete([name])
        if was_put_again or kept != first:
            raise JournalUnavailableError(
                f"the store at '{store.location}' does not put objects only if they are absent, but two attempts "
                "at one partition depend on that. Use a local path with hard links, S3, Google Cloud Storage or Azure."
            )
