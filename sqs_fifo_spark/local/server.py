"""An HTTP server over `FifoModel` that an unmodified AWS SDK takes for SQS.

Speaks AWS JSON 1.0, and the query protocol of older SDKs. Signatures are not checked; only `Faults.expired_keys` and
policies look at the access key. Every request is handled on one event loop, on a thread of the server's own, so the
model is never entered twice at a time.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import cached_property, partial
from typing import Any, TypeVar

from aiohttp import web

from sqs_fifo_spark.clock import SYSTEM_CLOCK, Clock
from sqs_fifo_spark.local import names
from sqs_fifo_spark.local.ahead import AheadClock
from sqs_fifo_spark.local.control import Control
from sqs_fifo_spark.local.endpoint import Endpoint
from sqs_fifo_spark.local.errors import SqsError
from sqs_fifo_spark.local.faults import Faults, Injector
from sqs_fifo_spark.local.inspection import Inspector
from sqs_fifo_spark.local.model import IN_FLIGHT_CAP, SCAN_LIMIT, FifoModel
from sqs_fifo_spark.local.page import Page
from sqs_fifo_spark.local.policy import Policies
from sqs_fifo_spark.local.requests import RequestLog
from sqs_fifo_spark.local.waiting import WaitingRoom

_MAX_REQUEST_BYTES = 64 * 1024 * 1024
_SHUTDOWN_S = 1.0
# Addresses to listen on that nobody can call, and the ones to call instead.
_CALLABLE = {"0.0.0.0": "127.0.0.1", "::": "::1"}

T = TypeVar("T")


class LocalQueueServer:
    """SQS on this machine, in a `with` block; hand its `endpoint_url` to `boto3.client`.

    `port` 0 lets the system choose. `queues` are FIFO queues to create at the start. With a `seed`, message ids,
    sequence numbers and receipt handles are the same each time; without one, no two servers share any. Queue URLs
    in answers name the host that the client called, so that one who came by another name can use them. With a clock
    that is turned by hand, timeouts lapse and long polls end when it is turned. `policies` are IAM policy documents
    by access key; a key without one may do everything. `faults` and `policies` may be set at any time, from any thread.

    Raises ValueError for queues, faults or policies of the wrong form.
    """

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        clock: Clock = SYSTEM_CLOCK,
        seed: int | None = None,
        faults: Faults | None = None,
        queues: Sequence[str] = (),
        policies: Mapping[str, Any] | None = None,
        region: str = "us-east-1",
        in_flight_cap: int = IN_FLIGHT_CAP,
        scan_limit: int = SCAN_LIMIT,
    ) -> None:
        self.requests = RequestLog()
        self._host = host
        self._port = port
        self._clock = AheadClock(clock)
        self._model = FifoModel(
            self._clock,
            random.Random(seed),
            region=region,
            in_flight_cap=in_flight_cap,
            scan_limit=scan_limit,
        )
        self._queues = names.of_new_queues(queues)
        self._room = WaitingRoom(self._model, self._clock)
        self._inspector = Inspector(self._model)
        control = Control(
            self.requests, self._inspector, lambda: self.faults, self._set_faults, self._clock.now, self._advance
        )
        self._endpoint = Endpoint(
            self._model,
            self._room,
            control,
            Page(self._model, control, lambda: self._endpoint.injector, self._room.serve),
            self.requests,
            self._clock,
            host,
            Injector(Faults() if faults is None else faults),
            Policies(policies or {}),
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._thread: threading.Thread | None = None
        self.endpoint_url = ""
        """The URL to hand to a client on this machine, while the server runs."""
        self.region = region
        """The region in queue ARNs, which a client should name."""

    def __enter__(self) -> LocalQueueServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @cached_property
    def client(self) -> Any:
        """A boto3 client for a server that runs, with made-up credentials; made on first use, closed by `stop`."""
        self._running_loop()
        import boto3

        return boto3.client(
            "sqs",
            endpoint_url=self.endpoint_url,
            region_name=self.region,
            aws_access_key_id="any",
            aws_secret_access_key="any",
        )

    @property
    def faults(self) -> Faults:
        """The failures on purpose. Setting them starts the server's dice, and the counting of requests, anew."""
        return self._endpoint.injector.faults

    @faults.setter
    def faults(self, faults: Faults) -> None:
        self._set_faults(faults)

    def set_policies(self, documents: Mapping[str, Any]) -> None:
        """Put these policies in place of all others, for requests that come from now on."""
        self._endpoint.policies = Policies(documents)

    @property
    def waiting(self) -> int:
        """Number of long polls that wait at the moment."""
        return self._room.count

    def queue_url(self, name: str) -> str:
        return self._model.queue_url(name)

    def start(self) -> None:
        """Listen, and return once requests are served.

        Raises OSError when the port cannot be had, OverflowError for a number that is no port.
        """
        if self._thread is not None:
            raise RuntimeError("this local queue server runs already; make another one")
        started: Future[str] = Future()
        self._thread = threading.Thread(target=self._serve, args=(started,), name="local-queue", daemon=True)
        self._thread.start()
        self.endpoint_url = started.result()

    def stop(self) -> None:
        """Answer all waiting polls with nothing, close all connections, and end the thread.

        Raises RuntimeError when a request failed through a defect of the server itself.
        """
        if "client" in self.__dict__:
            self.client.close()
        loop, stopping, thread = self._loop, self._stopping, self._thread
        if thread is None or loop is None or stopping is None:
            return
        if thread.is_alive():
            loop.call_soon_threadsafe(stopping.set)
            thread.join()
        failure, self._endpoint.failure = self._endpoint.failure, None
        if failure is not None:
            raise RuntimeError("the local queue failed to handle a request; its cause is above") from failure

    def run(self, function: Callable[[FifoModel], T]) -> T:
        """Call `function` with the model on the server's thread, and return its result.

        The only safe way to the model while the server runs: for `on_event`, or to call actions without HTTP.
        """
        __tracebackhide__ = True
        loop = self._running_loop()

        async def call() -> T:
            result = function(self._model)
            self._room.serve()
            return result

        try:
            return asyncio.run_coroutine_threadsafe(call(), loop).result()
        except SqsError as error:
            # Without the frames of the server's thread: the refused request, and the reason, stand in the error.
            raise error.with_traceback(None) from None

    def advance(self, seconds: float) -> None:
        """Set the queue's clock ahead: visibility timeouts, delays, deduplication ids and retention lapse.

        Long polls that find something by it, or whose own time is over, end. Raises ValueError for a bad number.
        """
        self.run(lambda model: self._advance(seconds))

    def messages(self, queue: str | None = None) -> list[dict[str, Any]]:
        """All messages of the queue of that name or URL, oldest first, each with its state; nothing is received.

        Without `queue`, those of all queues, one after another. Raises SqsError when there is no such queue.
        """
        return self.run(lambda model: self._inspector.messages(queue))

    def history(self, message_id: str) -> list[dict[str, Any]]:
        """The events of a message, in order, also after its end; none for one that is not known."""
        return self.run(lambda model: self._inspector.history(message_id))

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None or self._thread is None or not self._thread.is_alive():
            raise RuntimeError("the local queue server does not run; start it first")
        return self._loop

    def _set_faults(self, faults: Faults) -> None:
        self._endpoint.injector = Injector(faults)

    def _advance(self, seconds: float) -> None:
        self._clock.advance(seconds)
        self._model.advance()
        self._room.serve()

    def _serve(self, started: Future[str]) -> None:
        try:
            asyncio.run(self._main(started))
        except Exception as error:
            # Raised by start() if it still waits for us, else by stop().
            if started.done():
                self._endpoint.failure = error
            else:
                started.set_exception(error)

    async def _main(self, started: Future[str]) -> None:
        loop = self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        server = web.Server(
            self._endpoint.handle,
            # aiohttp's own limit of 1 MiB would refuse a message of SQS's maximum size.
            request_factory=partial(web.BaseRequest, loop=loop, client_max_size=_MAX_REQUEST_BYTES),
            handler_cancellation=True,
            access_log=None,
        )
        runner = web.ServerRunner(server, shutdown_timeout=_SHUTDOWN_S)
        await runner.setup()
        try:
            await web.TCPSite(runner, self._host, self._port).start()
            host, port = runner.addresses[0][:2]
            host = _CALLABLE.get(host, host)
            self._model.base_url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
            for name in self._queues:
                self._model.call("CreateQueue", {"QueueName": name, "Attributes": {"FifoQueue": "true"}})
            started.set_result(self._model.base_url)
            await self._stopping.wait()
            self._room.close()
        finally:
            await runner.cleanup()
