"""Time that a message takes from sender to sink, while messages come at a steady rate.

For a query the end is when `foreachBatch` has the micro-batch's rows, for a loop when the receive's answer is there. It
is the clock of one machine.
"""

from __future__ import annotations

import dataclasses

from tests.bench.boto3_worker import STAMP
from tests.bench.measure import Way, Window
from tests.bench.model import Bench, Job
from tests.bench.spark_ways import SOURCE_WAYS, Arrivals, query
from tests.bench.team import Team, python, team

WARM = 20
"""Messages that a query has taken before the first that counts."""
_PATIENCE_S = 5.0
_COLUMNS = ("messageGroupId", "sequenceNumber", f"CAST(substring(body, 1, {STAMP}) AS DOUBLE) AS sent")


def _pacer(bench: Bench, job: Job, prefix: str, messages: int) -> list[str]:
    task = {"endpoint": bench.queue.endpoint_url, "prefix": prefix, **dataclasses.asdict(job)}
    return python("pacer", {**task, "options": {}, "messages": messages})


def _send(pacer: Team) -> None:
    pacer.go()
    pacer.results()


def _query(way: str) -> Way:
    def watch(bench: Bench, job: Job, window: Window) -> None:
        arrivals = Arrivals(_COLUMNS)
        bench.queue.release(job.url)
        with query(bench, way, job, arrivals) as running:
            with team([_pacer(bench, dataclasses.replace(job, rate=100.0), "w", WARM)]) as warm:
                _send(warm)
            arrivals.wait(running, rows=WARM)
            begun = len(arrivals.tables)
            first = arrivals.numbers[-1] + 1
            with team([_pacer(bench, job, "m", job.messages)]) as pacer:
                window.leave_out(pacer.pids)
                window.open()
                _send(pacer)
                arrivals.wait(running, rows=WARM + job.messages)
                window.close()
            reports = [each for each in running.recentProgress if each.numInputRows and each.batchId >= first]
            window.run.triggers_s = [each.durationMs["triggerExecution"] / 1000 for each in reports]
        pairs = list(zip(arrivals.times, arrivals.tables, strict=True))[begun:]
        window.run.latencies_s = [at - sent for (_, at), table in pairs for sent in table.column("sent").to_pylist()]
        window.run.micro_batches = sum(table.num_rows > 0 for _, table in pairs)
        arrivals.check(WARM + job.messages, min(job.groups, max(WARM, job.messages)), None)

    return watch


def _loops(bench: Bench, job: Job, window: Window) -> None:
    task = {"task": "drain", "endpoint": bench.queue.endpoint_url, "url": job.url, "patience_s": _PATIENCE_S}
    with (
        team([_pacer(bench, job, "m", job.messages)]) as pacer,
        team([python("boto3_worker", task)] * bench.cores) as loops,
    ):
        bench.queue.release(job.url)
        window.leave_out(pacer.pids)
        window.open()
        loops.go()
        _send(pacer)
        results = loops.results()
        window.close(max(result["finished"] for result in results))
    window.run.latencies_s = [each for result in results for each in result["latencies"]]
    if len(window.run.latencies_s) != job.messages:
        raise RuntimeError(f"{len(window.run.latencies_s)} messages handled, of {job.messages}")


LATENCY_WAYS: dict[str, Way] = {"boto3": _loops, **{way: _query(way) for way in ("naive", *SOURCE_WAYS)}}
