"""Bugs planted on purpose, to show that the simulation would find them.

Each is a change of one place in the source, made while the module is imported; the place must be there exactly once, so
that a mutation cannot outlive the code that it breaks.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from types import CodeType, ModuleType


@dataclass(frozen=True)
class Mutation:
    """`original` in the source of `module` becomes `planted`, and so do pairs of `also`: what else would mask it."""

    name: str
    module: str
    original: str
    planted: str
    also: tuple[tuple[str, str], ...] = ()


MUTATIONS = (
    Mutation(
        "serve before sealing",
        "source.partition",
        "            sealed = journal.seal(segment)\n",
        "            sealed = segment\n",
    ),
    Mutation(
        "serve what lost the race",
        "source.partition",
        "            _keep_spare(segment, own, journal, queue, lease)\n",
        "            sealed = segment\n",
    ),
    Mutation(
        "skip empty segments",
        "source.partition",
        "        try:\n            sealed = journal.seal(segment)\n",
        "        if not segment.receipts:\n            return segment\n"
        "        try:\n            sealed = journal.seal(segment)\n",
    ),
    Mutation(
        "drop what a losing attempt caught",
        "source.partition",
        "    if not receipts and not lost.deleted:\n        return\n    try:\n",
        "    return\n    try:\n",
    ),
    Mutation(
        "delete before commit",
        "source.partition",
        "        try:\n            sealed = journal.seal(segment)\n",
        "        try:\n            sealed = journal.seal(segment)\n"
        "            queue.delete(sealed.receipts[:10])\n",
    ),
    Mutation(
        "serve redelivered messages at once",
        "source.partition",
        "if receipt.receive_count > 1 or",
        "if receipt.receive_count > 99 or",
    ),
    Mutation(
        "serve what follows a deferred message",
        "source.partition",
        "            deferred_groups.add(receipt.message_group_id)\n",
        "",
    ),
    Mutation(
        "serve what follows carried messages",
        "source.partition",
        "    deferred_groups = set(plan.decided_groups)\n",
        "    deferred_groups = set()\n",
    ),
    Mutation(
        "receive for an epoch that is committed",
        "source.journal",
        "        if epoch <= last:\n",
        "        if epoch < 0:\n",
    ),
    Mutation(
        "serve what a leftover task put",
        "source.partition",
        "        journal.require_open(plan.epoch)  # or it may be",
        "        pass  # or it may be",
    ),
    Mutation(
        "overwrite what is sealed",
        "source.journal",
        "        if not self.store.put_if_absent(name, encode(segment)):\n",
        "        self.store.delete([name])\n        if not self.store.put_if_absent(name, encode(segment)):\n",
    ),
    Mutation(
        "forget the ledger",
        "source.driver",
        "Ledger(end.epoch, unconfirmed, carried, is_followed)\n",
        "Ledger(end.epoch, {}, carried, is_followed)\n",
    ),
    Mutation(
        "forget what is carried",
        "source.driver",
        "        carried = {name: tuple(receipts) for name, receipts in verdict.carried.items()}\n",
        "        carried = {}\n",
    ),
    Mutation(
        "drop the segments before the ledger is written",
        "source.driver",
        "        journal.commit(ledger)\n",
        "        journal.drop([name for name in journal.objects().get(end.epoch, ()) if name not in carried])\n"
        "        journal.commit(ledger)\n",
    ),
    Mutation(
        "write the ledger before the deletes",
        "source.driver",
        "        unconfirmed = self._delete([*verdict.served.values()",
        "        journal.commit(Ledger(end.epoch, {}, {}))\n"
        "        unconfirmed = self._delete([*verdict.served.values()",
    ),
    Mutation(
        "wrong number of partitions at a replay",
        "source.driver",
        "            epoch = self._epoch(journal, end, limit, expected=limit)\n",
        "            end = replace(end, partitions=max(1, end.partitions - 1))\n"
        "            epoch = self._epoch(journal, end, limit, expected=limit)\n",
    ),
    Mutation(
        "advance without commit",
        "source.driver",
        "        self._settle(journal, end, is_followed=is_followed)\n",
        "        self._ledger = replace(self._ledger, epoch=end.epoch)\n",
    ),
    Mutation(
        "probe without the ledger",
        "source.driver",
        "        if not copies:\n            return tuple(received), False\n",
        "        return tuple(received), False\n",
    ),
    Mutation(
        "lose what the probe got and nobody read",
        "source.driver",
        "        handed = self._open.unread() if self._open is not None else ()\n",
        "        handed = ()\n",
    ),
    Mutation(
        "no heartbeat on the driver",
        "source.driver",
        "            self._heartbeat.start()\n",
        "",
    ),
    Mutation(
        "work on without the claim",
        "source.journal",
        "        if self.store.get(_claim_name(number + 1)) is None:\n",
        "        if True:\n            return\n        if self.store.get(_claim_name(number + 1)) is None:\n",
    ),
    Mutation(
        "end AvailableNow while something is hidden",
        "source.available_now",
        "        if asked_at >= self._any_lapse_at:\n",
        "        if True:\n",
    ),
    Mutation(
        "end AvailableNow with old messages in hand",
        "source.available_now",
        "        return not ages or (not any(ages) and self._served >= self._waited)\n",
        "        return not ages or self._served >= self._waited\n",
    ),
    Mutation(
        "end AvailableNow before what dead attempts held is free",
        "source.available_now",
        "        if epoch.opened_at >= self._old_lapse_at and self._served >= self._waited:\n",
        "        if self._served >= self._waited:\n",
    ),
    Mutation(
        "poll without waiting",
        "source.driver",
        "receive=0, wait_time_s=wait_time_s)",
        "receive=0)",
    ),
    Mutation(
        "settle with the old handle",
        "source.message",
        "        return self.receive_count, self.received_at\n",
        "        return -self.receive_count, -self.received_at\n",
    ),
    Mutation(
        "renew what a replay takes over as if it had just been received",
        "source.epoch",
        "        return a_heartbeat_ago if self._is_replay else max(self.opened_at, a_heartbeat_ago)\n",
        "        return max(self.opened_at, a_heartbeat_ago)\n",
    ),
    Mutation(
        "settle without the newer handle of a spare",
        "source.verdict",
        "            if message_id not in newest or receipt.age > newest[message_id].age:\n",
        "            is_spare = partition is None and not is_carried\n"
        "            if message_id not in newest or (receipt.age > newest[message_id].age and not is_spare):\n",
    ),
    Mutation(
        "serve again what the epoch has served",
        "source.verdict",
        "        if message_id in served or message_id in gone:\n",
        "        if message_id in gone:\n",
    ),
    Mutation(
        "hand a group to any partition",
        "source.planning",
        "    return zlib.crc32(receipt.message_group_id.encode()) % count\n",
        "    return zlib.crc32(receipt.message_id.encode()) % count\n",
    ),
    Mutation(
        "ignore Failed",
        "source.queue",
        "                    again.append(int(failed[\"Id\"]))\n",
        "                    outcomes[int(failed[\"Id\"])] = Outcome.DONE\n",
    ),
    Mutation(
        "take a refused delete for a success",
        "source.queue",
        "                    outcomes[int(failed[\"Id\"])] = Outcome.GONE\n",
        "                    outcomes[int(failed[\"Id\"])] = Outcome.DONE\n",
    ),
    Mutation(
        "leave copies of committed messages to the commit",
        "source.partition",
        "        kept = copies.delete_from(answer)\n",
        "        kept = answer\n",
    ),
    Mutation(
        "take what was carried for a proof that a message is gone",
        "source.verdict",
        "        if receipt.message_id not in carried:\n",
        "        if True:\n",
    ),
    Mutation(
        "renew in the pool that reads the journal",
        "source.driver",
        "        self._discovery_pool = pool(\"discovery\", CONCURRENT_DISCOVERIES)\n",
        "        self._discovery_pool = queue._renewal_pool\n",
    ),
    Mutation(
        "believe a claim by its put alone",
        "source.journal",
        "            if is_own and max(map(_number, claims), default=0) == number:\n",
        "            if is_own:\n",
    ),
    Mutation(
        "believe a conflict",
        "journal.store",
        "        if is_there():\n",
        "        if True:\n",
    ),
    Mutation(
        "let all plans of an epoch share number and name",
        "source.driver",
        "        return Offset(journal.id, number, partitions, self._claim, after=start.plan)\n",
        "        return Offset(journal.id, number, partitions, 1, after=start.plan)\n",
        (("        return max(self._ledger.epoch, self._highest) + _GAP * (self._claim - 1) + 1\n",
          "        return self._ledger.epoch + 1\n"),),
    ),
    Mutation(
        "settle as served what Spark was never given",
        "source.driver",
        "        self._give_back(journal, self._unsettled_between(start.epoch, end.epoch))\n",
        "        for number in self._unsettled_between(start.epoch, end.epoch):\n"
        "            self._settle(journal, journal.offset_of(self._unsettled[number], lambda origin: True))\n",
    ),
    Mutation(
        "take the journal's word for where Spark is",
        "source.driver",
        "            return self._announce_blindly(self._journal(None))\n",
        "            told = self.initial_offset()\n",
    ),
    Mutation(
        "go on past an epoch that the offset log has lost",
        "source.driver",
        "        elif self._open is None and start.epoch == self._committed_before:\n",
        "        elif self._open is None and start.epoch < 0:\n",
    ),
    Mutation(
        "end AvailableNow without a long poll",
        "source.driver",
        "            found, is_all = self._poll(journal, limit)\n",
        "            found, is_all = (), True\n",
    ),
    Mutation(
        "renew with the time that is left already",
        "source.lease",
        "                        hold.renew_at = asked_at + min(self._heartbeat_s, timeout_s / 3)\n",
        "                        hold.renew_at = asked_at + 2 * timeout_s\n",
    ),
)  # fmt: skip


def plant(mutation: Mutation) -> None:
    """Let the module be imported with the bug in it. It must not have been imported yet."""
    name = f"sqs_fifo_spark.{mutation.module}"
    if name in sys.modules:
        raise RuntimeError(f"'{name}' is imported already, so '{mutation.name}' cannot be planted")
    sys.meta_path.insert(0, _Finder(name, mutation))


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, name: str, mutation: Mutation) -> None:
        self._name = name
        self._mutation = mutation

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._name:
            return None
        found = importlib.machinery.PathFinder.find_spec(fullname, path)
        assert found is not None
        assert found.origin is not None
        return importlib.util.spec_from_loader(fullname, _Loader(fullname, found.origin, self._mutation))


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, fullname: str, path: str, mutation: Mutation) -> None:
        super().__init__(fullname, path)
        self._mutation = mutation

    def get_code(self, fullname: str) -> CodeType:
        return compile(planted_source(self.get_data(self.path).decode(), self._mutation), self.path, "exec")


def planted_source(source: str, mutation: Mutation) -> str:
    """Return `source` with the bug. Raises ValueError unless its place is there exactly once."""
    for original, planted in ((mutation.original, mutation.planted), *mutation.also):
        found = source.count(original)
        if found != 1:
            raise ValueError(f"the place of '{mutation.name}' is {found} times in '{mutation.module}', not once")
        source = source.replace(original, planted)
    return source
