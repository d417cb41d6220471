"""The laws of `journal skip` and `journal release`: what stands aside, and which commands may say that all is well."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqs_fifo_spark.source.owner import ANSWER_MARGIN_S
from tests.simulation.disk import Content
from tests.simulation.world import Row, World

_NAME = re.compile(r"\w+ \d+")


@dataclass
class Command:
    """A command that an operator has given, and how far it has come."""

    is_forced: bool
    message_id: str = ""
    """The message to move; a release has none."""
    place: str = ""
    """The place for it: one for each file of each machine, and for each queue."""
    was_marked: bool = False
    """True if the message had its mark when the command began."""
    has_put: bool = False
    is_refused: bool = False
    """True if its place could not be had."""
    asked_at: float | None = None
    """Time at which it began to ask whether the query runs."""
    claim: int = 0
    looked: int = 0
    """After how many steps of the history it looked last into the segments."""
    released: int = 0
    """After how many it asked last to release anything."""


class Claim(NamedTuple):
    """A claim that counted: after how many steps of the history, and whose."""

    at: int
    by: str


class RepairLaws:
    """The laws of an operator's commands. Breaches are given to `violate`."""

    def __init__(self, world: World, violate: Callable[[str], None]) -> None:
        self._world = world
        self._violate = violate
        self.is_alive: Callable[[str], bool] = lambda name: False
        """Returns True if the process of this name runs."""
        self.files: Mapping[str, Content] = {}
        """By their places."""
        self.marked: dict[str, int] = {}
        """Messages marked as moved aside, and the number of steps of the history before the mark."""
        self.claims: dict[int, Claim] = {}
        self._sent: dict[str, Row] = {}
        self._aside: defaultdict[str, set[str]] = defaultdict(set)
        """In which places a message stands whole, be it marked or not."""
        self._copies: defaultdict[str, list[Row]] = defaultdict(list)
        """A message as it stands in each of these."""
        self._commands: dict[str, Command] = {}
        """By the name of its process."""
        self._moved: dict[str, int] = {}
        """Messages that a command has said that it moved, and the command's claim."""
        self._served: dict[str, int] = {}
        """The highest claim of a driver whose tasks served a message, since there are commands."""

    def sent(self, row: Row) -> None:
        self._sent[row.message_id] = row

    def asked_for(self) -> set[str]:
        """Return the messages that any command was to move aside."""
        return {command.message_id for command in self._commands.values()}

    # A command, as it happens

    def begins(self, command: Command) -> None:
        command.was_marked = command.message_id in self.marked
        self._commands[self._who()] = command

    def steps(self, event: str) -> None:
        """A command takes a step."""
        command = self._commands[self._who()]
        if event.startswith("before get epochs/"):
            command.looked = len(self._world.trace)
        elif event.startswith("after put drivers/ask-"):
            command.asked_at = self._world.clock.now()
        elif event.startswith("after SendMessageBatch"):
            self._look_into_queue(command.place)

    def is_refused(self) -> None:
        """The place of the command that runs cannot be had."""
        self._commands[self._who()].is_refused = True

    def has_claimed(self, number: int) -> None:
        """One owner: no two make one claim. A command takes nothing for no reason, nor what an answer would keep."""
        actor = self._who()
        if number in self.claims:
            self._violate(f"one owner: claim {number} is {self.claims[number].by}'s, and {actor}'s, too")
        self.claims[number] = Claim(len(self._world.trace), actor)
        command = self._commands.get(actor)
        if command is None:
            return
        command.claim = number
        if command.was_marked:
            self._violate(f"moved aside: {actor} has nothing left to move, and takes the journal")
        if command.is_forced:
            return
        claims = (name for name in self._world.store.ever if name.startswith("drivers/0"))
        before = max((name for name in claims if name < f"drivers/{number:020d}.json"), default=None)
        owner = self.claims.get(int(before[len("drivers/") : -len(".json")])) if before else None
        if owner is None or "query" not in owner.by or not self.is_alive(owner.by):
            return
        now = self._world.clock.now()
        waited_s = now - (now if command.asked_at is None else command.asked_at)
        if waited_s < self._world.options.heartbeat_s + ANSWER_MARGIN_S:
            self._violate(f"one owner: {actor} takes the journal from {owner.by}, which runs, after {waited_s:g} s")

    def put_aside(self, place: str, row: Row) -> None:
        """A message stands aside durably: it is the whole message."""
        if place in self._aside[row.message_id]:
            return
        self._aside[row.message_id].add(place)
        self._copies[row.message_id].append(row)
        if not self._is_whole(row):
            self._violate(f"moved aside: {row} was never sent")

    def _is_whole(self, row: Row) -> bool:
        sent, bucket = self._sent.get(row.message_id), self._world.bucket
        return row == sent if bucket is None or sent is None else bucket.is_whole(row, sent)

    def has_synced(self, place: str, content: Content) -> None:
        """A file is synced: what of it is whole stands aside, no message twice."""
        self._commands[self._who()].has_put = True
        found = Counter[str]()
        for row in content.rows():
            message_id, group, sequence = row["messageId"], row["messageGroupId"], int(row["sequenceNumber"])
            self.put_aside(place, Row(message_id, group, sequence, row["body"]))
            found[message_id] += 1
        doubled = sorted(self._name(each) for each, count in found.items() if count > 1)
        if doubled:
            self._violate(f"moved aside: twice in '{place}': {doubled}")

    def _look_into_queue(self, url: str) -> None:
        """Look for messages moved to another queue, each known by its deduplication id: they stand aside."""
        queue = self._world.model._queues[url.rpartition("/")[2]]
        for copy in queue._store:
            row = self._sent.get(copy.draft.deduplication_id or "")
            found = None if row is None else row._replace(group=copy.draft.group_id or "", body=copy.draft.body)
            if found is None or not self._is_whole(found):
                self._violate(
                    f"moved aside: '{copy.draft.body}' stands in '{url}', and does not tell what it is a copy of"
                )
            else:
                self.put_aside(url, found)

    def has_marked(self, message_id: str) -> None:
        """Require a marked message in the place that its mark names."""
        if message_id in self.marked:
            return
        self.marked[message_id] = len(self._world.trace)
        place = self._place(self._mark(message_id))
        if place not in self._aside[message_id]:
            self._violate(f"moved aside: {self._name(message_id)} is marked, and does not stand in '{place}'")

    def releases(self, message_ids: Iterable[str]) -> None:
        """Nothing is released for which a query has opened the journal before the command looked for it."""
        command = self._commands.get(self._who())
        if command is None:
            return
        command.released = len(self._world.trace)
        names = sorted(map(self._name, message_ids))
        for owner in self._newer_queries(command.claim, before=command.looked):
            self._violate(f"leases: {self._who()} releases {names}, which {owner} has taken over before")

    def serves(self, claim: int, message_ids: Iterable[str]) -> None:
        """A task of the driver of `claim` serves these messages: none of them was marked before that claim.

        Nor does it serve any that a command with an older claim says that it has moved.
        """
        at = self.claims[claim].at if self.marked else 0
        served = [each for each in message_ids if self.marked.get(each, at + 1) <= at]
        if served:
            self._violate(f"moved aside: {sorted(map(self._name, served))} are served after they were marked")
        for each in message_ids if self._commands else ():
            self._served[each] = max(claim, self._served.get(each, 0))
            self._require_not_served(each)

    def ends_well(self, said: Mapping[str, Any]) -> None:
        """A command may say that all is well only if no query knows otherwise, and what it says is so."""
        actor = self._who()
        command = self._commands[actor]
        if not command.message_id:
            for owner in self._newer_queries(command.claim, before=command.released):
                self._violate(f"leases: {actor} ends well, and {owner} had opened the journal before it released")
            return
        name, mark = self._name(command.message_id), self._mark(command.message_id)
        if command.message_id not in self.marked or self._place(said) != self._place(mark):
            self._violate(f"moved aside: {actor} says that {name} is in '{self._place(said)}', and no mark says so")
        elif said["wasMovedBefore"]:
            return
        elif command.place != self._place(mark) or command.place not in self._aside[command.message_id]:
            self._violate(f"moved aside: {actor} moved {name} to '{command.place}', and says '{self._place(mark)}'")
        else:
            self._moved[command.message_id] = command.claim
            self._require_not_served(command.message_id)

    def ends_badly(self, error: Exception) -> None:
        """No query stops for a command whose place cannot be had."""
        actor = self._who()
        command = self._commands[actor]
        if command.is_refused and command.claim:
            self._violate(f"one owner: {actor} takes the journal, and has no place for what it moves: {error}")

    def ends(self) -> None:
        """However a command ends, one that had nothing left to move has put nothing aside."""
        command = self._commands[self._who()]
        if command.was_marked and command.has_put:
            self._violate(f"moved aside: {self._who()} moves what was marked when it began")

    # When all is over

    def audit(self) -> None:
        """Require each marked message still in the place that its mark names, and the payload of each pointer aside."""
        bucket = self._world.bucket
        for message_id, rows in self._copies.items():
            if bucket is not None and any(map(bucket.leads_nowhere, rows)):
                self._violate(f"moved aside: {self._name(message_id)} stands aside as a pointer that leads nowhere")
        for message_id in self.marked:
            place = self._place(self._mark(message_id))
            if place not in self._aside[message_id]:
                self._violate(f"no loss: {self._name(message_id)} is marked, and never stood in '{place}'")
            file = self.files.get(place)
            if file is not None and message_id not in {row["messageId"] for row in file.rows()}:
                self._violate(f"no loss: {self._name(message_id)} stands in '{place}' no more")

    def _newer_queries(self, claim: int, *, before: int) -> list[str]:
        newer = (owner for number, owner in self.claims.items() if number > claim)
        return [owner.by for owner in newer if "query" in owner.by and owner.at < before]

    def _require_not_served(self, message_id: str) -> None:
        claim = self._moved.get(message_id)
        if claim is not None and self._served.get(message_id, 0) > claim:
            self._violate(
                f"moved aside: {self._name(message_id)} is served, by claim {self._served[message_id]}, and a command "
                f"of claim {claim} said that the query goes on without it"
            )

    def _who(self) -> str:
        """Return the name of the process that runs, a command or a query, or a part of another's."""
        found = _NAME.match(self._world.actor())
        return found[0] if found else ""

    def _mark(self, message_id: str) -> Mapping[str, Any]:
        mark: Mapping[str, Any] = json.loads(self._world.store.objects.get(f"skipped/{message_id}", b"{}"))
        return mark

    @staticmethod
    def _place(mark: Mapping[str, Any]) -> str:
        to = str(mark.get("to"))
        return f"{mark.get('host')}:{to}" if to.startswith("/") else to

    def _name(self, message_id: str) -> str:
        return self._sent[message_id].body
