"""Job output, as the API uses it."""

from msgspec.structs import replace

from stoker.coordinator.job_output.output import JobOutput
from stoker.coordinator.jobs import JobService
from stoker.coordinator.waiters import woken
from stoker.coordinator.waits import Waits
from stoker.store.logs import LogPage, Selection


class OutputService:
    """Reads what jobs wrote, and how far they say they are."""

    def __init__(self, output: JobOutput, jobs: JobService, waits: Waits) -> None:
        self._output = output
        self._jobs = jobs
        self._waits = waits
        self.progress = output.progress

    async def page(self, which: Selection, after: int = 0, wait: float = 0.0) -> LogPage:
        """Return output after a position. When there is none yet, wait up to `wait` seconds for some, or for the end of the
        job. Raises MissingError, StoreUnavailable."""
        with self._output.watch(which.job_id) as news:
            page = await self._output.read(await self._jobs.get(which.job_id), which, after)
            for left in self._waits.looks(which.job_id, wait):
                if page.entries or page.ended or self._waits.closing:
                    break
                await woken(news, left)
                page = await self._output.read(await self._jobs.get(which.job_id), which, after)
        return replace(page, closing=True) if self._waits.closing else page
