"""What the simulation found in the worker, each as the shortest story that shows it: a real supervisor, a simulated machine,
and a coordinator that says what the test tells it to."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from random import Random
from typing import Any

import msgspec
import pytest

from stoker.settings import load
from stoker.wire import codec, frames
from stoker.wire.frames import Assign, Assignment, Heartbeat, Renewed, Reports, Welcome
from stoker.worker.connection import Dialer
from stoker.worker.supervisor import Supervisor
from tests.checkers.history import Effect
from tests.sim.loop import Process, SimLoop
from tests.sim.machine import Deed, SimMachine
from tests.sim.net import Connection, Weather

LEASE = 4.0


class Stage:
    """One worker, and the coordinator's ends of the connections that it made."""

    def __init__(self) -> None:
        self.loop = SimLoop()
        self.effects: list[Effect] = []
        self.ends: list[Connection] = []
        self.heard: list[frames.FromWorker] = []
        self.answers = True
        """Whether heartbeats are confirmed."""
        self.acknowledges = False
        """Whether reports are."""
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
        connection = Connection(self._weather, Random(len(self.ends)), url, self.worker, self._server)
        self.ends.append(connection)
        self._server.spawn(self._serve(connection))
        return connection.worker

    async def _serve(self, connection: Connection) -> None:
        while (data := await connection.server.receive()) is not None:
            frame = codec.decode_from_worker(data)
            self.heard.append(frame)
            if isinstance(frame, frames.Hello):
                self.say(Welcome(1, "s1", LEASE / 5, LEASE, 1000), connection)
            elif isinstance(frame, Heartbeat) and self.answers:
                self.say(Renewed(frame.number), connection)
            elif isinstance(frame, Reports) and self.acknowledges:
                self.say(frames.Ack(frame.number, []), connection)

    def say(self, frame: frames.Frame, connection: Connection | None = None) -> None:
        end = (connection or self.ends[-1]).server
        self._server.spawn(end.send(codec.encode(frame)))

    def assign(self, id: str, deed: Deed, type: str = "work", **more: Any) -> None:
        self.say(Assign([Assignment(id, 1, type, msgspec.json.encode(deed), **more)]))

    async def until(self, true: Callable[[], bool], seconds: float = 60.0) -> None:
        deadline = self.loop.time() + seconds
        while not true():
            assert self.loop.time() < deadline, "it never happened"
            await asyncio.sleep(0.01)

    def reports(self) -> list[tuple[str, str]]:
        found = [frame.reports for frame in self.heard if isinstance(frame, Reports)]
        return [(report.id, report.kind) for batch in found for report in batch]

    def starts(self, id: str) -> int:
        return sum(effect.what == "start" and effect.job == id for effect in self.effects)


@pytest.fixture
def stage() -> Iterator[Stage]:
    made = Stage()
    yield made
    made.loop.close()


def test_a_task_whose_process_was_killed_for_another_is_handed_back_and_not_started_again(
    stage: Stage,
) -> None:
    """It ran twice under one claim, so a job with one attempt was started twice."""

    async def story(stage: Stage) -> None:
        stage.assign("calm", Deed("calm", 30.0), "nap")
        stage.assign("bad", Deed("bad", then="hang", stubborn=True), "nap", timeout_sec=1.0)
        await stage.until(lambda: ("bad", "timeout") in stage.reports())
        await asyncio.sleep(2)
        assert ("calm", "handed_back") in stage.reports()
        assert stage.starts("calm") == 1

    stage.run(story)


def test_what_is_killed_at_the_end_of_the_lease_is_reported_as_lost(stage: Stage) -> None:
    """It was neither held nor reported, and so passed for an assignment that never came, which is free."""

    async def story(stage: Stage) -> None:
        stage.assign("a", Deed("a", 60.0))
        await stage.until(lambda: stage.starts("a") == 1)
        stage.answers = False
        await stage.until(lambda: any(effect.what == "killed" for effect in stage.effects))
        await stage.until(lambda: bool(stage.reports()))
        assert stage.reports()[0] == ("a", "lost")

    stage.run(story)


def test_an_end_is_reported_before_the_heartbeat_that_no_longer_holds_it(stage: Stage) -> None:
    """A heartbeat in the moment between the two made a finished job look as if it had never arrived."""

    async def story(stage: Stage) -> None:
        supervisor = stage.supervisor
        assert supervisor is not None
        stage.assign("a", Deed("a", 1.0))
        await stage.until(lambda: stage.starts("a") == 1)
        supervisor._flushed_at = (
            stage.loop.time() + 10.0
        )  # much is ending, so reports are gathered for a while
        await stage.until(lambda: ("a", "completed") in stage.reports(), 5.0)
        last = next(i for i, frame in enumerate(stage.heard) if isinstance(frame, Reports))
        assert all(
            any(ref.id == "a" for ref in frame.held)
            for frame in stage.heard[:last]
            if isinstance(frame, Heartbeat) and frame.held
        )
        assert not any(
            isinstance(frame, Heartbeat) and not frame.held for frame in stage.heard[last - 1 : last]
        )

    stage.run(story)


def test_a_connection_that_was_forgotten_on_the_way_is_given_up(stage: Stage) -> None:
    """The worker waited for ever on a line that nobody heard."""

    async def story(stage: Stage) -> None:
        stage.ends[0].forget()
        await stage.until(lambda: len(stage.ends) > 1, LEASE + 2.0)

    stage.run(story)


def test_an_assignment_that_comes_after_the_end_of_the_lease_is_not_started(stage: Stage) -> None:
    """It had waited in the line while the worker was paused, and belonged to somebody else by then."""

    async def story(stage: Stage) -> None:
        stage.worker.pause()
        stage.answers = False
        stage.assign("a", Deed("a", 1.0))
        await asyncio.sleep(LEASE * 2)
        stage.worker.resume()
        await stage.until(lambda: ("a", "handed_back") in stage.reports())
        assert stage.starts("a") == 0

    stage.run(story)


def test_a_welcome_begins_a_lease(stage: Stage) -> None:
    """After a long outage the first assignment came before the first renewal, and was killed for an old lease."""

    async def story(stage: Stage) -> None:
        stage.ends[0].forget()
        stage.answers = False
        await stage.until(lambda: len(stage.ends) > 1, LEASE * 3)
        await asyncio.sleep(0.2)
        stage.assign("a", Deed("a", 1.0))
        await stage.until(lambda: ("a", "completed") in stage.reports(), LEASE)

    stage.run(story)


def test_an_assignment_that_comes_while_the_worker_leaves_is_not_started(stage: Stage) -> None:
    """It was started, and the goodbye that followed at once made it look as if it had never arrived."""

    async def story(stage: Stage) -> None:
        assert stage.supervisor is not None
        stage.assign("a", Deed("a", 0.1))
        await stage.until(lambda: ("a", "completed") in stage.reports())  # and nobody acknowledges it
        stage.supervisor.drain()
        await asyncio.sleep(0.2)
        stage.assign("b", Deed("b", 60.0))
        await stage.until(lambda: ("b", "handed_back") in stage.reports())
        assert stage.starts("b") == 0

    stage.run(story)


def test_a_worker_that_stands_still_while_it_leaves_reports_what_it_ran_before_it_says_goodbye(
    stage: Stage,
) -> None:
    """Seed 603: the time for ending its job had passed when it woke, so it said goodbye with the job still running, and
    somebody else could start it before it was killed."""

    async def story(stage: Stage) -> None:
        assert stage.supervisor is not None
        stage.acknowledges = True
        stage.assign("a", Deed("a", 60.0, stubborn=True))
        await stage.until(lambda: stage.starts("a") == 1)
        stage.supervisor.drain()
        await asyncio.sleep(stage.supervisor._settings.shutdown_grace_sec + 0.2)
        stage.worker.pause()
        await asyncio.sleep(LEASE * 0.8)
        stage.worker.resume()
        await stage.until(lambda: any(isinstance(frame, frames.Goodbye) for frame in stage.heard))
        assert stage.reports() == [("a", "handed_back")]

    stage.run(story)
