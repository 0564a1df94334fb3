"""What every bus over a line does, whatever the line: on lines in memory that the test owns."""

import asyncio
from collections.abc import Sequence

from stoker.bus.base import Changed, JobsWaiting, Notification
from stoker.bus.connected import ConnectedBus, Hear
from stoker.bus.local import NoBus
from stoker.bus.outbox import unpack
from tests.unit.test_bus_servers import Heard, eventually


class Wire:
    """A server that passes every message on to every line."""

    def __init__(self) -> None:
        self.lines: list[WireLine] = []
        self.deaf = False
        self.refusals: list[Exception] = []
        self.free = asyncio.Event()
        self.free.set()


class WireLine:
    def __init__(self, wire: Wire, hear: Hear) -> None:
        self.wire = wire
        self.hear = hear
        self.sent: list[list[Notification]] = []
        self.closed = False
        self.lost = asyncio.Event()

    async def send(self, messages: Sequence[bytes]) -> None:
        packets = [unpack(message) for message in messages]
        self.sent += [
            packet.notifications for packet in packets if packet is not None and packet.notifications
        ]
        await self.wire.free.wait()
        for message in messages:
            for line in self.wire.lines:
                if not line.closed and not self.wire.deaf:
                    line.hear(message)

    async def listen(self) -> None:
        await self.lost.wait()
        raise ConnectionError("cut")

    async def close(self) -> None:
        self.closed = True


class WireBus(ConnectedBus):
    name = "wire"
    max_bytes = 1_000
    answer_seconds = 5.0
    check_seconds = 0.05

    def __init__(self, wire: Wire) -> None:
        super().__init__()
        self.wire = wire

    async def _open(self, hear: Hear) -> WireLine:
        if self.wire.refusals:
            raise self.wire.refusals.pop()
        line = WireLine(self.wire, hear)
        self.wire.lines.append(line)
        return line


async def started(wire: Wire) -> tuple[WireBus, Heard]:
    bus, heard = WireBus(wire), Heard()
    bus.start(heard)
    await eventually(lambda: bus.connected)
    return bus, heard


async def test_notifications_that_come_while_a_message_is_under_way_leave_together() -> None:
    wire = Wire()
    bus, _ = await started(wire)
    [line] = wire.lines
    wire.free.clear()
    bus.publish(Changed(["first"]))
    await eventually(lambda: len(line.sent) == 1)
    for number in range(10):
        bus.publish(Changed([f"later-{number}"]))
        bus.publish(JobsWaiting())
        await asyncio.sleep(0)
    wire.free.set()
    await eventually(lambda: len(line.sent) >= 2)
    await bus.close()
    assert line.sent == [
        [Changed(["first"])],
        [JobsWaiting(), Changed([f"later-{number}" for number in range(10)])],
    ]


async def test_a_line_on_which_the_bus_does_not_hear_itself_is_replaced() -> None:
    wire = Wire()
    bus, heard = await started(wire)
    bus.answer_seconds = 0.05
    wire.deaf = True
    await eventually(lambda: not bus.connected)
    wire.deaf = False
    bus.answer_seconds = 5.0
    await eventually(lambda: bus.connected)
    assert wire.lines[0].closed
    assert heard.notifications == [JobsWaiting(), JobsWaiting()], (
        "after each connect, once: news may have been missed"
    )
    await bus.close()


async def test_a_line_that_is_cut_is_replaced_whatever_goes_wrong_in_between() -> None:
    wire = Wire()
    bus, heard = await started(wire)
    wire.refusals = [OSError("refused"), ValueError("odd"), ExceptionGroup("many", [KeyError("a")])]
    wire.lines[0].lost.set()
    await eventually(lambda: len(wire.lines) == 2 and bus.connected)
    assert wire.refusals == []
    await bus.close()
    assert heard.notifications == [JobsWaiting(), JobsWaiting()]


async def test_a_receiver_that_fails_does_not_end_the_bus() -> None:
    wire = Wire()
    sender, _ = await started(wire)
    calls: list[Sequence[Notification]] = []

    def fails(notifications: Sequence[Notification]) -> None:
        calls.append(notifications)
        raise RuntimeError("planted")

    bus = WireBus(wire)
    bus.start(fails)
    await eventually(lambda: len(calls) == 1)
    sender.publish(Changed(["a"]))
    await eventually(lambda: len(calls) == 2)
    assert bus.connected
    await sender.close()
    await bus.close()


async def test_notifications_wait_for_a_line_and_without_one_cost_no_memory() -> None:
    wire = Wire()
    bus = WireBus(wire)
    bus.publish(Changed([str(number) for number in range(30_000)]))
    assert bus.dropped == 10_000
    assert not bus.connected
    bus.start(lambda _: None)
    await eventually(lambda: bus.connected)
    await bus.close()
    ids = [id for sent in wire.lines[0].sent for item in sent if isinstance(item, Changed) for id in item.ids]
    assert ids == [str(number) for number in range(10_000, 30_000)]


async def test_closing_sends_what_waits_and_may_be_done_twice() -> None:
    wire = Wire()
    bus, _ = await started(wire)
    bus.publish(Changed(["last"]))
    await bus.close()
    await bus.close()
    assert wire.lines[0].sent == [[Changed(["last"])]]
    assert wire.lines[0].closed
    never_started = WireBus(wire)
    await never_started.close()


async def test_closing_does_not_wait_for_a_line_that_is_stuck() -> None:
    wire = Wire()
    bus, _ = await started(wire)
    wire.free.clear()
    bus.publish(JobsWaiting())
    async with asyncio.timeout(5):
        await bus.close()


async def test_a_coordinator_alone_has_a_bus_that_does_nothing() -> None:
    bus = NoBus()
    heard = Heard()
    bus.start(heard)
    bus.publish(JobsWaiting())
    await bus.close()
    assert heard.notifications == []
    assert bus.connected
