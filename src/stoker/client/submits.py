"""Submits jobs over a transport: single ones at once, concurrent ones together, many in batches."""

from __future__ import annotations

import asyncio
import copy
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING

from stoker.client import requests
from stoker.client.errors import ConnectionFailed, InvalidInput, StokerError, Unavailable
from stoker.client.outcomes import WaitFailure, failure
from stoker.client.sharing import LoopSharing, ThreadSharing
from stoker.client.submission import (
    AcceptedJob,
    NewJob,
    Submitted,
    batches,
    read_batch,
    read_one,
    submit_batch,
    submit_one,
)

if TYPE_CHECKING:
    from stoker.client.http1 import RawAnswer
    from stoker.client.requests import ApiRequest
    from stoker.client.transport import Transport


class Submits:
    """The submits of one process to one server."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._threads = ThreadSharing(self.send_one, self.send_many)
        self._begin()

    def _begin(self) -> None:
        self._loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, LoopSharing] = (
            weakref.WeakKeyDictionary()
        )

    def forget(self) -> None:
        """Start anew in a forked child: submits that are under way belong to the parent."""
        self._threads.forget()
        self._begin()

    def submit(self, job: NewJob) -> AcceptedJob:
        """Submit one job, together with those that other threads submit meanwhile."""
        return self._threads.submit(job)

    async def submit_async(self, job: NewJob) -> AcceptedJob:
        """Submit one job, together with those that other tasks of this loop submit meanwhile."""
        loop = asyncio.get_running_loop()
        sharing = self._loops.get(loop)
        if sharing is None:
            sharing = self._loops[loop] = LoopSharing(self.send_one_async, self.send_many_async)
        return await sharing.submit(job)

    def submit_many(self, jobs: Sequence[NewJob]) -> list[AcceptedJob]:
        """Submit many jobs in as few requests as the bounds allow; each request is all or nothing."""
        accepted: list[AcceptedJob] = []
        for batch in batches(jobs, requests.BATCH_MAX_JOBS, requests.BATCH_MAX_BYTES):
            request = submit_batch(batch, atomic=True)
            accepted += _all_of(read_batch(request, self._transport.exchange(request), batch))
        return accepted

    async def submit_many_async(self, jobs: Sequence[NewJob]) -> list[AcceptedJob]:
        """Submit many jobs, like `submit_many`, without blocking the loop."""
        accepted: list[AcceptedJob] = []
        for batch in batches(jobs, requests.BATCH_MAX_JOBS, requests.BATCH_MAX_BYTES):
            request = submit_batch(batch, atomic=True)
            answer = await self._transport.exchange_async(request)
            accepted += _all_of(read_batch(request, answer, batch))
        return accepted

    def send_one(self, job: NewJob) -> AcceptedJob:
        """Submit one job by a request of its own."""
        request = submit_one(job)
        try:
            answer = self._transport.exchange(request)
        except ConnectionFailed as error:
            raise ConnectionFailed(error.url, error.reason, job.id) from error
        return _stored(request, answer, job)

    async def send_one_async(self, job: NewJob) -> AcceptedJob:
        """Submit one job, like `send_one`, without blocking the loop."""
        request = submit_one(job)
        try:
            answer = await self._transport.exchange_async(request)
        except ConnectionFailed as error:
            raise ConnectionFailed(error.url, error.reason, job.id) from error
        return _stored(request, answer, job)

    def send_many(self, jobs: list[NewJob]) -> list[Submitted]:
        """Submit jobs by one request, each accepted or refused for itself. Failures are returned, not raised."""
        if len(jobs) == 1:
            return [self._try_one(jobs[0])]
        request = submit_batch(jobs, atomic=False)
        try:
            return read_batch(request, self._transport.exchange(request), jobs)
        except InvalidInput:
            return [self._try_one(job) for job in jobs]
        except StokerError as error:
            return _failed(jobs, error)

    async def send_many_async(self, jobs: list[NewJob]) -> list[Submitted]:
        """Submit jobs, like `send_many`, without blocking the loop."""
        if len(jobs) == 1:
            return [await self._try_one_async(jobs[0])]
        request = submit_batch(jobs, atomic=False)
        try:
            return read_batch(request, await self._transport.exchange_async(request), jobs)
        except InvalidInput:
            return [await self._try_one_async(job) for job in jobs]
        except StokerError as error:
            return _failed(jobs, error)

    def _try_one(self, job: NewJob) -> Submitted:
        try:
            return self.send_one(job)
        except StokerError as error:
            return failure(error)

    async def _try_one_async(self, job: NewJob) -> Submitted:
        try:
            return await self.send_one_async(job)
        except StokerError as error:
            return failure(error)


def _all_of(outcomes: list[Submitted]) -> list[AcceptedJob]:
    """Return the jobs of an atomic batch, or raise its failure."""
    return [outcome.give() if isinstance(outcome, WaitFailure) else outcome for outcome in outcomes]


def _stored(request: ApiRequest, answer: RawAnswer, job: NewJob) -> AcceptedJob:
    """Return the stored job of an answer. The error of a 5xx has the id by which the job can be submitted again."""
    try:
        return read_one(request, answer)
    except Unavailable as error:
        error.job_id = job.id
        raise


def _failed(jobs: list[NewJob], error: StokerError) -> list[Submitted]:
    """Return the same failure for all jobs, each with the id by which the job can be submitted again if that may help."""
    if isinstance(error, ConnectionFailed):
        return [failure(ConnectionFailed(error.url, error.reason, job.id)) for job in jobs]
    if isinstance(error, Unavailable):
        return [failure(_named(error, job)) for job in jobs]
    return [failure(error)] * len(jobs)


def _named(error: Unavailable, job: NewJob) -> Unavailable:
    named = copy.copy(error)
    named.job_id = job.id
    return named
