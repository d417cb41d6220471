"""Bugs planted into the sink, to show that the simulation would find them."""

from __future__ import annotations

from tests.simulation.mutations import Mutation

SINK_MUTATIONS = (
    Mutation(
        "two rows of a group in one call",
        "sink.sender",
        "                rows.append(self._waiting[self._ready.popleft()].popleft())\n",
        "                group = self._ready.popleft()\n"
        "                rows.append(self._waiting[group].popleft())\n"
        "                if self._waiting[group]:\n"
        "                    rows.append(self._waiting[group].popleft())\n",
    ),
    Mutation(
        "let a group go on before its row is confirmed",
        "sink.sender",
        "                    confirm = functools.partial(self._confirm, deadline + CONFIRM_BUDGET_S)\n",
        "                    def confirm(confirmed: list[Confirmed]) -> None:\n"
        "                        self.sent += len(confirmed)\n"
        "                        self._record.add((each.row.digest for each in confirmed), by=deadline + 75)\n"
        "                    self._release(missing)\n",
    ),
    Mutation(
        "let a group go on before its row is recorded",
        "sink.sender",
        "        self._record.add((row.digest for row in rows), by=deadline)\n",
        "        self._release(rows)\n        self._record.add((row.digest for row in rows), by=deadline)\n"
        "        return\n",
    ),
    Mutation(
        "record rows before they are sent",
        "sink.sender",
        "                if missing:\n",
        "                if missing:\n"
        "                    self._record.add((row.digest for row in missing), by=deadline)\n",
    ),
    Mutation(
        "end with calls under way",
        "sink.sender",
        "        self._wait_until(lambda: not self._waiting)\n",
        "        self._wait_until(lambda: not any(self._waiting.values()))\n",
    ),
    Mutation(
        "end without waiting for the threads",
        "sink.sender",
        "            thread.join()\n",
        "            pass\n",
    ),
    Mutation(
        "one row in a call",
        "sink.sender",
        "len(rows) < MAX_ENTRIES and",
        "len(rows) < 1 and",
    ),
    Mutation(
        "calls of any size",
        "sink.sender",
        "                if size > MAX_CALL_BYTES:\n",
        "                if False:\n",
    ),
    Mutation(
        "try a row for ten minutes",
        "sink.sender",
        "SEND_BUDGET_S = 100.0\n",
        "SEND_BUDGET_S = 600.0\n",
    ),
    Mutation(
        "count the time to try from the call, not from the look",
        "sink.sender",
        "                deadline = self._record.refresh() + SEND_BUDGET_S\n",
        "                self._record.refresh()\n"
        "                deadline = self._queue._clock.monotonic() + SEND_BUDGET_S\n",
    ),
    Mutation(
        "let the record take any time",
        "sink.record",
        "        if self._clock.monotonic() > by:\n",
        "        if False:\n",
    ),
    Mutation(
        "drop entries that failed",
        "sink.queue",
        "answer.get(\"Successful\") or () if entry.get(\"Id\") in tried}\n",
        "[{\"Id\": key} for key in tried]}\n",
    ),
    Mutation(
        "take for sent what is not in Failed",
        "sink.queue",
        "answer.get(\"Successful\") or () if entry.get(\"Id\") in tried}\n",
        "[{\"Id\": key} for key in tried.keys() - {each[\"Id\"] for each in answer[\"Failed\"]}]}\n",
    ),
    Mutation(
        "try again after the task has failed",
        "sink.queue",
        "            if stopped.is_set():\n",
        "            if False:\n",
    ),
    Mutation(
        "try again however long the process stood still",
        "sink.queue",
        "            if self._clock.monotonic() > deadline:\n",
        "            if False:\n",
    ),
    Mutation(
        "do not try again what may pass",
        "sink.queue",
        "budget_s=deadline - self._clock.monotonic())\n",
        "budget_s=0.0)\n",
    ),
    Mutation(
        "blame the first row for what SQS refuses",
        "sink.queue",
        "fault or RefusedRowError(row.row,",
        "fault or RefusedRowError(tried[\"0\"].row,",
    ),
    Mutation(
        "skip rows that SQS refuses",
        "sink.queue",
        "                    fault = fault or RefusedRowError(row.row, f\"SQS refuses it ({code})\")\n",
        "                    pending.remove(row)\n"
        "                    confirm([Confirmed(row, None, None)])\n"
        "                    continue\n",
    ),
    Mutation(
        "start without the record",
        "sink.record",
        "            are_there = [self._read(name) for",
        "            are_there = [True for",
    ),
    Mutation(
        "count the time to try from no look",
        "sink.record",
        "                if self._looked_at is not None and self._age(self._looked_at) <= oldest_s:\n"
        "                    return self._looked_at\n",
        "                if self._looked_at is not None and self._age(self._looked_at) <= oldest_s:\n"
        "                    return self._clock.monotonic()\n",
    ),
    Mutation(
        "look at the record only once",
        "sink.record",
        "                if self._looked_at is not None and self._age(self._looked_at) <= oldest_s:\n"
        "                    return self._looked_at\n",
        "                if self._looked_at is not None:\n"
        "                    return self._looked_at\n",
    ),
    Mutation(
        "read only one's own record",
        "sink.record",
        "        is_of_others = run_and_partition.startswith(f\"{self._run}-\") and run_and_partition != self._place\n",
        "        is_of_others = run_and_partition != self._place\n",
    ),
    Mutation(
        "go on though the record was not written",
        "sink.record",
        "        if put.error is not None:\n",
        "        if False:\n",
    ),
    Mutation(
        "do not wait for a put that others make",
        "sink.record",
        "            while self._is_putting and not put.is_done:\n                self._changed.wait()\n"
        "            is_ours = not put.is_done\n",
        "            is_ours = not self._is_putting\n",
    ),
    Mutation(
        "leave the parts of a record",
        "sink.record",
        "            self._store.delete([name for name, _ in parts if name != whole])\n",
        "",
    ),
    Mutation(
        "drop the parts of a record before the whole is put",
        "sink.record",
        "            whole = self._put(b\"\".join(",
        "            self._store.delete([name for name, _ in parts])\n"
        "            whole = self._put(b\"\".join(",
    ),
    Mutation(
        "ask what is forgotten before the record is read",
        "sink.record",
        "        for _ in range(2):\n"
        "            are_there =",
        "        self._require_remembered()\n"
        "        self._require_remembered = lambda: None\n"
        "        for _ in range(2):\n"
        "            are_there =",
    ),
    Mutation(
        "forget before the mark is put",
        "sink.record",
        "    # First the mark, so that nobody",
        "    store.delete([name for name in _objects(store, f\"sent/{query}\") if _number(name) <= over])\n"
        "    # First the mark, so that nobody",
    ),
    Mutation(
        "forget the micro-batch of now",
        "sink.record",
        "    _forget(store, query, batch - KEPT_BATCHES,",
        "    _forget(store, query, batch,",
    ),
    Mutation(
        "forget micro-batches without a mark",
        "sink.record",
        "        if int(self._batch.partition(\"-\")[0]) > over:\n",
        "        if self._query is not None or int(self._batch.partition(\"-\")[0]) > over:\n",
    ),
    Mutation(
        "forget batch writes without a mark",
        "sink.record",
        "        if int(self._batch.partition(\"-\")[0]) > over:\n",
        "        if self._query is None or int(self._batch.partition(\"-\")[0]) > over:\n",
    ),
    Mutation(
        "never forget",
        "sink.record",
        "if _number(name) <= over])\n",
        "if False])\n",
    ),
    Mutation(
        "forget all batch writes at once",
        "sink.record",
        "int(now * 1000) - KEPT_MS - 1",
        "int(now * 1000) + KEPT_MS",
    ),
    Mutation(
        "record rows by their number",
        "sink.message",
        "_digest(\"id\" if form.by_column else \"body\", group, key)",
        "_digest(\"id\", group, str(row))",
    ),
    Mutation(
        "record rows without their group",
        "sink.message",
        "    return hashlib.sha256(f\"{kind}\\n{group}\\n{key}\".encode()).digest()\n",
        "    return hashlib.sha256(key.encode()).digest()\n",
    ),
    Mutation(
        "skip rows that cannot be sent",
        "sink.message",
        "    text = _body(row, body)\n",
        "    text = _body(row, body or \"-\")\n",
    ),
    Mutation(
        "number the rows from 1 in each part",
        "sink.write",
        "                next_row += len(rows)\n",
        "                next_row = 1 + len(rows)\n",
    ),
    Mutation(
        "return before the rows are sent",
        "sink.write",
        "            sender.finish()\n",
        "            pass\n",
    ),
    Mutation(
        "do not say how many rows were sent",
        "sink.write",
        "        sent = f\"{sender.sent:,} rows",
        "        sent = f\"0 rows",
    ),
    Mutation(
        "tell the caller only of ordinary errors",
        "sink.sender",
        "        except BaseException as error:",
        "        except Exception as error:",
    ),
    Mutation(
        "tell who waits for a put only of ordinary errors",
        "sink.record",
        "            except BaseException as error:",
        "            except Exception as error:",
    ),
    Mutation(
        "let tasks raise what the driver met",
        "sink.write",
        "        if not _may_pass(error):\n            return error\n",
        "        return error\n",
    ),
    Mutation(
        "make each attempt a run of its own",
        "sink.write",
        "        run=given.run,\n",
        "        run=uuid.uuid4().hex,\n",
    ),
    Mutation(
        "fail a write that cannot tidy up",
        "sink.write",
        "    except BaseException as error:  # all rows are sent",
        "    except ZeroDivisionError as error:  # all rows are sent",
    ),
    Mutation(
        "fail a task that cannot tidy up",
        "sink.record",
        "        except BaseException as error:  # the rows are recorded",
        "        except ZeroDivisionError as error:  # the rows are recorded",
    ),
    Mutation(
        "fail a task that cannot tidy up, in other words",
        "sink.record",
        "            _log.warning(\n                \"%d objects below",
        "            raise JournalUnavailableError(f\"{len(parts)} objects could not be made one\") from error\n"
        "            _log.warning(\n                \"%d objects below",
    ),
    Mutation(
        "fail a task whose tidying panics",
        "sink.record",
        "        except BaseException as error:  # the rows are recorded",
        "        except Exception as error:  # the rows are recorded",
    ),
    Mutation(
        "look again until a look is quick",
        "sink.record",
        "            for _ in range(_MOST_LISTS):\n",
        "            while (is_second := False) is False:\n",
    ),
    Mutation(
        "list what was sent only once",
        "sink.record",
        "        for _ in range(2):\n",
        "        for _ in range(1):\n",
    ),
    Mutation(
        "count only equal rows of one group",
        "sink.sender",
        "        is_equal = message_id in self._told or message_id in self._told_before\n",
        "        is_equal = False\n",
    ),
    Mutation(
        "send however long it took to connect",
        "sink.queue",
        "self._call_once(deadline + CONNECT_TIMEOUT_S, entries)",
        "self._call_once(deadline + 1_000, entries)",
    ),
)  # fmt: skip
