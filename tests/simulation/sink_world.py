"""The world that outlives a sink's processes: the queue and the journal's store. Listeners hear of each effect."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from botocore.exceptions import ClientError

from sqs_fifo_spark.aws import client as aws
from sqs_fifo_spark.local import SqsError
from sqs_fifo_spark.options import parse_sink_options
from tests.manual_clock import ManualClock
from tests.simulation.sink_queues import in_queue
from tests.simulation.world import MemoryStore, World

Entry = Mapping[str, Any]


class Panic(BaseException):
    """A panic of native code. It is no Exception."""


class _Objects(dict[str, bytes]):
    """Tells of what is put, in the moment in which it is durable."""

    def __init__(self, on_put: Callable[[str, bytes], None]) -> None:
        super().__init__()
        self._on_put = on_put

    def setdefault(self, name: str, data: bytes = b"") -> bytes:
        kept = super().setdefault(name, data)
        self._on_put(name, kept)
        return kept


class SinkStore(MemoryStore):
    """A store that tells what it was asked, when it took effect."""

    def __init__(self, step: Callable[[str], None], clock: ManualClock) -> None:
        super().__init__(step, clock)
        self.on_put: Callable[[str, bytes], None] = lambda name, data: None
        self.on_put_begins: Callable[[bytes], None] = lambda data: None
        """Told of each put before its first try: the store may try it again."""
        self.on_put_ends: Callable[[], None] = lambda: None
        """Told of each put when its caller knows how it ended, or is dead."""
        self.on_list_asked: Callable[[str], None] = lambda prefix: None
        """Told of each list when it is asked for: it may begin much later."""
        self.on_list: Callable[[str], None] = lambda prefix: None
        """Told of each list when it begins: what is there by then, and stays, is shown."""
        self.is_in_pieces: Callable[[], bool] = lambda: False
        """Returns True if a list reads one half of the names a moment later, as large directories do."""
        self.objects = _Objects(lambda name, data: self.on_put(name, data))

    def list(self, prefix: str) -> list[str]:
        self.on_list_asked(prefix)
        self._before("list", prefix)
        self.on_list(prefix)
        halves: list[list[str]] = []
        for half in (0, 1):
            if half and self.is_in_pieces():
                self._step(f"within list {prefix}")
            halves.append([name for name in self.under(f"{prefix}/") if zlib.crc32(name.encode()) % 2 == half])
        return sorted(halves[0] + halves[1])

    def put_if_absent(self, name: str, data: bytes) -> bool:
        self.on_put_begins(data)
        try:
            return super().put_if_absent(name, data)
        finally:
            self.on_put_ends()


class SinkWorld(World):
    """One queue that is written, and the journal of what was sent."""

    def __init__(self, seed: int, clock: ManualClock, attributes: dict[str, str], given: dict[str, str]) -> None:
        """`given` are options of the sink, without the queue's URL."""
        super().__init__(seed, clock=clock, attributes=attributes)
        self.sink_options = parse_sink_options({"queueUrl": self.url, **given})
        self.store: SinkStore = SinkStore(self.step, clock)
        self.kept: SinkStore = SinkStore(self.step, clock)
        """The place that keeps refused rows."""
        self.unsaid: Callable[[], bool] = lambda: False
        """Returns True if an answer leaves out an entry."""
        self.throttles_entries: Callable[[], bool] = lambda: False
        """Returns True if the entries of a call that fail for now are throttled."""
        self.refuses_whole_calls: Callable[[], bool] = lambda: False
        """Returns True if SQS refuses the call for a poisonous entry, rather than the entry."""
        self.on_call: Callable[[Sequence[Entry]], None] = lambda entries: None
        self.connect: Callable[[], None] = lambda: None
        """Find and reach SQS, which may take its time."""
        self.on_bytes: Callable[[Sequence[Entry]], None] = lambda entries: None
        """Told when a call leaves its process."""
        self.on_accepted: Callable[[Entry, int, bool], None] = lambda entry, number, is_new: None
        """Told of each entry that the queue takes, of its message's sequence number, and whether that is a new one."""
        self.on_answer: Callable[[Sequence[Entry], Mapping[str, Any]], None] = lambda entries, answer: None
        """Told of each answer that the caller gets."""
        self.on_refusal: Callable[[str], None] = lambda code: None
        self.resolved: Callable[[Sequence[Entry]], Sequence[Entry]] = lambda entries: entries
        """Returns entries as a reader has them, where bodies are elsewhere."""
        self._message_ids: set[str] = set()

    def call_sqs(self, action: str, request: dict[str, Any]) -> dict[str, Any]:
        if action != "SendMessageBatch":
            return super().call_sqs(action, request)
        entries = self._by_queue(request)
        self.on_call(entries)
        self.connect()
        aws.require_in_time()
        self.on_bytes(self.resolved(entries))
        try:
            answer = super().call_sqs(action, request)
        except ClientError as error:
            self.on_refusal(error.response["Error"]["Code"])
            raise
        self.on_answer(self.resolved(entries), answer)
        return answer

    def _by_queue(self, request: Mapping[str, Any]) -> list[Entry]:
        """Return the entries; those for another queue than the option's have it before their groups."""
        url, entries = request["QueueUrl"], request["Entries"]
        if url == self.url:
            return list(entries)
        name = url.rpartition("/")[2]
        return [{**each, "MessageGroupId": in_queue(name, each["MessageGroupId"])} for each in entries]

    def _call_model(self, action: str, request: dict[str, Any]) -> dict[str, Any]:
        if action != "SendMessageBatch":
            return super()._call_model(action, request)
        entries = {entry["Id"]: entry for entry in self.resolved(self._by_queue(request))}
        poisonous = [entry for entry in entries.values() if entry["MessageBody"].startswith("poison")]
        if poisonous and self.refuses_whole_calls():
            raise SqsError("InvalidMessageContents", "")
        refused = {entry["Id"] for entry in poisonous}
        others = [entry for entry in request["Entries"] if entry["Id"] not in refused]
        answer = super()._call_model(action, {**request, "Entries": others}) if others else {}
        successful, failed = answer.get("Successful", []), answer.get("Failed", [])
        for each in successful:
            is_new = each["MessageId"] not in self._message_ids
            self._message_ids.add(each["MessageId"])
            self.on_accepted(entries[each["Id"]], int(each["SequenceNumber"]), is_new)
        wrong = {"Code": "InvalidMessageContents", "Message": "", "SenderFault": True}
        return self._as_told(successful, failed, [{"Id": entry["Id"], **wrong} for entry in poisonous])

    def _as_told(
        self, successful: list[dict[str, Any]], failed: list[dict[str, Any]], refused: Sequence[dict[str, Any]] = ()
    ) -> dict[str, Any]:
        """Return the answer that the caller gets."""
        if failed and self.throttles_entries():
            failed = [{**each, "Code": "RequestThrottled"} for each in failed]
        return {
            "Successful": [each for each in successful if not self.unsaid()],
            "Failed": [each for each in (*failed, *refused) if each["SenderFault"] or not self.unsaid()],
        }
