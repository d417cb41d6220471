"""`await_termination`: a query that Ctrl-C or SIGTERM ends between two micro-batches, and not inside of one."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any, cast

from sqs_fifo_spark.clock import SYSTEM_CLOCK

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_LOOK_S = 0.2
"""Between two looks for a signal, or for the query's end: no call into Spark can be left before its own end."""
_IDLE_S = 1.0
"""Seconds without a micro-batch after which none is taken to come."""
_IN_A_BATCH = ("Processing new data", "No new data but cleaning up state")
"""Spark's status messages from a micro-batch's first task to its commit."""


def await_termination(query: StreamingQuery, stop_timeout_s: float = 60.0) -> None:
    """Wait as `query.awaitTermination()` does; at SIGINT or SIGTERM end the query, print one line, and return.

    Runs on the driver, in the main thread, in place of SIGINT's and SIGTERM's handlers, which it puts back. The
    micro-batch that runs when the signal comes may end, for at most `stop_timeout_s` seconds; a second signal cuts
    that short. Either is safe. The line goes to standard error. The session goes on.

    Raises StreamingQueryException if the query fails, before or after the signal, and ValueError in another thread
    than the main one, where Python has no signals.
    """
    with signals(signal.SIGINT, signal.SIGTERM) as come, _deaf_jvm(query):
        while not come:
            # It takes parts of a second, undocumented. After stop() in another thread it is True within a batch, too.
            if query.awaitTermination(cast(int, _LOOK_S)):
                if not query.status["isTriggerActive"]:
                    return
                SYSTEM_CLOCK.sleep(_LOOK_S)
        is_between = _end_after_batch(query, come, SYSTEM_CLOCK.monotonic() + stop_timeout_s)
        query.stop()
        query.awaitTermination()
    how = "has ended between two micro-batches" if is_between else "was stopped in a micro-batch, which will run again"
    print(f"{signal.Signals(come[0]).name}: the query {query.name or query.id} {how}", file=sys.stderr)


@contextmanager
def signals(*numbers: int) -> Iterator[list[int]]:
    """Yield those of these signals that have come so far; nothing else is done at them in this block."""
    come: list[int] = []
    before = {number: signal.signal(number, lambda number, _: come.append(number)) for number in numbers}
    try:
        yield come
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _deaf_jvm(query: StreamingQuery) -> Iterator[None]:
    """Let the JVM ignore SIGINT in this block: Ctrl-C goes to it, too, and one that spark-submit began would end."""
    if not hasattr(query, "_jsq"):  # Spark Connect, where the JVM is another's
        yield
        return
    from py4j.protocol import Py4JError
    from pyspark import SparkContext

    jvm: Any = SparkContext._jvm
    with ExitStack() as stack:
        with suppress(Py4JError):  # a platform that lets Python call only functions it knows
            handle, interrupt = getattr(jvm, "sun.misc.Signal").handle, getattr(jvm, "sun.misc.Signal")("INT")
            before = handle(interrupt, getattr(jvm, "sun.misc.SignalHandler").SIG_IGN)
            stack.callback(handle, interrupt, before)
        yield


def _end_after_batch(query: StreamingQuery, come: Sequence[int], deadline: float) -> bool:
    """Wait for the end of the micro-batch that runs; return False if time, or patience, ended before.

    The query has then ended by itself, or is idle; where it plans on, it may have begun the next one.
    """
    reported = query.lastProgress
    thread = _plan_no_more(query)
    idle_at = SYSTEM_CLOCK.monotonic() + _IDLE_S
    while True:
        now, status = SYSTEM_CLOCK.monotonic(), query.status
        if not (status["isTriggerActive"] and status["message"].startswith(_IN_A_BATCH)):
            if now >= idle_at:
                return True
        elif len(come) > 1 or now >= deadline:
            return False
        else:
            idle_at = now + _IDLE_S
        if thread is None:
            SYSTEM_CLOCK.sleep(_LOOK_S)
            if query.lastProgress != reported:
                return True
        else:
            thread.join(int(1000 * _LOOK_S))
            if not thread.isAlive():
                return True


def _plan_no_more(query: StreamingQuery) -> Any:
    """Let the query's thread end when the micro-batch that runs has been committed; return it, or None if it goes on.

    `query.stop()` sets the same state, and then interrupts. Spark has no public way to the one without the other.
    """
    jsq = getattr(query, "_jsq", None)
    if jsq is None:  # Spark Connect
        return None
    from py4j.protocol import Py4JError

    try:
        execution = jsq.streamingQuery()
        thread, state = execution.queryExecutionThread(), execution.state()
        now = state.get().getClass()
        ended = now.getClassLoader().loadClass(f"{now.getPackageName()}.TERMINATED$").getField("MODULE$").get(None)
        state.set(ended)
    except Py4JError:  # another Spark than those that are tested, or a platform that lets Python call less
        return None
    return thread
