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
    """`original` in the source of `module` becomes `planted`."""

    name: str
    module: str
    original: str
    planted: str


MUTATIONS = (
    Mutation(
        "serve before sealing",
        "partition",
        "            sealed = journal.seal(segment)\n",
        "            sealed = segment\n",
    ),
    Mutation(
        "serve what lost the race",
        "partition",
        "                _keep_spare(segment, own, journal)\n",
        "                sealed = segment\n",
    ),
    Mutation(
        "skip empty segments",
        "partition",
        "        try:\n            sealed = journal.seal(segment)\n",
        "        if not segment.receipts:\n            return segment\n"
        "        try:\n            sealed = journal.seal(segment)\n",
    ),
    Mutation(
        "drop what a losing attempt caught",
        "partition",
        "    if not receipts:\n        return\n    try:\n",
        "    return\n    try:\n",
    ),
    Mutation(
        "delete before commit",
        "partition",
        "        try:\n            sealed = journal.seal(segment)\n",
        "        try:\n            sealed = journal.seal(segment)\n"
        "            queue.delete(sealed.receipts[:10])\n",
    ),
    Mutation(
        "serve redelivered messages at once",
        "partition",
        "if receipt.receive_count > 1 or",
        "if receipt.receive_count > 99 or",
    ),
    Mutation(
        "serve what follows a deferred message",
        "partition",
        "            deferred_groups.add(receipt.message_group_id)\n",
        "",
    ),
    Mutation(
        "serve what follows carried messages",
        "partition",
        "    deferred_groups = set(plan.decided_groups)\n",
        "    deferred_groups = set()\n",
    ),
    Mutation(
        "receive for an epoch that is committed",
        "journal",
        "        if epoch <= last:\n",
        "        if epoch < 0:\n",
    ),
    Mutation(
        "serve what a leftover task put",
        "partition",
        "        journal.require_open(plan.epoch)  # or it may be",
        "        pass  # or it may be",
    ),
    Mutation(
        "overwrite what is sealed",
        "journal",
        "        if not self._store.put_if_absent(name, encode(segment)):\n",
        "        self._store.delete([name])\n        if not self._store.put_if_absent(name, encode(segment)):\n",
    ),
    Mutation(
        "forget the ledger",
        "driver",
        "Ledger(end.epoch, unconfirmed, carried))\n",
        "Ledger(end.epoch, {}, carried))\n",
    ),
    Mutation(
        "forget what is carried",
        "driver",
        "        carried = {name: tuple(receipts) for name, receipts in verdict.carried.items()}\n",
        "        carried = {}\n",
    ),
    Mutation(
        "drop the segments before the ledger is written",
        "driver",
        "        standing = journal.commit(",
        "        journal.drop([name for name in journal.objects().get(end.epoch, ()) if name not in carried])\n"
        "        standing = journal.commit(",
    ),
    Mutation(
        "write the ledger before the deletes",
        "driver",
        "        unconfirmed = self._delete([*verdict.served.values()",
        "        journal.commit(Ledger(end.epoch, {}, {}))\n"
        "        unconfirmed = self._delete([*verdict.served.values()",
    ),
    Mutation(
        "wrong number of partitions at a replay",
        "driver",
        "            epoch = self._epoch(journal, end, limit, expected=limit)\n",
        "            end = replace(end, partitions=max(1, end.partitions - 1))\n"
        "            epoch = self._epoch(journal, end, limit, expected=limit)\n",
    ),
    Mutation(
        "advance without commit",
        "driver",
        "        self._settle_before(journal, end.epoch)\n        self._settle(journal, end)\n",
        "        self._ledger = replace(self._ledger, epoch=end.epoch)\n",
    ),
    Mutation(
        "skip epochs that stand in the journal",
        "driver",
        "        if number in self._unsettled:\n",
        "        if False:\n",
    ),
    Mutation(
        "probe without the ledger",
        "driver",
        "if receipt.message_id in self._ledger.unconfirmed]",
        "if False]",
    ),
    Mutation(
        "lose what the probe got and nobody read",
        "driver",
        "        handed = self._open.unread() if self._open is not None else ()\n",
        "        handed = ()\n",
    ),
    Mutation(
        "no heartbeat on the driver",
        "driver",
        "            self._heartbeat.start()\n",
        "",
    ),
    Mutation(
        "work on without the claim",
        "journal",
        "        if owner > number:\n",
        "        if False:\n",
    ),
    Mutation(
        "end AvailableNow while something is hidden",
        "available_now",
        "        if asked_at >= self._any_lapse_at:\n",
        "        if True:\n",
    ),
    Mutation(
        "poll without waiting",
        "driver",
        "receive=0, wait_time_s=wait_time_s)",
        "receive=0)",
    ),
    Mutation(
        "settle with the old handle",
        "verdict",
        "    return receipt.receive_count, receipt.received_at\n",
        "    return -receipt.receive_count, -receipt.received_at\n",
    ),
    Mutation(
        "judge without the ledger",
        "verdict",
        "        if message_id in ledger.unconfirmed:\n",
        "        if False:\n",
    ),
    Mutation(
        "serve again what the epoch has served",
        "verdict",
        "        if message_id in served:\n            continue\n",
        "",
    ),
    Mutation(
        "hand a group to any partition",
        "planning",
        "    return zlib.crc32(receipt.message_group_id.encode()) % count\n",
        "    return zlib.crc32(receipt.message_id.encode()) % count\n",
    ),
    Mutation(
        "ignore Failed",
        "queue",
        "                    again.append(int(failed[\"Id\"]))\n",
        "                    outcomes[int(failed[\"Id\"])] = Outcome.DONE\n",
    ),
    Mutation(
        "take a refused delete for a success",
        "queue",
        "                    outcomes[int(failed[\"Id\"])] = Outcome.GONE\n",
        "                    outcomes[int(failed[\"Id\"])] = Outcome.DONE\n",
    ),
    Mutation(
        "renew with the time that is left already",
        "lease",
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
    found = source.count(mutation.original)
    if found != 1:
        raise ValueError(f"the place of '{mutation.name}' is {found} times in '{mutation.module}', not once")
    return source.replace(mutation.original, mutation.planted)
