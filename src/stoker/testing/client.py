"""The SDK's transport to the kit: the same requests and answers, passed by function calls instead of sockets."""

from __future__ import annotations

import http
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from stoker.client.errors import ResultTimeout, StokerError
from stoker.client.http1 import ExchangeError, RawAnswer
from stoker.client.outcomes import Outcome, WaitFailure, failure, last_look
from stoker.client.requests import FINAL, ApiRequest, JobInfo, check_timeout
from stoker.client.transport import Transport
from stoker.client.waits import ClientWaits, Receiver
from stoker.clock import SECOND

if TYPE_CHECKING:
    from stoker.testing.system import System

URL: Final = "http://127.0.0.1"
PATIENCE_SECONDS: Final = 30 * 24 * 3600.0
"""The virtual time after which a wait without a timeout gives up."""


class KitHttp:
    """Calls the ASGI app of the kit's coordinator (`stoker.client.transport.Http`)."""

    def __init__(self, system: System) -> None:
        self._system = system

    def exchange(self, request: ApiRequest, timeout: float) -> RawAnswer:
        if self._system.closed:
            raise ExchangeError("the block of app.testing() has ended, and its jobs with it", sent=True)
        return self._system.call(self._ask(request))

    async def exchange_async(self, request: ApiRequest, timeout: float) -> RawAnswer:
        return self.exchange(request, timeout)

    async def _ask(self, request: ApiRequest) -> RawAnswer:
        headers = {"host": "127.0.0.1", "accept": "application/json", **request.headers}
        if request.body is not None:
            headers |= {"content-type": "application/json", "content-length": str(len(request.body))}
        scope = {
            "type": "http",
            "method": request.method,
            "scheme": "http",
            "path": request.path,
            "raw_path": request.path.encode(),
            "query_string": urlencode(request.params).encode(),
            "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
            "client": ("127.0.0.1", 0),
        }
        sent: list[Any] = []
        received = [{"type": "http.request", "body": request.body or b"", "more_body": False}]

        async def receive() -> Any:
            return received.pop() if received else {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)

        await self._system.api(scope, receive, send)
        status = int(sent[0]["status"])
        body = b"".join(message.get("body", b"") for message in sent[1:])
        reason = http.HTTPStatus(status).phrase.encode()
        return RawAnswer(status, reason, list(sent[0]["headers"]), body)

    def close(self) -> None: ...
    async def aclose_loop(self) -> None: ...
    def forget(self) -> None: ...


class KitWaits(ClientWaits):
    """Waits in virtual time: runs what is due, and moves the clock until the jobs have ended."""

    def __init__(self, transport: KitTransport, system: System) -> None:
        super().__init__(transport)
        self._system = system
        self._kit_transport = transport

    def wait(self, job_id: str, timeout: float | None) -> JobInfo:
        check_timeout(timeout)
        self._pass([job_id], timeout)
        seconds = PATIENCE_SECONDS if timeout is None else timeout
        return self._kit_transport.run(last_look(job_id, seconds))

    async def wait_async(self, job_id: str, timeout: float | None) -> JobInfo:
        return self.wait(job_id, timeout)

    def add(self, job_ids: Iterable[str], receiver: Receiver, timeout: float | None = None) -> None:
        wanted = list(job_ids)
        self._pass(wanted, timeout)
        outcomes = {job_id: self._outcome(job_id) for job_id in wanted}
        if timeout is not None:
            outcomes = {id: outcome for id, outcome in outcomes.items() if not _timed_out(outcome)}
        for job_id, outcome in outcomes.items():
            receiver.take({job_id: outcome})
        if len(outcomes) < len(wanted):
            receiver.take({})

    def remove(self, job_ids: Iterable[str], receiver: Receiver) -> None:
        """Do nothing: `add` has delivered all outcomes."""

    def _outcome(self, job_id: str) -> Outcome:
        try:
            return self._kit_transport.run(last_look(job_id, PATIENCE_SECONDS))
        except StokerError as error:
            return _own(error)

    def _pass(self, job_ids: Collection[str], timeout: float | None) -> None:
        system = self._system
        if system.closed:
            return
        seconds = PATIENCE_SECONDS if timeout is None else max(0.0, timeout)
        until = system.clock.us + int(min(seconds, PATIENCE_SECONDS) * SECOND)

        async def states() -> bool:
            found = await system.store.states([job_id.lower() for job_id in job_ids])
            return all(state.status in FINAL for state in found)

        def ended() -> bool:
            return system.call(states())

        with system.lock:
            system.run_due()
            if not ended():
                system.pass_time(until, ended, to_the_end=timeout is not None)


def _timed_out(outcome: Outcome) -> bool:
    return isinstance(outcome, WaitFailure) and isinstance(outcome.error(), ResultTimeout)


def _own(error: StokerError) -> WaitFailure:
    """Return a failure that raises a new exception for each waiter."""
    return failure(error)


class KitTransport(Transport):
    """The transport of the app inside the block of `app.testing()`."""

    def __init__(self, system: System) -> None:
        super().__init__(URL, pauses=())
        self._made = KitHttp(system)
        self.waits: ClientWaits = KitWaits(self, system)
