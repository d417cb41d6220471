"""Comparisons, and the results of runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.bench.queue_process import QueueProcess
    from tests.bench.sessions import Sessions


@dataclass(frozen=True)
class Entrant:
    """One way in a comparison, under the name that its line gets. `options` are the connector's."""

    way: str
    label: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    groups: int | None = None
    """Instead of the comparison's own number."""

    @property
    def name(self) -> str:
        return self.label or self.way


@dataclass(frozen=True)
class Comparison:
    """Entrants that take turns over the same work; the first is what the others are compared to.

    With `rate`, messages are sent meanwhile, so many a second, and latencies are measured. `slots` are Spark's.
    """

    topic: str
    name: str
    entrants: tuple[Entrant, ...]
    messages: int = 10_000
    groups: int = 5_000
    size: int = 500
    delay_s: float = 0.0
    rate: float = 0.0
    slots: int = 2
    rounds: int = 5

    @property
    def title(self) -> str:
        """Return what a reader must know of the work."""
        if self.topic == "floor":
            return f"{self.name}: {self.messages} micro-batches"
        sizes = f"{self.size // 1000} KB" if self.size >= 1000 else f"{self.size} B"
        work = f"{self.messages:,} messages of {sizes} in {self.groups:,} group{'s' * (self.groups > 1)}"
        sent = f", {self.rate:g} a second" if self.rate else ""
        delay = f", {self.delay_s * 1000:g} ms added to each request" if self.delay_s else ""
        return f"{self.name}: {work}{sent}{delay}, {self.slots} task slots"


@dataclass(frozen=True)
class Job:
    """The work of one run. `url` is a queue of its own."""

    url: str
    messages: int
    groups: int
    size: int
    rate: float
    options: Mapping[str, str]


@dataclass
class Run:
    """Results of a run. `requests` are the entrant's, by action; `first_s` when its first rows were there."""

    entrant: str
    round: int
    messages: int
    seconds: float = 0.0
    cpu_s: float = 0.0
    first_s: float | None = None
    micro_batches: int = 0
    requests: dict[str, int] = field(default_factory=dict)
    peaks_mib: dict[str, list[float]] = field(default_factory=dict)
    latencies_s: list[float] = field(default_factory=list)
    triggers_s: list[float] = field(default_factory=list)
    """Time of each micro-batch with rows, as Spark reports it."""

    @property
    def per_second(self) -> float:
        return self.messages / self.seconds

    @property
    def cpu_per_thousand_s(self) -> float:
        return self.cpu_s / self.messages * 1000


@dataclass(frozen=True)
class Bench:
    """Setup of all runs. `node` has the Node packages, if Node is there."""

    queue: QueueProcess
    home: Path
    sessions: Sessions
    cores: int
    uncounted: frozenset[int]
    """Processes of the environment: the queue's, and S3's."""
    node: Path | None = None
    payloads: str = ""
    """Endpoint of S3 for the payloads of messages that are pointers."""

    def options(self, job: Job) -> dict[str, Any]:
        """Return the connector's options for the job's queue, without a journal."""
        common = {"queueUrl": job.url, "endpointUrl": self.queue.endpoint_url, "region": "us-east-1"}
        return {**common, **job.options}
