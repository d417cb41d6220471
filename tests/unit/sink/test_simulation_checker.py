"""The laws by which the simulation judges the sink: that each can be broken, and is not where nothing is wrong."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Sequence

import pytest

from sqs_fifo_spark.errors import TransientQueueError
from sqs_fifo_spark.sink.digests import digest_of
from sqs_fifo_spark.sink.write import Draft, Place, Sent
from tests.simulation.hub import Hub, Process
from tests.simulation.sink_laws import SinkLaws
from tests.simulation.sink_rows import SinkRow
from tests.simulation.sink_tasks import SinkAttempt
from tests.simulation.sink_world import SinkWorld

pytestmark = pytest.mark.law("sink-1", "sink-2", "sink-3", "sink-4", "sink-5")

A1, A2, B1 = (SinkRow(name[0], name, f"body of {name}") for name in ("a1", "a2", "b1"))


class Story:
    """Attempts at one task, step by step."""

    def __init__(self, **options: str) -> None:
        self.hub = Hub(random.Random(1))
        self.world = SinkWorld(1, self.hub, {}, {"journalLocation": "/journal", **options})
        self.world.on_step = self.step
        self.laws = SinkLaws(self.world, self.hub, has_journal=True, is_calm=False)

    def step(self, event: str) -> None:
        self.laws.stepped()
        self.hub.step()

    def attempt(self, *rows: SinkRow, partition: int = 0) -> SinkAttempt:
        draft = Draft(self.world.sink_options, by_column=True, run="000000000000r", began_ms=0)
        attempt = SinkAttempt(draft, draft, Place(partition, "q1", 7), rows, version=0)
        attempt.digests = {row.key: digest(row) for row in rows}
        attempt.process = Process("task")
        self.laws.dealt([attempt])
        self.laws.launched(attempt)
        return attempt

    def play(self, attempt: SinkAttempt, *steps: Step) -> list[str]:
        """Let the attempt take these steps, and return which laws are broken by then."""
        thread = self.hub.spawn(attempt.process, lambda: self.take(attempt, *steps))
        self.hub.run(lambda: thread.is_done)
        assert thread.error is None
        return self.laws.violations

    def take(self, attempt: SinkAttempt, *steps: Step) -> None:
        for step in steps:
            step(self, attempt)

    def left_alive(self, *rows: SinkRow) -> SinkAttempt:
        """Return an attempt that has sent its first row, and lives on without recording it."""
        attempt = self.attempt(*rows)
        self.hub.spawn(attempt.process, lambda: self.take(attempt, look, send(rows[0]), sleep(10_000)))
        self.hub.run(lambda: bool(attempt.answered))
        return attempt


# Steps of an attempt

Step = Callable[[Story, SinkAttempt], object]


def look(story: Story, attempt: SinkAttempt) -> None:
    story.world.store.list(attempt.folder)


def doom(story: Story, attempt: SinkAttempt) -> None:
    """A call that it needs fails."""
    story.laws.doom()


def send(*rows: SinkRow) -> Step:
    def step(story: Story, attempt: SinkAttempt) -> None:
        entries = [
            {"Id": str(index), "MessageBody": row.body, "MessageGroupId": row.group, "MessageDeduplicationId": row.told}
            for index, row in enumerate(rows)
        ]
        story.world.client.send_message_batch(QueueUrl=story.world.url, Entries=entries)

    return step


def record(*rows: SinkRow) -> Step:
    data = b"".join(map(digest, rows))
    name = f"000000000000r-00000-0000-ffff-1-{hashlib.sha256(data).hexdigest()}"
    return lambda story, attempt: story.world.store.put_if_absent(f"{attempt.folder}/{name}", data)


def sleep(seconds: float) -> Step:
    return lambda story, attempt: story.hub.sleep(seconds)


def slow_to_connect(story: Story, attempt: SinkAttempt) -> None:
    story.world.connect = lambda: story.hub.sleep(106)


def wait_for_rows(seconds: float) -> Step:
    return lambda story, attempt: story.laws.upstream(seconds)


def end(rows: int, *threads: str, known: int = 0) -> Step:
    """It ends well."""

    def step(story: Story, attempt: SinkAttempt) -> None:
        attempt.sent = Sent(attempt.place, rows, known)
        story.laws.ended(attempt, list(threads))

    return step


def digest(row: SinkRow) -> bytes:
    return digest_of("id", *row.key)


DOUBLED = "once: ('a', 'a1') is doubled, and nobody who had sent it died, stood still, or could not record it"


@pytest.fixture
def story() -> Story:
    return Story()


@pytest.fixture
def attempt(story: Story) -> SinkAttempt:
    """One at a task of a single row."""
    return story.attempt(A1)


def test_rows_sent_and_recorded_in_order_break_no_law(story: Story) -> None:
    """A task as it should be."""
    steps = look, send(A1, B1), record(A1, B1), send(A2), record(A2), end(3)
    assert story.play(story.attempt(A1, B1, A2), *steps) == []


@pytest.mark.parametrize(
    ("sent", "broken"),
    [
        ([[A1, A2]], "order: two rows of a group in one call"),
        ([[A2]], "order: ('a', 'a2') is sent, and [('a', 'a1')] before it are not"),
        ([[A1], [A2]], "once: ('a', 'a2') is sent, and [('a', 'a1')] before it are not recorded"),
        ([[A1._replace(body="another")]], "content: ('a', 'a1') is not what the row says"),
        ([[A1]], "no loss: task ends well, and [('a', 'a2')] are neither sent nor kept"),
    ],
)
def test_what_a_task_sends_is_judged(story: Story, sent: list[list[SinkRow]], broken: str) -> None:
    """Order, content and loss are judged from the calls."""
    steps = look, *(send(*rows) for rows in sent), end(2, known=2 - sum(map(len, sent)))
    assert story.play(story.attempt(A1, A2), *steps)[0].startswith(broken)


@pytest.mark.parametrize(
    ("steps", "broken"),
    [
        ([look, sleep(101), send(A1)], "once: ('a', 'a1') is tried 101 s after the last look at the journal"),
        ([look, slow_to_connect, send(A1)], "once: a call of task leaves it 1 s too late"),
        ([look] * 41, "progress: task only looks at what was sent"),
        ([doom, wait_for_rows(1), sleep(1), wait_for_rows(1)], "end: task has failed, and asks for its next rows"),
        ([look, send(A1), record(A1), sleep(400), end(1, "task 3")], "end: task is over, and ['task 3'] are not"),
    ],
)
def test_who_takes_too_long_or_goes_on_breaks_a_law(
    story: Story, attempt: SinkAttempt, steps: Sequence[Step], broken: str
) -> None:
    """SQS may have forgotten what another attempt sent after the look; who has failed, or is done, is over."""
    assert story.play(attempt, *steps) == [broken]


def test_a_row_that_the_journal_had_breaks_a_law(story: Story) -> None:
    """Also while SQS would still recognise it."""
    first, second = story.attempt(A1), story.attempt(A1)
    story.play(first, look, send(A1), record(A1))
    assert story.play(second, look, send(A1)) == ["once: ('a', 'a1') is sent, and the journal had it"]


@pytest.mark.parametrize(
    ("fate", "is_excused"),
    [
        ("dies", True),
        ("cannot record", True),
        ("is held up", True),
        ("is not told", True),
        ("fails", False),
        ("stands still", True),
        ("pauses", False),
        ("", False),
    ],
)
def test_a_doubled_row_is_excused_by_who_could_not_go_on(story: Story, fate: str, is_excused: bool) -> None:
    """Sent, not recorded, and sent again after SQS's 5 minutes: whoever left that died, stood still, or could not tell.

    To have failed for something else is no excuse.
    """
    first = story.left_alive(A1)
    story.laws.paused(first.process, {"stands still": 60, "pauses": 59}.get(fate, 0))
    story.hub.advance(301)
    second = story.attempt(A1)
    if fate == "dies":
        story.hub.kill(first.process)
    elif fate not in ("", "stands still", "pauses"):
        first.error = TransientQueueError("no answer")
        if fate == "cannot record":
            first.could_not_record[digest(A1)] = [story.hub.now()]
            first.ended_at = story.hub.now()
        first.was_held_up = fate == "is held up"
        if fate == "is not told":
            first.confirmed.clear()
    assert story.play(second, look, send(A1)) == ([] if is_excused else [DOUBLED])
