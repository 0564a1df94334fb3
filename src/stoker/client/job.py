"""A job that was submitted, as seen from the program that waits for it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, Never, TypeVar, Unpack, cast

from stoker.client.edit import EditFields, edit
from stoker.client.requests import (
    ApiRequest,
    AttemptInfo,
    AttemptsInfo,
    JobError,
    JobInfo,
    LogEntry,
    LogsInfo,
    ProgressInfo,
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
    from stoker.client.outcomes import Outcome
    from stoker.client.transport import Transport
    from stoker.client.walks import Walk

__all__ = ["AttemptInfo", "JobError", "JobHandle", "JobInfo", "LogEntry", "ProgressInfo"]

R_co = TypeVar("R_co", covariant=True)


class JobHandle(Generic[R_co]):
    """A handle for one job: wait for its result, look at it, cancel or change it.

    `R_co` is the type of the result. Methods that send a request have a twin ending in `_async` for use on an event loop.
    `await job` waits for the result, like `await job.result_async()`.
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
        """`typed` converts the result of a completed job; without it the result is the decoded JSON."""
        self._transport = transport
        self._typed = typed
        self._info = info
        self._outcome: Outcome | None = None
        """The outcome that a wait for many jobs found; the next `result` returns it without a request."""
        self._type = type_name
        self.id = job_id
        """The id of the job, a UUIDv7 as text."""
        self.warnings = warnings
        """The warnings of the server when it stored the job, such as that no worker serves its type."""

    def __repr__(self) -> str:
        known = f" {self._type}" if self._type is not None else ""
        if self._info is not None:
            known = f" {self._info.type} {self._info.status}"
        return f"<JobHandle {self.id}{known}>"

    def __reduce__(self) -> Never:
        raise TypeError(
            f"the handle of job {self.id} has connections, which cannot go to another process: send its id, and make a "
            "handle of it there with task.job(id) or app.job(id)"
        )

    def __await__(self) -> Generator[Any, None, R_co]:
        """Wait for the result: the same as `await job.result_async()`."""
        return self.result_async().__await__()

    @property
    def info(self) -> JobInfo:
        """Return the job as last seen, with a request if it was never seen. On an event loop use `refresh_async`."""
        return self._info if self._info is not None else self.refresh()

    def refresh(self) -> JobInfo:
        """Ask the server for the job and return it as it is now."""
        return self._seen(self._transport.send(get_job(self.id)))

    async def refresh_async(self) -> JobInfo:
        """Ask the server for the job, like `refresh`, without blocking the event loop."""
        return self._seen(await self._transport.send_async(get_job(self.id)))

    def status(self) -> str:
        """Return the status now: blocked, scheduled, queued, running, completed, failed or cancelled."""
        return self.refresh().status

    async def status_async(self) -> str:
        """Return the status now, like `status`, without blocking the event loop."""
        return (await self.refresh_async()).status

    def result(self, timeout: float | None = None) -> R_co:
        """Wait for the job to end and return its result, as the type that the task's function is annotated to return.

        Raises `JobFailed`, `JobCancelled`, or `ResultTimeout` after `timeout` seconds (None: never).
        """
        if self._outcome is not None:
            return self._result(self._take())
        return self._result(self._seen(self._transport.waits.wait(self.id, timeout)))

    async def result_async(self, timeout: float | None = None) -> R_co:
        """Wait for the result like `result`. Any number of concurrent waits share one or two connections."""
        if self._outcome is not None:
            return self._result(self._take())
        return self._result(self._seen(await self._transport.waits.wait_async(self.id, timeout)))

    def cancel(self) -> JobInfo:
        """Cancel the job and return it: a waiting job never starts, a running one is told to stop.

        Raises `Conflict` if it has already completed or failed.
        """
        return self._seen(self._transport.send(self._cancel()))

    async def cancel_async(self) -> JobInfo:
        """Cancel the job, like `cancel`, without blocking the event loop."""
        return self._seen(await self._transport.send_async(self._cancel()))

    def update(self, **changes: Unpack[EditFields]) -> JobInfo:
        """Change a waiting job and return it: `job.update(priority=0)`.

        None clears a field, and metadata is replaced as a whole. Raises `Conflict` once it runs or is over.
        """
        return self._seen(self._transport.send(edit(self.id, changes)))

    async def update_async(self, **changes: Unpack[EditFields]) -> JobInfo:
        """Change a waiting job, like `update`, without blocking the event loop."""
        return self._seen(await self._transport.send_async(edit(self.id, changes)))

    def retry(self) -> JobInfo:
        """Run a failed or cancelled job again and return it, under the same id and with fresh attempts.

        A job that waits for its next attempt runs now. Raises `Conflict` in any other status.
        """
        return self._seen(self._transport.send(self._retry()))

    async def retry_async(self) -> JobInfo:
        """Run a failed or cancelled job again, like `retry`, without blocking the event loop."""
        return self._seen(await self._transport.send_async(self._retry()))

    def why(self) -> WhyInfo:
        """Return why the job has its status: what it waits for, and what to do about it. `str(job.why())` is a sentence."""
        return cast(WhyInfo, self._transport.send(self._why()))

    async def why_async(self) -> WhyInfo:
        """Return why the job has its status, like `why`, without blocking the event loop."""
        return cast(WhyInfo, await self._transport.send_async(self._why()))

    def events(self, follow: bool = True) -> Walk[JobEvent]:
        """Return the events of the job, oldest first: submitted, started, progress, retrying, and its end.

        Iterate with `for` or `async for`. With `follow` the iteration goes on until the job has ended.
        """
        from stoker.client.following import event_walk
        from stoker.client.walks import Walk

        return Walk(lambda: self._transport, lambda: event_walk(self.id, follow=follow))

    def attempts(self) -> list[AttemptInfo]:
        """Return the attempts at the job, oldest first, including the one that is running."""
        answer: AttemptsInfo = self._transport.send(self._attempts())
        return answer.attempts

    async def attempts_async(self) -> list[AttemptInfo]:
        """Return the attempts at the job, like `attempts`, without blocking the event loop."""
        answer: AttemptsInfo = await self._transport.send_async(self._attempts())
        return answer.attempts

    def logs(
        self, follow: bool = False, *, attempt: int | None = None, tail: int | None = None
    ) -> Iterator[LogEntry]:
        """Iterate over the output of the job, oldest first: all of it, that of one attempt, or the last `tail` lines.

        With `follow` the iteration goes on until the job ends: `for entry in job.logs(follow=True): print(entry.text,
        end="")`. It continues after a restart of the coordinator.
        """
        page: LogsInfo | None = None
        while request := get_logs(self.id, page, follow=follow, attempt=attempt, tail=tail):
            page = self._transport.send(request)
            yield from page.entries

    async def logs_async(
        self, follow: bool = False, *, attempt: int | None = None, tail: int | None = None
    ) -> AsyncIterator[LogEntry]:
        """Iterate over the output of the job, like `logs`: `async for entry in job.logs_async(follow=True)`."""
        page: LogsInfo | None = None
        while request := get_logs(self.id, page, follow=follow, attempt=attempt, tail=tail):
            page = await self._transport.send_async(request)
            for entry in page.entries:
                yield entry

    def _result(self, info: JobInfo) -> R_co:
        """Return the result of a job that has ended, or raise why it has none."""
        result: R_co = result_of(self._seen(info))
        return result if self._typed is None else self._typed(info)

    def _retry(self) -> ApiRequest:
        return post(job_path(self.id, "retry"), answer=JobInfo)

    def _why(self) -> ApiRequest:
        return get(job_path(self.id, "why"), WhyInfo)

    def _attempts(self) -> ApiRequest:
        return get(job_path(self.id, "attempts"), AttemptsInfo)

    def _cancel(self) -> ApiRequest:
        # Repeatable: cancelling twice has the effect of cancelling once.
        return post(job_path(self.id, "cancel"), answer=JobInfo, repeatable=True)

    def _seen(self, info: JobInfo) -> JobInfo:
        self._info = info
        return info

    def _note(self, outcome: Outcome) -> None:
        self._outcome = outcome
        if isinstance(outcome, JobInfo):
            self._info = outcome

    def _take(self) -> JobInfo:
        """Return the noted outcome, or raise it, and clear it."""
        outcome, self._outcome = self._outcome, None
        assert outcome is not None  # noqa: S101 - only asked for where there is one
        return outcome if isinstance(outcome, JobInfo) else outcome.give()
