"""One real supervisor on a simulated machine, and a coordinator that says what a test tells it to."""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import msgspec

from stoker.settings import load
from stoker.testing.loop import Process, SimLoop
from stoker.testing.net import NetConnection, Weather
from stoker.wire import codec, frames
from stoker.wire.frames import Assign, Assignment, Heartbeat, Renewed, Reports, Welcome
from stoker.worker.connection import Dialer
from stoker.worker.supervisor import Supervisor
from tests.checkers.history import Effect
from tests.sim.machine import Deed, SimMachine
from tests.support.frames import reported

LEASE = 4.0


class Stage:
    """One worker, and the coordinator's ends of the connections that it made."""

    def __init__(self) -> None:
        self.loop = SimLoop()
        self.effects: list[Effect] = []
        self.ends: list[NetConnection] = []
        self.heard: list[frames.FromWorker] = []
        self.answers = True
        """Whether heartbeats are confirmed."""
        self.acknowledges = False
        """Whether reports are."""
        self.batches = False
        """Whether the coordinator speaks in batches."""
        self._weather = Weather(self.loop)
        self.worker = Process(self.loop, "w1#1")
        self._server = Process(self.loop, "c1#1")
        self.supervisor: Supervisor | None = None

    def run(self, story: Callable[["Stage"], Awaitable[None]]) -> None:
        async def main() -> None:
            self.worker.spawn(self._work())
            await self.until(lambda: bool(self.ends))
            await asyncio.sleep(0.5)
            await story(self)

        self.loop.run_until_complete(main())

    async def _work(self) -> None:
        overrides = {
            "worker_name": "w1",
            "worker_threads": 2,
            "cancel_grace_sec": 1.0,
            "async_concurrency": 5,
        }
        machine = SimMachine(self.loop, self.worker, Random(1), concurrency=5, note=self.effects.append)
        dialer = Dialer(("http://c1",), None, connect=self._connect, spread=lambda: 1.0)
        self.supervisor = Supervisor(load({}, overrides), dialer, machine, new_id=lambda: "s1", version="0")
        await self.supervisor.run()

    async def _connect(self, url: str, **_: Any) -> Any:
        connection = NetConnection(self._weather, Random(len(self.ends)), url, self.worker, self._server)
        self.ends.append(connection)
        self._server.spawn(self._serve(connection))
        return connection.worker

    async def _serve(self, connection: NetConnection) -> None:
        while (data := await connection.server.receive()) is not None:
            frame = codec.decode_from_worker(data)
            self.heard.append(frame)
            if isinstance(frame, frames.Hello):
                self.say(Welcome(1, "s1", LEASE / 5, LEASE, 1000, self.batches), connection)
            elif isinstance(frame, Heartbeat) and self.answers:
                self.say(Renewed(frame.number), connection)
            elif isinstance(frame, Reports) and self.acknowledges:
                self.say(frames.Ack(frame.number, []), connection)

    def say(self, frame: frames.Frame, connection: NetConnection | None = None) -> None:
        end = (connection or self.ends[-1]).server
        self._server.spawn(end.send(codec.encode(frame)))

    def assign(
        self, id: str, deed: Deed, type: str = "work", *, claim: int = 1, number: int = 0, **more: Any
    ) -> None:
        self.say(Assign([Assignment(id, claim, type, msgspec.json.encode(deed), **more)], number))

    async def until(self, true: Callable[[], bool], seconds: float = 60.0) -> None:
        deadline = self.loop.time() + seconds
        while not true():
            assert self.loop.time() < deadline, "it never happened"
            await asyncio.sleep(0.01)

    def reports(self) -> list[tuple[str, str]]:
        return [(report.id, report.kind) for frame in self.report_frames() for report in reported(frame)]

    def report_frames(self) -> list[Reports]:
        return [frame for frame in self.heard if isinstance(frame, Reports)]

    def starts(self, id: str) -> int:
        return sum(effect.what == "start" and effect.job == id for effect in self.effects)
