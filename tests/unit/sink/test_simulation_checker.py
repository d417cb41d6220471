"""The laws by which the simulation judges the sink: that each can be broken, and is not where nothing is wrong."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Sequence
from contextlib import suppress

import pytest
from botocore.exceptions import ReadTimeoutError

from sqs_fifo_spark.errors import DisorderError, JournalUnavailableError, PayloadError, TransientQueueError
from sqs_fifo_spark.sink.digests import digest_of
from sqs_fifo_spark.sink.progress import RowCounts
from sqs_fifo_spark.sink.recorder import DISORDER
from sqs_fifo_spark.sink.summary import Hashes, Overlap, Summary
from sqs_fifo_spark.sink.write import Draft, Place, Sent
from tests.simulation.hub import Hub, Process
from tests.simulation.sink_laws import SinkLaws
from tests.simulation.sink_rows import SinkRow
from tests.simulation.sink_tasks import SinkAttempt
from tests.simulation.sink_world import SinkWorld

pytestmark = pytest.mark.law("sink-1", "sink-2", "sink-3", "sink-4", "sink-5")

A1, A2, A3, B1 = (SinkRow(name[0], name, f"body of {name}") for name in ("a1", "a2", "a3", "b1"))


class Story:
    """Attempts at one task, step by step."""

    def __init__(self, *, has_journal: bool = True, **options: str) -> None:
        self.hub = Hub(random.Random(1))
        self.world = SinkWorld(1, self.hub, {}, {"journalLocation": "/journal", **options} if has_journal else options)
        self.world.on_step = self.step
        self.laws = SinkLaws(self.world, self.hub, has_journal=has_journal, is_calm=False)

    def step(self, event: str) -> None:
        self.laws.stepped()
        self.hub.step()

    def attempt(self, *rows: SinkRow, partition: int = 0, batch: int = 7, version: int = 0) -> SinkAttempt:
        draft = Draft(self.world.sink_options, by_column=True, run="000000000000r", began_ms=0)
        attempt = SinkAttempt(draft, draft, Place(partition, "q1", batch), rows, version)
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

    def put(self, attempt: SinkAttempt, data: bytes, place: str = "r-00000") -> None:
        name = f"000000000000{place}-0000-ffff-1-{hashlib.sha256(data).hexdigest()}"
        self.world.store.put_if_absent(f"{attempt.folder}/{name}", data)


# Steps of an attempt

Step = Callable[[Story, SinkAttempt], object]


def look(story: Story, attempt: SinkAttempt) -> None:
    story.world.store.list(attempt.folder)


def doom(story: Story, attempt: SinkAttempt) -> None:
    """A call that it needs fails."""
    story.laws.doom()


def pause(story: Story, attempt: SinkAttempt) -> None:
    story.laws.pauses()


def send(*rows: SinkRow) -> Step:
    def step(story: Story, attempt: SinkAttempt) -> None:
        entries = [
            {"Id": str(index), "MessageBody": row.body, "MessageGroupId": row.group, "MessageDeduplicationId": row.told}
            for index, row in enumerate(rows)
        ]
        story.world.client.send_message_batch(QueueUrl=story.world.url, Entries=entries)

    return step


def send_failing_first(*rows: SinkRow) -> Step:
    """SQS fails the first one, and takes the others."""

    def step(story: Story, attempt: SinkAttempt) -> None:
        story.world.failing_entries = lambda action: frozenset([0])
        send(*rows)(story, attempt)
        story.world.failing_entries = lambda action: frozenset()

    return step


def let_send(other: SinkAttempt, *rows: SinkRow) -> Step:
    """Another attempt sends the rows meanwhile."""

    def step(story: Story, attempt: SinkAttempt) -> None:
        sending = story.hub.spawn(other.process, lambda: story.take(other, send(*rows)))
        story.hub.wait_until(lambda: sending.is_done)

    return step


def record(*rows: SinkRow) -> Step:
    return put(b"".join(map(digest, rows)))


def put(data: bytes, place: str = "r-00000") -> Step:
    return lambda story, attempt: story.put(attempt, data, place)


def keep(row: SinkRow, copy: int) -> Step:
    """It refuses the row, which is this one of equal ones, and keeps it elsewhere."""

    def step(story: Story, attempt: SinkAttempt) -> None:
        columns = {"messageGroupId": row.group, "body": row.body, "messageDeduplicationId": row.told}
        line = {"run": attempt.draft.run, "partition": attempt.place.partition, "copy": copy, "row": columns}
        name = f"{attempt.folder.removeprefix('sent/')}/{row.told}-{copy}.json"
        story.world.kept.put_if_absent(name, json.dumps(line).encode())

    return step


def look_for_kept(story: Story, attempt: SinkAttempt) -> None:
    story.world.kept.list(attempt.folder.removeprefix("sent/"))


def cannot_record(row: SinkRow) -> Step:
    def step(story: Story, attempt: SinkAttempt) -> None:
        story.world.store.on_put_begins(digest(row))
        story.laws.could_not_put()

    return step


def sleep(seconds: float) -> Step:
    return lambda story, attempt: story.hub.sleep(seconds)


def wait_for_calls(seconds: float) -> Step:
    return lambda story, attempt: story.laws.takes(seconds)


def wait_for_rows(seconds: float) -> Step:
    return lambda story, attempt: story.laws.upstream(seconds)


def fail(error: Exception | str, *threads: str) -> Step:
    """It ends with this, and leaves threads behind."""

    def step(story: Story, attempt: SinkAttempt) -> None:
        attempt.error = TransientQueueError(error) if isinstance(error, str) else error
        story.laws.ended(attempt, list(threads))

    return step


def end(rows: int, *threads: str, known: int = 0, equal: int = 0) -> Step:
    """It ends well."""

    def step(story: Story, attempt: SinkAttempt) -> None:
        attempt.sent = Sent(attempt.place, rows, RowCounts(known=known, equal=equal))
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


def test_a_row_sent_too_late_after_the_look_breaks_a_law(story: Story, attempt: SinkAttempt) -> None:
    """SQS may have forgotten the row that another attempt sent after the look."""
    broken = "once: ('a', 'a1') is tried 101 s after the last look at the journal"
    assert story.play(attempt, look, sleep(101), send(A1)) == [broken]


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


@pytest.mark.parametrize(
    ("failed_s_before", "kept_s", "is_waiting", "is_excused"),
    [(5, 0, True, True), (13, 0, True, True), (14, 0, True, False), (14, 5, True, True), (5, 0, False, False)],
)
def test_who_waits_for_its_rows_goes_on_recording(
    story: Story, failed_s_before: float, kept_s: float, is_waiting: bool, is_excused: bool
) -> None:
    """It cannot fail yet; but until another attempt looked it has tried to record its row again, every 10 s."""
    first = story.left_alive(A1)
    if is_waiting:
        story.laws.waits.upstream[first.process] = [(story.hub.now(), story.hub.now() + 400)]
    story.hub.advance(301)
    first.could_not_record[digest(A1)] = [story.hub.now() - failed_s_before]
    story.laws.waits.calls[first.process] = [(story.hub.now() - kept_s, story.hub.now())]
    assert story.play(story.attempt(A1), look, send(A1)) == ([] if is_excused else [DOUBLED])


@pytest.mark.parametrize(("on_the_wire_s", "is_broken"), [(330, False), (12, True), (0, True)])
def test_no_call_leaves_when_an_earlier_row_of_its_group_may_be_doubled(on_the_wire_s: float, is_broken: bool) -> None:
    """A call that left long before stands right behind the copy, and nothing stops it; one that takes no longer than
    others was made too late."""
    story = Story(maxUnrecordedRows="2")
    first, second = story.attempt(A1, A2), story.attempt(A1, A2)
    is_waiting = is_doubled = False

    def wait() -> None:
        nonlocal is_waiting
        is_waiting = True
        story.hub.wait_until(lambda: is_doubled)

    def run() -> None:
        story.take(first, look, send(A1), sleep(330 - on_the_wire_s))
        if on_the_wire_s:
            story.world.on_step = lambda event: wait() if event == "before SendMessageBatch" else story.step(event)
        else:
            wait()
        story.take(first, send(A2))

    sending = story.hub.spawn(first.process, run)
    story.hub.run(lambda: is_waiting)
    story.world.on_step = story.step
    story.hub.advance(on_the_wire_s)
    story.play(second, look, send(A1))
    is_doubled = True
    story.hub.run(lambda: sending.is_done)
    told = [law for law in story.laws.violations if "meanwhile" in law]
    broken = "once: ('a', 'a2') is sent, and ('a', 'a1') before it was doubled meanwhile"
    assert told == ([broken] if is_broken else [])


@pytest.mark.parametrize("is_between", [True, False])
def test_a_copy_stands_right_behind_its_original(is_between: bool) -> None:
    """A row that had overtaken both is told of otherwise."""
    story = Story(order="batch")
    first, second, third = (story.attempt(A1, A2) for _ in range(3))
    if is_between:
        story.play(second, look, send(A1), send(A2), record(A2))
    else:
        story.play(first, look, send_failing_first(A1, A2), record(A2))
        story.play(second, look, send(A1))
    story.hub.advance(330)
    told = [law for law in story.play(third, look, send(A1)) if "between the two" in law]
    rows = [("a", "a2")]
    broken = f"once: ('a', 'a1') is doubled, and {rows} stand between the two, {rows} of them recorded"
    assert told == ([broken] if is_between else [])


@pytest.mark.parametrize("is_made_anew", [True, False])
@pytest.mark.parametrize(
    ("is_sent_by_another_batch", "is_broken"), [("before it", False), ("behind it", True), ("never", True)]
)
def test_a_row_has_overtaken_only_what_stands_behind_it(
    is_sent_by_another_batch: str, is_broken: bool, is_made_anew: bool
) -> None:
    """An equal row of another batch may stand before it, and another attempt makes a message of its own later."""
    story = Story(has_journal=False, order="batch")
    before, attempt, after = story.attempt(A1, batch=6), story.attempt(A1, A2), story.attempt(A1, A2)
    earlier = [let_send(before, A1)] if is_sent_by_another_batch == "before it" else []
    meanwhile = [let_send(before, A1)] if is_sent_by_another_batch == "behind it" else []
    later = [sleep(330), let_send(after, A1)] if is_made_anew else []
    steps = *earlier, send_failing_first(A1, A2), *meanwhile, send(A1), *later, end(2)
    told = [law for law in story.play(attempt, *steps) if "have overtaken others" in law]
    assert len(told) == is_broken


@pytest.mark.parametrize("by", ["nobody", "itself", "another attempt", "another batch"])
def test_a_third_row_hides_nothing_that_its_equal_has_overtaken(by: str) -> None:
    """It comes after both are confirmed, and may become a message far behind them."""
    story = Story(has_journal=False, order="batch")
    attempt = story.attempt(A1, A2, A2)

    def begin_another(story: Story, attempt: SinkAttempt) -> None:
        other = story.attempt(A1, A2) if by == "another attempt" else story.attempt(A2, batch=8)
        let_send(other, A2)(story, attempt)

    later = {"nobody": [], "itself": [sleep(330)]}.get(by, [sleep(330), begin_another])
    steps = send_failing_first(A1, A2), send(A1), *later, send(A2), end(3, equal=by != "itself")
    assert [law for law in story.play(attempt, *steps) if "have overtaken others" in law] == story.laws.violations
    assert len(story.laws.violations) == 1


@pytest.mark.parametrize("by", ["itself", "another batch"])
def test_a_third_row_leaves_its_equal_where_it_stands(by: str) -> None:
    """That is another batch's message, before what has not overtaken it."""
    story = Story(has_journal=False, order="batch")
    before, attempt, after = story.attempt(A1, batch=6), story.attempt(A1, A2, A1), story.attempt(A1, batch=8)
    story.play(before, send(A1))
    later = [let_send(after, A1)] if by == "another batch" else []
    steps = send_failing_first(A1, A2), send(A1), sleep(330), *later, send(A1)
    assert story.play(attempt, *steps, end(3, equal=1 + (by == "another batch"))) == []


def test_a_row_stands_where_its_answer_says(story: Story) -> None:
    """The call before it had no answer: it found another batch's message, which was forgotten when it came again."""
    story = Story(has_journal=False, order="batch")
    before, attempt = story.attempt(A1, batch=6), story.attempt(A1, A2)
    story.play(before, send(A1))
    story.hub.advance(250)

    def send_unanswered(story: Story, attempt: SinkAttempt) -> None:
        story.world.unsaid = lambda: True
        send(A1)(story, attempt)
        story.world.unsaid = lambda: False

    told = story.play(attempt, send_failing_first(A1, A2), send_unanswered, sleep(60), send(A1), end(2))
    assert len([law for law in told if "have overtaken others" in law]) == 1


@pytest.mark.parametrize("is_in_its_call", [True, False])
def test_a_copy_may_stand_behind_what_overtook_it_in_a_later_call(is_in_its_call: bool) -> None:
    """SQS failed the row, which an earlier attempt had sent, and took those behind it; but not what came alone."""
    story = Story(order="batch")
    first, second, third = (story.attempt(A1, A2) for _ in range(3))
    story.play(first, look, send(A1))
    story.hub.advance(330)
    story.play(second, look, send_failing_first(A1, A2) if is_in_its_call else send(A2), record(A2))
    told = [law for law in story.play(third, look, send(A1)) if "between the two" in law]
    assert len(told) == (not is_in_its_call)


@pytest.mark.parametrize(
    ("recorded_by", "is_broken"),
    [
        ("nobody", True),
        ("another task of the run", True),
        ("an earlier run", False),
        ("an earlier run after the last look", True),
        ("a put under way", False),
        ("a put of a row under way", True),
        ("a put of another process", True),
    ],
)
def test_who_fails_for_disorder_has_recorded_it(recorded_by: str, is_broken: bool) -> None:
    """Or its last look has found it, so that the next attempt will; what another task of its run has put, it skips."""
    story = Story(order="batch", onDisorder="fail")
    attempt = story.attempt(A1, A2)
    of_earlier_run = put(DISORDER, "q-00000")

    def is_putting(process: Process, data: bytes) -> Step:
        def step(story: Story, attempt: SinkAttempt) -> None:
            story.world.on_step = lambda event: story.hub.sleep(1_000)
            story.hub.spawn(process, lambda: story.put(attempt, data), "putting")
            story.hub.wait_until(lambda: bool(story.laws._are_putting))

        return step

    def be_shaken(story: Story, attempt: SinkAttempt) -> None:
        attempt.is_shaken = True

    puts: dict[str, tuple[list[Step], list[Step]]] = {
        "nobody": ([], []),
        "another task of the run": ([put(DISORDER, "r-00001")], []),
        "an earlier run": ([of_earlier_run], []),
        "an earlier run after the last look": ([], [of_earlier_run]),
        "a put under way": ([], [is_putting(attempt.process, DISORDER)]),
        "a put of a row under way": ([], [is_putting(attempt.process, digest(A1))]),
        "a put of another process": ([], [is_putting(Process("another"), DISORDER)]),
    }
    before, after = puts[recorded_by]
    ends = fail(DisorderError("rows are out of order"))
    violations = story.play(attempt, *before, look, send(A1), *after, be_shaken, ends)
    assert len([law for law in violations if "has not recorded that it is out of order" in law]) == is_broken


@pytest.mark.parametrize("then", ["is sent", "is given up"])
@pytest.mark.parametrize("is_recorded", [True, False])
def test_who_knows_that_a_row_was_overtaken_records_it(then: str, is_recorded: bool) -> None:
    """Be it that it has sent the row after all, or that it fails before."""
    story = Story(order="batch")
    more: Sequence[Step] = [*[send(A1)] * (then == "is sent"), *[put(DISORDER)] * is_recorded]
    steps = look, send_failing_first(A1, A2), *more, fail("InternalError")
    violations = story.play(story.attempt(A1, A2), *steps)
    assert len([law for law in violations if "has not recorded that it is out of order" in law]) == (not is_recorded)


def test_a_put_of_another_row_that_failed_excuses_nothing(story: Story) -> None:
    first = story.left_alive(A1, B1)
    first.error = JournalUnavailableError("the put failed")
    first.could_not_record[digest(B1)] = [story.hub.now()]
    first.ended_at = story.hub.now()
    story.hub.advance(301)
    assert len(story.play(story.attempt(A1, B1), look, send(A1))) == 1


@pytest.mark.parametrize(("tries_on", "is_broken"), [(True, False), (False, True)])
def test_what_could_not_be_recorded_is_tried_until_the_task_ends(
    story: Story, attempt: SinkAttempt, tries_on: bool, is_broken: bool
) -> None:
    def forget_last(story: Story, attempt: SinkAttempt) -> None:
        attempt.could_not_record[digest(A1)].pop()

    tries = [step for wait_s in ((10, 10) if tries_on else (20, 0)) for step in (cannot_record(A1), sleep(wait_s))]
    last = cannot_record(A1) if tries_on else forget_last
    ends = fail(JournalUnavailableError("cannot write. 1 rows of partition 0 were sent."))
    violations = story.play(attempt, look, send(A1), *tries, doom, last, ends)
    broken = "once: task fails, and has not tried to the end to record ('a', 'a1')"
    assert [law for law in violations if law.startswith("once")] == ([broken] if is_broken else [])


def test_a_put_that_is_tried_again_is_no_tidying(story: Story, attempt: SinkAttempt) -> None:
    """The answer to the first one was lost: the journal has it, but its task does not know."""

    def run(story: Story, attempt: SinkAttempt) -> None:
        assert story.laws.is_tidying() is False
        story.laws.could_not_put()
        story.world.store.on_put_begins(digest(A1))
        assert story.laws.is_tidying() is False

    story.play(attempt, look, send(A1), record(A1), run)


def test_who_has_failed_asks_for_no_more_rows(story: Story, attempt: SinkAttempt) -> None:
    broken = "end: task has failed, and asks for its next rows"
    assert story.play(attempt, doom, wait_for_rows(1), sleep(1), wait_for_rows(1)) == [broken]


@pytest.mark.parametrize(
    ("began_at", "calls_take_s", "fails", "rows_take_s", "is_excused"),
    [
        (0, 0, 0, 0, False),
        (290, 0, 0, 0, False),
        (298, 0, 0, 0, True),
        (290, 8, 0, 0, True),
        (290, 0, 1, 0, True),
        (270, 0, 1, 0, False),
        (100, 0, 0, 200, True),
        (100, 0, 0, 190, False),
    ],
)
def test_who_begins_in_time_doubles_nothing_unless_something_keeps_it(
    story: Story, began_at: float, calls_take_s: float, fails: int, rows_take_s: float, is_excused: bool
) -> None:
    """The attempt before has died: the next one is not to dawdle until SQS has forgotten the row."""
    story.play(story.attempt(A1), look, send(A1))
    story.hub.advance(began_at)
    keeps = wait_for_calls(calls_take_s), *[pause] * fails, wait_for_rows(rows_take_s)
    violations = story.play(story.attempt(A1), *keeps, sleep(301 - began_at), look, send(A1))
    assert [law for law in violations if "is doubled by" in law] == violations
    assert bool(violations) != is_excused


NOT_HELD_UP = ["end: task is over, and ['task 3'] are not", "progress: nothing holds task up for long: it is held up"]
HELD_UP = "it is held up. 1 rows of partition 0 were sent."


def reasons(violations: list[str]) -> list[str]:
    return [law.partition(". 1 rows")[0] for law in violations]


@pytest.mark.parametrize(("failed_s", "broken"), [(8, []), (20, NOT_HELD_UP)])
def test_a_record_that_is_about_to_be_tried_again_is_late_too(
    story: Story, attempt: SinkAttempt, failed_s: float, broken: list[str]
) -> None:
    """At the limit no put is under way, but the last one has just failed; whatever hangs then may be left."""
    waits = sleep(175 - failed_s), pause, sleep(failed_s + 1)
    assert reasons(story.play(attempt, look, send(A1), *waits, fail(HELD_UP, "task 3"))) == broken


@pytest.mark.parametrize(
    ("lives_s", "takes_s", "broken"),
    [
        (174, 400, NOT_HELD_UP),
        (177, 400, []),
        (177, 30, NOT_HELD_UP),
        (179, 400, ["once: task goes on for 179 s after it tried ('a', 'a1')"]),
    ],
)
@pytest.mark.parametrize("is_answered", [True, False])
def test_what_is_held_up_fails_its_task_after_175_s(
    story: Story, attempt: SinkAttempt, lives_s: float, takes_s: float, is_answered: bool, broken: list[str]
) -> None:
    """Not earlier, nor much later; its threads may be left then, and only then, and if they wait for somebody else."""

    def send_or_lose(story: Story, attempt: SinkAttempt) -> None:
        with suppress(ReadTimeoutError):
            story.take(attempt, send(A1))

    if not is_answered:
        story.world.fault = lambda action: "lost"
    ends = fail(HELD_UP if is_answered else "it is held up", "task 3")
    assert reasons(story.play(attempt, look, send_or_lose, wait_for_calls(takes_s), sleep(lives_s), ends)) == broken


@pytest.mark.parametrize("goes_to_s3", [True, False])
def test_a_write_to_s3_excuses_no_other_thread(story: Story, attempt: SinkAttempt, goes_to_s3: bool) -> None:
    """A look at the journal that takes long does: whoever fails meanwhile waits for it no longer than for a call."""

    def wait(story: Story, attempt: SinkAttempt) -> None:
        if goes_to_s3:
            story.laws.writes(400)
        else:
            story.laws.takes(400, is_look=True)

    attempt.could_not_write = True
    error = PayloadError("S3 gives no answer. 1 rows of partition 0 were sent.")
    violations = story.play(attempt, look, send(A1), wait, sleep(177), fail(error, "task 3"))
    assert violations == (["end: task is over, and ['task 3'] are not"] if goes_to_s3 else [])


@pytest.mark.parametrize(
    ("recorded", "put_fails", "threads", "broken"),
    [
        (True, False, [], []),
        (False, False, [], ["once: task fails, and [('a', 'a1')] are sent and not recorded"]),
        (False, True, [], []),
        (False, False, ["task 3"], []),
    ],
)
def test_what_a_failed_task_was_told_is_sent_must_be_recorded(
    story: Story, attempt: SinkAttempt, recorded: bool, put_fails: bool, threads: list[str], broken: list[str]
) -> None:
    """Unless the journal failed or held it up: else the next attempt would double it for nothing."""
    puts: Sequence[Step] = [*[record(A1)] * recorded, *[cannot_record(A1)] * put_fails]
    steps = look, send(A1), *puts, wait_for_calls(400), sleep(176), fail(HELD_UP, *threads)
    assert story.play(attempt, *steps) == broken


def test_a_task_that_ends_well_leaves_no_thread(story: Story, attempt: SinkAttempt) -> None:
    """However long it took."""
    steps = look, send(A1), record(A1), sleep(400), end(1, "task 3")
    assert story.play(attempt, *steps) == ["end: task is over, and ['task 3'] are not"]


def test_a_failed_task_must_tell_how_many_rows_were_sent(story: Story) -> None:
    """The number in the error is compared with the answers that the task had."""

    def be_over(story: Story, attempt: SinkAttempt) -> None:
        attempt.is_over = True

    said = "no answer. 0 rows of partition 0 were sent."
    assert story.play(story.attempt(A1, A2), look, send(A1), be_over, fail(said, "task 3"), send(A1)) == [
        "end: task is over, and ['task 3'] are not",
        f"spoken errors: 1 rows were sent, and task says: {said}",
        f"progress: task fails, and was throttled at most: {said}",
        f"progress: task tries for 0 s: {said}",
        "once: ('a', 'a1') is sent, and so was an equal row of the same attempt",
        "end: task is over, and sends [('a', 'a1')]",
        "end: task is over, and a call leaves it",
    ]


@pytest.mark.parametrize(
    ("text", "asks", "broken"),
    [
        ("no answer", True, []),
        ("no answer", False, ["progress: task fails without a call: no answer"]),
        (
            "cannot drop 'sent/x'",
            True,
            [
                "cost: task fails, and could only not tidy up: cannot drop 'sent/x'",
                "cost: task fails, and nothing that it needed has failed: cannot drop 'sent/x'",
            ],
        ),
    ],
)
def test_what_may_pass_is_tried_and_what_tidies_up_fails_nothing(
    story: Story, attempt: SinkAttempt, text: str, asks: bool, broken: list[str]
) -> None:
    """An error of the driver's is none of the task's, and a task whose rows are recorded is done."""
    steps: Sequence[Step] = [*[look] * asks, *[doom] * (text == "no answer")]
    assert story.play(attempt, *steps, fail(JournalUnavailableError(text))) == broken


def test_a_task_that_only_looks_breaks_a_law(story: Story, attempt: SinkAttempt) -> None:
    """However slow the journal is, it sends or fails."""
    assert story.play(attempt, *[look] * 41) == ["progress: task only looks at what was sent"]


def test_a_call_that_leaves_its_process_late_breaks_a_law(story: Story, attempt: SinkAttempt) -> None:
    """It was made in time, and took long to connect."""
    story.world.connect = lambda: story.hub.sleep(106)
    assert story.play(attempt, look, send(A1)) == ["once: a call of task leaves it 1 s too late"]


@pytest.mark.parametrize(("told", "broken"), [(0, ["end: task tells of Sent(place=Place(partition=0"]), (1, [])])
def test_rows_that_became_no_messages_must_be_told(story: Story, told: int, broken: list[str]) -> None:
    """Two rows of two groups with one id: SQS tells the second the message of the first."""
    twin = B1._replace(told=A1.told)
    steps = look, send(A1, twin), record(A1, twin), end(2, equal=told)
    violations = story.play(story.attempt(A1, twin), *steps)
    assert [law.partition(",")[0] for law in violations] == broken


GROUPS_APART = (A1, B1), (A2,)
SAID = "order: {'a'} stand in several partitions, and the driver"


@pytest.mark.parametrize(
    ("on_disorder", "overlap", "line", "broken"),
    [
        ("log", Overlap(1, "", are_compared=True, equal=0), "'a' in partitions 0 and 1", ""),
        ("log", Overlap(0, "", are_compared=True, equal=0), "", f"{SAID} tells of 0"),
        ("log", Overlap(2, "", are_compared=True, equal=0), "'a' in partitions 0 and 1", f"{SAID} tells of 2"),
        ("log", Overlap(0, "", are_compared=False, equal=0), "", f"{SAID} says ''"),
        ("log", Overlap(1, "", are_compared=False, equal=0), "'b' in partitions 0 and 1", f"{SAID} says: 'b'"),
        ("fail", Overlap(1, "", are_compared=True, equal=0), "'a' in partitions 0 and 1", "and the write ends well"),
        ("log", Overlap(1, "", are_compared=True, equal=1), "'a' in partitions 0 and 1", "of 1 equal rows, and not so"),
    ],
)
def test_a_group_in_several_partitions_must_be_told(on_disorder: str, overlap: Overlap, line: str, broken: str) -> None:
    """As far as groups are compared; with an example that is true, and no success with `fail`."""
    story = Story(onDisorder=on_disorder)
    attempts = [story.attempt(*rows, partition=at) for at, rows in enumerate(GROUPS_APART)]
    for attempt in attempts:
        attempt.sent = Sent(attempt.place, len(attempt.rows))
    story.laws.compared(attempts, overlap, line, is_refused=False)
    assert bool(story.laws.violations) is bool(broken)
    assert broken in "".join(story.laws.violations)


@pytest.mark.parametrize("is_complete", [True, False])
def test_a_row_that_is_another_tasks_message_must_be_told(story: Story, is_complete: bool) -> None:
    """Unless the tasks have not told all their messages."""
    attempts = [story.attempt(row, partition=at) for at, row in enumerate((A1, B1._replace(told="a1")))]
    for attempt in attempts:
        story.play(attempt, look, send(attempt.rows[0]), record(attempt.rows[0]))
        summary = Summary(message_ids=Hashes(is_complete=is_complete))
        attempt.sent = Sent(attempt.place, 1, summary=summary)
    story.laws.compared(attempts, Overlap(0, "", are_compared=True, equal=0), "", is_refused=False)
    told = "end: the driver tells of 0 equal rows, and 1 were no messages of their own"
    assert story.laws.violations == ([told] if is_complete else [])


def test_what_is_left_of_forgotten_micro_batches_breaks_a_law(story: Story, attempt: SinkAttempt) -> None:
    """Objects and marks are counted when all is over."""
    story.play(attempt, record(A1))
    story.laws.audit_journal(oldest_kept=7)
    assert not story.laws.violations
    story.laws.audit_journal(oldest_kept=8)
    assert story.laws.violations[0].startswith("bounded: left of what is forgotten: ['sent/q1/00000000000000000007/")


POISON = SinkRow("a", "p", "poison", flaw="poison")


@pytest.mark.parametrize(
    ("rows", "steps", "is_broken"),
    [
        ([POISON, A1, A1], [keep(POISON, 1), keep(A1, 1), keep(A1, 2)], True),
        ([A1, POISON, A1], [send(A1), keep(POISON, 1), keep(A1, 2)], False),
    ],
)
def test_of_equal_rows_the_second_is_kept_without_the_first(
    rows: list[SinkRow], steps: list[Step], is_broken: bool
) -> None:
    """Then the source gives only one of them: that is the first, which is sent again if it was sent."""
    story = Story(has_journal=False, badRecordsPath="/kept")
    assert story.play(story.attempt(*rows), *steps) == []
    violations = story.play(story.attempt(A1, version=1), look_for_kept, send(A1))
    assert violations == ["one place: ('a', 'a1') is sent, and was refused and kept before"] * is_broken


def test_an_only_row_is_no_second_one() -> None:
    """Else it would be looked for in the one place, and sent to the other."""
    story = Story(badRecordsPath="/kept")
    told = story.play(story.attempt(POISON, A1), look, keep(POISON, 1), keep(A1, 2))
    assert [law.partition(": ")[0] for law in told] == ["content"]
    told = story.play(story.attempt(A1, version=1), look, look_for_kept, send(A1))
    assert told[1:] == ["one place: ('a', 'a1') is sent, and was refused and kept before"]


@pytest.mark.parametrize("rows", [[A1, POISON], [A1, POISON, A1]])
def test_a_row_that_was_sent_is_not_kept_behind_its_equal(rows: list[SinkRow]) -> None:
    """Whether or not a second one was kept, the first is in the queue."""
    story = Story(badRecordsPath="/kept")
    held = [keep(A1, 2)] if len(rows) == 3 else []
    assert story.play(story.attempt(*rows), look, send(A1), record(A1), keep(POISON, 1), *held) == []
    other = POISON._replace(told="q")
    steps = look, look_for_kept, sleep(1), look, keep(other, 1), keep(A1, 1)
    told = story.play(story.attempt(other, A1, version=1), *steps)
    assert told == ["one place: ('a', 'a1') is refused and kept, and was sent before"]
