"""The coordinator as the autoscaler sees it: three calls of its REST API, and one to tell it what was decided."""

import msgspec

from stoker.client.errors import StokerError
from stoker.client.requests import get, post, worker_path
from stoker.client.transport import Transport
from stoker.domain.scaling import ScalingState


class Stats(msgspec.Struct, frozen=True):
    """The fields of `GET /stats` that the autoscaler reads."""

    queue_depth: int
    paused_depth: int = 0
    pending_thread_seconds: float | None = None


class WorkerRow(msgspec.Struct, frozen=True):
    """The fields of one worker in `GET /workers` that the autoscaler reads."""

    id: str
    name: str
    status: str
    threads: int = 1
    threads_used: int = 0
    host: str | None = None
    pid: int | None = None

    @property
    def is_idle(self) -> bool:
        return self.status == "live" and self.threads_used == 0


class _WorkerRows(msgspec.Struct, frozen=True):
    workers: list[WorkerRow]


class CoordinatorSnapshot(msgspec.Struct, frozen=True):
    """Ask the coordinator for its statistics and workers."""

    stats: Stats
    workers: list[WorkerRow]


class CoordinatorApi:
    """The coordinator's REST API, as far as the autoscaler uses it. Raises `StokerError` when the coordinator does not
    answer, or not as expected."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def look(self) -> CoordinatorSnapshot:
        stats: Stats = await self._transport.send_async(get("/stats", Stats))
        answer: _WorkerRows = await self._transport.send_async(get("/workers", _WorkerRows))
        return CoordinatorSnapshot(stats, answer.workers)

    async def drain(self, worker_id: str) -> None:
        await self._transport.send_async(post(worker_path(worker_id, "drain"), repeatable=True))

    async def tell(self, state: ScalingState) -> bool:
        """Show the decision in `/stats` and `/metrics`. It is news, not a need: whether it was taken."""
        try:
            await self._transport.send_async(post("/autoscaler", state, repeatable=True))
        except StokerError:
            return False
        return True

    async def close(self) -> None:
        await self._transport.aclose()
