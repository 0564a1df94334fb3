"""Workers that are connected and have nothing to do, many in one process: `python -m bench.peers.idle_workers PORT NUMBER`.

Each says hello over a WebSocket of its own, for a type of which there are no jobs, and sends heartbeats as it is told to.
"""

import asyncio
import json
import sys
import uuid
from typing import Final

import uvloop
from websockets.asyncio.client import ClientConnection, connect

READY: Final = "ready"
_AT_ONCE: Final = 20


async def main(port: int, number: int) -> None:
    turns = asyncio.Semaphore(_AT_ONCE)
    async with asyncio.TaskGroup() as group:
        welcomes = [asyncio.get_running_loop().create_future() for _ in range(number)]
        for place, welcome in enumerate(welcomes):
            group.create_task(_idle(port, place, turns, welcome))
        await asyncio.gather(*welcomes)
        print(READY, flush=True)


async def _idle(port: int, place: int, turns: asyncio.Semaphore, welcome: "asyncio.Future[None]") -> None:
    async with turns:
        line = await connect(f"ws://127.0.0.1:{port}/workers/connect", compression=None, ping_interval=None)
        hello = {"frame": "hello", "protocol": 1, "session": uuid.uuid4().hex, "name": f"idle-{place}"}
        await line.send(json.dumps({**hello, "threads": 1, "types": ["nothing-is-of-this-type"]}))
        said = json.loads(await line.recv())
        if said["frame"] != "welcome":
            raise ConnectionError(f"an idle worker was answered with {said}")
        welcome.set_result(None)
    async with asyncio.TaskGroup() as group:
        group.create_task(_listen(line))
        group.create_task(_beat(line, said["heartbeat_seconds"], place))


async def _listen(line: ClientConnection) -> None:
    async for _ in line:
        pass


async def _beat(line: ClientConnection, seconds: float, place: int) -> None:
    await asyncio.sleep(seconds * (place % 100) / 100)  # not all at once
    number = 0
    while True:
        number += 1
        await line.send(
            json.dumps({"frame": "heartbeat", "number": number, "threads_used": 0, "held": [], "assigned": 0})
        )
        await asyncio.sleep(seconds)


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]), int(sys.argv[2])))
