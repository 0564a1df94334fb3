"""A job that was submitted, as seen from the program that waits for it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack, cast

from stoker.client.edit import EditFields, edit
from stoker.client.requests import (
    AttemptInfo,
    AttemptsInfo,
    JobError,
    JobInfo,
    LogEntry,
    LogsInfo,
    ProgressInfo,
    Request,
    WhyInfo,
    get,
    get_job,
    get_logs,
    job_path,
    post,
    result_of,
)

if TYPE_CHECKING:
    from stoker.client.following import JobEvent
    from stoker.client.transport import Transport
    from stoker.client.waits import Outcome
    from stoker.client.walks import Walk

__all__ = ["AttemptInfo", "JobError", "JobHandle", "JobInfo", "LogEntry", "ProgressInfo"]

R_co = TypeVar("R_co", covariant=True)


class JobHandle(Generic[R_co]):
    """A job by its id, whose task returns an `R_co`. `info` is what is known of it; methods ask the server.

    Every method that asks has a twin ending in `_async` for use on an event loop. `await job` is its result.
    """

    __slots__ = ("__weakref__", "_info", "_outcome", "_transport", "_type", "_typed", "id", "warnings")

    def __init__(
        self,
        transport: Transport,
        job_id: str,
        info: JobInfo | None = None,
        *,
        typed: Callable[[JobInfo], R_co] | None = None,
        type_name: str | None = None,
        warnings: Sequence[str] = (),
    ) -> None:
        """`typed` makes the result of a completed job what its task returned; without it, it is as JSON has it."""
        self._transport = transport
        self._typed = typed
        self._info = info
        self._outcome: Outcome | None = None
        """What a wait for many jobs found out about this one; the next `result` uses it and makes no request."""
        self._type = type_name
        self.id = job_id
        self.warnings = warnings
        """What the server said when it stored the job, such as that no worker serves its type."""

    def __repr__(self) -> str:
        known = f" {self._type}" if self._type is not None else ""
        if self._info is not None:
            known = f" {self._info.type} {self._info.status}"
        return f"<JobHandle {self.id}{known}>"

    def __await__(self) -> Generator[Any, None, R_co]:
        """Wait for the end: the same as `await job.result_async()`."""
        return self.result_async().__await__()

    @property
    def info(self) -> JobInfo:
        """The job as last seen; asks once if it was never seen. On an event loop, `refresh_async` asks without blocking."""
        return self._info if self._info is not None else self.refresh()

    def refresh(self) -> JobInfo:
        """The job as it is now."""
        return self._seen(self._transport.send(get_job(self.id)))

    async def refresh_async(self) -> JobInfo:
        """The job as it is now."""
        return self._seen(await self._transport.send_async(get_job(self.id)))

    def status(self) -> str:
        """The status now: blocked, scheduled, queued, running, completed, failed or cancelled."""
        return self.refresh().status

    async def status_async(self) -> str:
        """The status now."""
        return (await self.refresh_async()).status

    def result(self, timeout: float | None = None) -> R_co:
        """Wait for the end and return the result, as the type that the task's function is annotated to return.

        Raises `JobFailed`, `JobCancelled`, or `ResultTimeout` after `timeout` seconds (None: never).
        """
        if self._outcome is not None:
            return self._result(self._take())
        return self._result(self._seen(self._transport.waits.wait(self.id, timeout)))

    async def result_async(self, timeout: float | None = None) -> R_co:
        """Wait for the end and return the result, like `result`. Any number of these share one or two connections."""
        if self._outcome is not None:
            return self._result(self._take())
        return self._result(self._seen(await self._transport.waits.wait_async(self.id, timeout)))

    def cancel(self) -> JobInfo:
        """Cancel: a job that waits never starts, one that runs is told to stop.

        Raises `Conflict` if it has already completed or failed.
        """
        return self._seen(self._transport.send(self._cancel()))

    async def cancel_async(self) -> JobInfo:
        """Cancel, like `cancel`."""
        return self._seen(await self._transport.send_async(self._cancel()))

    def update(self, **changes: Unpack[EditFields]) -> JobInfo:
        """Change the job while it waits: `job.update(priority=0)`; None clears, and metadata is replaced as a whole.

        Raises `Conflict` once it runs or is over.
        """
        return self._seen(self._transport.send(edit(self.id, changes)))

    async def update_async(self, **changes: Unpack[EditFields]) -> JobInfo:
        """Change the job while it waits, like `update`."""
        return self._seen(await self._transport.send_async(edit(self.id, changes)))

    def retry(self) -> JobInfo:
        """Run a failed or cancelled job again, under the same id and with fresh attempts; a job that waits for its retry
        runs now. Raises `Conflict` if it is none of these."""
        return self._seen(self._transport.send(self._retry()))

    async def retry_async(self) -> JobInfo:
        """Run it again, like `retry`."""
        return self._seen(await self._transport.send_async(self._retry()))

    def why(self) -> WhyInfo:
        """Why the job is where it is: what it waits for, and what to do about it. `str(job.why())` is a sentence."""
        return cast(WhyInfo, self._transport.send(self._why()))

    async def why_async(self) -> WhyInfo:
        """Why the job is where it is, like `why`."""
        return cast(WhyInfo, await self._transport.send_async(self._why()))

    def events(self, follow: bool = True) -> Walk[JobEvent]:
        """What happened to the job, oldest first: submitted, started, progress, retrying, and how it ended. With `follow` it
        goes on until the job has ended. For `for` and for `async for`."""
        from stoker.client.following import event_walk
        from stoker.client.walks import Walk

        return Walk(lambda: self._transport, lambda: event_walk(self.id, follow=follow))

    def attempts(self) -> list[AttemptInfo]:
        """Every attempt at the job, oldest first, the one under way included."""
        answer: AttemptsInfo = self._transport.send(self._attempts())
        return answer.attempts

    async def attempts_async(self) -> list[AttemptInfo]:
        """Every attempt at the job, like `attempts`."""
        answer: AttemptsInfo = await self._transport.send_async(self._attempts())
        return answer.attempts

    def logs(
        self, follow: bool = False, *, attempt: int | None = None, tail: int | None = None
    ) -> Iterator[LogEntry]:
        """What the job wrote so far, oldest first: all of it, that of one attempt, or the last `tail` lines.

        With `follow` it goes on with what comes, and ends when the job does: `for entry in job.logs(follow=True):
        print(entry.text, end="")`. It survives a restart of the coordinator.
        """
        page: LogsInfo | None = None
        while request := get_logs(self.id, page, follow=follow, attempt=attempt, tail=tail):
            page = self._transport.send(request)
            yield from page.entries

    async def logs_async(
        self, follow: bool = False, *, attempt: int | None = None, tail: int | None = None
    ) -> AsyncIterator[LogEntry]:
        """What the job wrote, like `logs`: `async for entry in job.logs_async(follow=True)`."""
        page: LogsInfo | None = None
        while request := get_logs(self.id, page, follow=follow, attempt=attempt, tail=tail):
            page = await self._transport.send_async(request)
            for entry in page.entries:
                yield entry

    def _result(self, info: JobInfo) -> R_co:
        """The result of a job that has ended."""
        result: R_co = result_of(self._seen(info))
        return result if self._typed is None else self._typed(info)

    def _retry(self) -> Request:
        return post(job_path(self.id, "retry"), answer=JobInfo)

    def _why(self) -> Request:
        return get(job_path(self.id, "why"), WhyInfo)

    def _attempts(self) -> Request:
        return get(job_path(self.id, "attempts"), AttemptsInfo)

    def _cancel(self) -> Request:
        # Cancelling twice is cancelling once.
        return post(job_path(self.id, "cancel"), answer=JobInfo, repeatable=True)

    def _seen(self, info: JobInfo) -> JobInfo:
        self._info = info
        return info

    def _note(self, outcome: Outcome) -> None:
        self._outcome = outcome
        if isinstance(outcome, JobInfo):
            self._info = outcome

    def _take(self) -> JobInfo:
        """What was noted, once."""
        outcome, self._outcome = self._outcome, None
        assert outcome is not None  # noqa: S101 - only asked for where there is one
        return outcome if isinstance(outcome, JobInfo) else outcome.give()
