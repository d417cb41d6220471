"""Bugs planted into the sink, to show that the simulation would find them."""

from __future__ import annotations

from tests.simulation.mutations import Mutation

SINK_MUTATIONS = (
    Mutation(
        "two rows of a group in one call",
        "sender",
        "                rows.append(self._waiting[self._ready.popleft()].popleft())\n",
        "                group = self._ready.popleft()\n"
        "                rows.append(self._waiting[group].popleft())\n"
        "                if self._waiting[group]:\n"
        "                    rows.append(self._waiting[group].popleft())\n",
    ),
    Mutation(
        "let a group go on before its row is confirmed",
        "sender",
        "                    confirm = functools.partial(self._confirm, deadline + CONFIRM_BUDGET_S)\n",
        "                    def confirm(confirmed: list[Confirmed]) -> None:\n"
        "                        self.sent += len(confirmed)\n"
        "                        self._record.add(each.row.digest for each in confirmed)\n"
        "                    self._release(missing)\n",
    ),
    Mutation(
        "let a group go on before its row is recorded",
        "sender",
        "        self._record.add(row.digest for row in rows)\n        if self._clock.monotonic() > deadline:\n",
        "        self._release(rows)\n        self._record.add(row.digest for row in rows)\n        return\n"
        "        if self._clock.monotonic() > deadline:\n",
    ),
    Mutation(
        "record rows before they are sent",
        "sender",
        "                if missing:\n",
        "                if missing:\n                    self._record.add(row.digest for row in missing)\n",
    ),
    Mutation(
        "end with calls under way",
        "sender",
        "        self._wait_until(lambda: not self._waiting)\n",
        "        self._wait_until(lambda: not any(self._waiting.values()))\n",
    ),
    Mutation(
        "end without waiting for the threads",
        "sender",
        "            thread.join()\n",
        "            pass\n",
    ),
    Mutation(
        "one row in a call",
        "sender",
        "len(rows) < MAX_ENTRIES and",
        "len(rows) < 1 and",
    ),
    Mutation(
        "calls of any size",
        "sender",
        "                if size > MAX_CALL_BYTES:\n",
        "                if False:\n",
    ),
    Mutation(
        "try a row for ten minutes",
        "sender",
        "SEND_BUDGET_S = 100.0\n",
        "SEND_BUDGET_S = 600.0\n",
    ),
    Mutation(
        "count the time to try from the call, not from the look",
        "sender",
        "                deadline = self._record.look() + SEND_BUDGET_S\n",
        "                self._record.look()\n"
        "                deadline = self._queue._clock.monotonic() + SEND_BUDGET_S\n",
    ),
    Mutation(
        "let the record take any time",
        "sender",
        "        if self._clock.monotonic() > deadline:\n",
        "        if False:\n",
    ),
    Mutation(
        "drop entries that failed",
        "sink_queue",
        "answer.get(\"Successful\") or () if told.get(\"Id\") in tried}\n",
        "[{\"Id\": key} for key in tried]}\n",
    ),
    Mutation(
        "take for sent what is not in Failed",
        "sink_queue",
        "answer.get(\"Successful\") or () if told.get(\"Id\") in tried}\n",
        "[{\"Id\": key} for key in tried.keys() - {each[\"Id\"] for each in answer[\"Failed\"]}]}\n",
    ),
    Mutation(
        "try again after the task has failed",
        "sink_queue",
        "            if stopped.is_set():\n",
        "            if False:\n",
    ),
    Mutation(
        "try again however long the process stood still",
        "sink_queue",
        "            if self._clock.monotonic() > deadline:\n",
        "            if False:\n",
    ),
    Mutation(
        "blame the first row for what SQS refuses",
        "sink_queue",
        "fault or RefusedRow(row.row,",
        "fault or RefusedRow(tried[\"0\"].row,",
    ),
    Mutation(
        "skip rows that SQS refuses",
        "sink_queue",
        "                    fault = fault or RefusedRow(row.row, f\"SQS refuses it ({code})\")\n",
        "                    pending.remove(row)\n"
        "                    confirm([Confirmed(row, None)])\n"
        "                    continue\n",
    ),
    Mutation(
        "start without the record",
        "sent_record",
        "                if not all(self._read(name) for name in _objects(self._store, self._folder)):\n",
        "                if not all(True for name in _objects(self._store, self._folder)):\n",
    ),
    Mutation(
        "count the time to try from no look",
        "sent_record",
        "            return self._looked_at\n",
        "            return self._clock.monotonic()\n",
    ),
    Mutation(
        "look at the record only once",
        "sent_record",
        "            while self._looked_at is None or self._clock.monotonic() - self._looked_at > LOOK_AGAIN_S:\n",
        "            while self._looked_at is None:\n",
    ),
    Mutation(
        "read only one's own record",
        "sent_record",
        "        is_of_others = run_and_partition.startswith(f\"{self._run}-\") and run_and_partition != self._place\n",
        "        is_of_others = run_and_partition != self._place\n",
    ),
    Mutation(
        "take an object that is gone for read",
        "sent_record",
        "        if data is None:\n            return False\n",
        "        if data is None:\n            return True\n",
    ),
    Mutation(
        "go on though the record was not written",
        "sent_record",
        "        if put.error is not None:\n",
        "        if False:\n",
    ),
    Mutation(
        "do not wait for a put that others make",
        "sent_record",
        "            while self._is_putting and not put.is_done:\n                self._changed.wait()\n"
        "            is_ours = not put.is_done\n",
        "            is_ours = not self._is_putting\n",
    ),
    Mutation(
        "leave the parts of a record",
        "sent_record",
        "        self._store.delete([name for name, _ in self._parts if name != whole])\n",
        "",
    ),
    Mutation(
        "drop the parts of a record before the whole is put",
        "sent_record",
        "        whole = self._put(b\"\".join(",
        "        self._store.delete([name for name, _ in self._parts])\n        whole = self._put(b\"\".join(",
    ),
    Mutation(
        "ask what is forgotten before the record is read",
        "sent_record",
        "                if not all(self._read(name) for name in _objects(self._store, self._folder)):\n",
        "                self._require_remembered()\n                self._require_remembered = lambda: None\n"
        "                if not all(self._read(name) for name in _objects(self._store, self._folder)):\n",
    ),
    Mutation(
        "forget before the mark is put",
        "sent_record",
        "    # First the mark, so that nobody",
        "    store.delete([name for name in _objects(store, f\"sent/{query}\") if _number(name) <= over])\n"
        "    # First the mark, so that nobody",
    ),
    Mutation(
        "forget the micro-batch of now",
        "sent_record",
        "    over = batch - KEPT_BATCHES\n",
        "    over = batch\n",
    ),
    Mutation(
        "forget without a mark",
        "sent_record",
        "        if int(self._batch) <= over:\n",
        "        if False:\n",
    ),
    Mutation(
        "never forget",
        "sent_record",
        "if _number(name) <= over])\n    store.delete(marks)",
        "if False])\n    store.delete(marks)",
    ),
    Mutation(
        "forget all batch writes at once",
        "sent_record",
        "    since_ms = int(now * 1000) - KEPT_MS\n",
        "    since_ms = int(now * 1000) + KEPT_MS\n",
    ),
    Mutation(
        "record rows by their number",
        "outgoing",
        "_digest(\"id\" if form.by_column else \"body\", group, told)",
        "_digest(\"id\", group, str(row))",
    ),
    Mutation(
        "record rows without their group",
        "outgoing",
        "    return hashlib.sha256(f\"{kind}\\n{group}\\n{told}\".encode()).digest()\n",
        "    return hashlib.sha256(told.encode()).digest()\n",
    ),
    Mutation(
        "skip rows that cannot be sent",
        "outgoing",
        "    text = _body(row, body)\n",
        "    text = _body(row, body or \"-\")\n",
    ),
    Mutation(
        "number the rows from 1 in each part",
        "sink",
        "                next_row += len(rows)\n",
        "                next_row = 1 + len(rows)\n",
    ),
    Mutation(
        "return before the rows are sent",
        "sink",
        "            sender.finish()\n",
        "            pass\n",
    ),
    Mutation(
        "do not say how many rows were sent",
        "sink",
        "        sent = f\"{sender.sent:,} rows",
        "        sent = f\"0 rows",
    ),
)  # fmt: skip
