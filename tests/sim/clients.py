"""Clients that submit, cancel, replay and wait, and write down what they asked and what they were told.

A client that gets no clear answer to a submission under a key or with an id of its own, or to a cancel, asks again until it
gets one, as the SDK does.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from itertools import groupby
from random import Random
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from stoker.clock import SECOND
from stoker.coordinator.assembly import Coordinator
from stoker.domain.errors import (
    IdempotencyMismatch,
    IdMismatch,
    JobPruned,
    MissingError,
    Overloaded,
    StateConflict,
    StokerDomainError,
)
from stoker.domain.extras import extras_of
from stoker.domain.job import NO_DEFAULTS, Job, JobSpec, Oversize, new_job
from stoker.domain.job_batch import batch_of, joined
from stoker.domain.retry_rules import RetryRules
from stoker.store.submissions import IdempotencyKey, Submission
from stoker.testing.loop import Process
from tests.checkers.history import Answer, Item, Op
from tests.sim.machine import ERROR, UNNAMED_TYPE, Deed
from tests.sim.nodes import Refused, Unknown
from tests.support.jobs import a_submission

if TYPE_CHECKING:
    from tests.sim.world import World

T = TypeVar("T")

ANSWER_SECONDS: Final = 4.0
KEY_SECONDS: Final = 86_400
KEEP_SEC: Final = 2 * 86_400.0
"""Longer than all that clocks are set forward by in a run: no job may be gone at its end."""
NOTIFY_URL: Final = "https://hooks.example.com/sim"
DEFINITE: Final = (
    Refused,
    StateConflict,
    MissingError,
    IdempotencyMismatch,
    IdMismatch,
    JobPruned,
    Overloaded,
)


class Order(msgspec.Struct, frozen=True):
    """One job that a client wants: what it does, and under which key it is sent."""

    deed: Deed
    type: str = "work"
    key: str | None = None
    max_attempts: int = 4
    timeout_sec: float | None = None
    delay_sec: float | None = None
    thread_demand: int = 1
    priority: int = 1
    labels: dict[str, str] = {}
    on_oversize: Oversize = "degrade"
    retry: RetryRules | None = None
    notify: bool = False
    keep_sec: float | None = None
    id: str | None = None
    """Made by the client."""

    @property
    def item(self) -> Item:
        return Item(self.deed.marker, self.key, self.body, self.delay_sec or 0.0, self.id)

    @property
    def body(self) -> str:
        return hashlib.sha256(msgspec.json.encode(self)).hexdigest()[:12]

    def spec(self) -> JobSpec:
        return JobSpec(
            payload=msgspec.Raw(msgspec.json.encode(self.deed)),
            type=self.type,
            priority=self.priority,
            timeout_sec=self.timeout_sec,
            thread_demand=self.thread_demand,
            max_attempts=self.max_attempts,
            delay_sec=self.delay_sec,
            labels=self.labels,
            on_oversize=self.on_oversize,
            retry=self.retry,
            notify_url=NOTIFY_URL if self.notify else None,
            keep_sec=self.keep_sec,
        )


class Client:
    def __init__(self, world: "World", name: str) -> None:
        self.world = world
        self.name = name
        self.process = Process(world.loop, name)
        self.random = world.random(name)
        self._sizes = world.random(f"{name}/sizes")
        self._odd = world.random(f"{name}/odd")
        self._features = world.random(f"{name}/features")
        self._naming = world.random(f"{name}/naming")
        self.known: list[str] = []
        self.busy = 0
        self._orders = 0

    # ── what it does over time ─────────────────────────────────────────────────────────────────────────────────────

    async def work(self, until: float, mean_seconds: float) -> None:
        """Do something every now and then."""
        loop, random = self.world.loop, self.random
        while True:
            pause = random.uniform(0.0, 2 * mean_seconds)
            if loop.time() + pause >= until:
                return
            await asyncio.sleep(pause)
            self.start(self._something())

    def start(self, work: Awaitable[Any]) -> None:
        self.busy += 1
        self.process.spawn(self._tracked(work))

    async def _tracked(self, work: Awaitable[Any]) -> None:
        await work
        self.busy -= 1

    async def _something(self) -> None:
        random = self.random
        what = random.random()
        if what < 0.62 or not self.known:
            await self._submit_some()
        elif what < 0.75:
            await self.cancel(random.choice(self.known))
        elif what < 0.84:
            await self.replay(random.choice(self.known))
        else:
            await self.wait(random.choice(self.known), random.choice([0.0, 2.0, 8.0]))

    async def _submit_some(self) -> None:
        random = self.random
        size = random.choice([1, 1, 1, 2, 4])
        orders = self._crowd() if random.random() < 0.1 else [self.order() for _ in range(size)]
        await self.submit(orders)
        first = orders[0]
        if first.key is not None and random.random() < 0.15:
            await self._send_again(first)
        if first.id is not None and self._naming.random() < 0.3:
            if self._naming.random() < 0.5:
                await self.wait(first.id, 8.0)
            await self._send_again(first)
        if self.known and random.random() < 0.4:
            await self._mind(self.known[-1])

    async def _mind(self, id: str) -> None:
        """Wait for a job, and try again at once what failed."""
        for _ in range(3):
            status = await self.wait(id, 8.0)
            if status == "failed":
                await self.replay(id)
                return

    async def _send_again(self, order: Order) -> None:
        """The same key or id again: twice at the same time, and once for something else, which must be refused."""
        other = msgspec.structs.replace(
            order, deed=msgspec.structs.replace(order.deed, marker=f"{order.deed.marker}-other")
        )
        await asyncio.gather(self.submit([order]), self.submit([order]))
        if order.id is not None:  # beside jobs of others, which may share a transaction with what is refused
            await asyncio.gather(self.try_submit([other]), self.submit([self._named(self.order())]))
        else:
            await self.try_submit([other])

    def order(self) -> Order:
        """A job drawn from the mix."""
        self._orders += 1
        order = with_features(self._features, draw_order(self.random, f"{self.name}-{self._orders}"))
        plain = order.thread_demand == 1 and not order.labels
        if self.world.any_type and plain and self._odd.random() < 0.2:
            order = msgspec.structs.replace(order, type=UNNAMED_TYPE)
        return self._named(order) if self._naming.random() < 0.35 else order

    def _named(self, order: Order) -> Order:
        """The same job with an id in place of a key."""
        return order if order.id else msgspec.structs.replace(order, key=None, id=self.world.new_job_id())

    def _crowd(self) -> list[Order]:
        """Jobs that differ in what they do alone, and have no keys: they are stored and handed out as one batch."""
        size, attempts, priority = (self.random.choice(of) for of in ([3, 9, 14], [1, 2, 4], [0, 1, 2]))
        large = self._sizes.random() < 0.6
        deeds = [self._large_deed() if large else self._short_deed() for _ in range(size)]
        orders = [Order(deed, "quick", None, attempts, None, None, 1, priority) for deed in deeds]
        return [self._named(order) for order in orders] if self._naming.random() < 0.5 else orders

    def _large_deed(self) -> Deed:
        weight = "x" * self._sizes.choice([20_000, 40_000, 55_000])
        return msgspec.structs.replace(self._short_deed(), weight=weight)

    def _short_deed(self) -> Deed:
        self._orders += 1
        marker, kind = f"{self.name}-{self._orders}", self.random.random()
        if kind < 0.05:
            return Deed(marker, self.random.uniform(1.0, 4.0))
        return Deed(marker, self.random.uniform(0.0005, 0.01), "error" if kind < 0.1 else "ok")

    # ── requests ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def submit(self, orders: list[Order]) -> None:
        """Send until it is clear; without keys and ids, once."""
        while not await self.try_submit(orders):
            if any(order.key is None and order.id is None for order in orders):
                return
            await asyncio.sleep(self.random.uniform(0.3, 2.0))

    async def try_submit(self, orders: list[Order]) -> bool:
        """Whether the answer is clear."""
        items = [order.item for order in orders]
        called = self.world.loop.time()

        async def submit(coordinator: Coordinator) -> list[Job]:
            now = coordinator.clock.now_us()
            submitted = await coordinator.jobs.submit(
                in_batches([self._submission(order, now) for order in orders])
            )
            return [job for accepted in submitted.accepted for job in accepted.batch]

        jobs, answer, text = await self._ask(submit)
        ids = [job.id for job in jobs] if jobs is not None else []
        told = f"[{' '.join(i.marker for i in items)}] {text}"
        self._wrote("submit", called, answer, told, items, ids, why=text if answer == "refused" else None)
        self.known += [id for id in ids if id not in self.known]
        return answer == "ok" or text in ("IdempotencyMismatch", "IdMismatch", "JobPruned")

    def _submission(self, order: Order, now: int) -> Submission:
        delay = int((order.delay_sec or 0.0) * SECOND)
        spec = order.spec()
        job = new_job(
            spec,
            id=order.id or self.world.new_job_id(),
            now=now,
            run_at=now + delay,
            max_attempts=order.max_attempts,
            order="lowest_first",
            digest=None
            if order.id is None
            else hashlib.blake2b(order.body.encode(), digest_size=16).digest(),
            extras=extras_of(spec, NO_DEFAULTS, now),
        )
        if order.key is None:
            return a_submission(job)
        key = IdempotencyKey(self.name, order.key, order.body.encode(), now + KEY_SECONDS * SECOND)
        return a_submission(job, key)

    async def cancel(self, id: str) -> None:
        """Ask until it is clear."""
        while True:
            called = self.world.loop.time()
            job, answer, text = await self._ask(lambda coordinator: coordinator.jobs.cancel(id))
            self._wrote("cancel", called, answer, f"{id} {text}", jobs=[id], job=job)
            if answer == "ok" or (answer == "refused" and text != "Refused"):
                return
            await asyncio.sleep(self.random.uniform(0.3, 2.0))

    async def replay(self, id: str) -> None:
        called = self.world.loop.time()
        job, answer, text = await self._ask(lambda coordinator: coordinator.jobs.retry(id))
        self._wrote("replay", called, answer, f"{id} {text}", jobs=[id], job=job)

    async def wait(self, id: str, seconds: float) -> str | None:
        called = self.world.loop.time()
        job, answer, text = await self._ask(
            lambda coordinator: coordinator.waits.for_job(id, seconds), seconds
        )
        self._wrote("get", called, answer, f"{id} {text}", jobs=[id], job=job)
        return None if job is None else job.status

    async def _ask(
        self, handler: Callable[[Coordinator], Awaitable[T]], more_seconds: float = 0.0
    ) -> tuple[T | None, Answer, str]:
        node = self.random.choice(self.world.coordinators)
        try:
            result = await node.call(self.process, self.random, handler, ANSWER_SECONDS + more_seconds)
        except DEFINITE as error:
            return None, "refused", type(error).__name__
        except (Unknown, StokerDomainError) as error:
            return None, "unknown", type(error).__name__
        return result, "ok", ""

    def _wrote(
        self,
        what: Any,
        called: float,
        answer: Answer,
        text: str,
        items: list[Item] | None = None,
        jobs: list[str] | None = None,
        job: Job | None = None,
        why: str | None = None,
    ) -> None:
        value = None
        if job is not None and job.result is not None:
            value = job.result.decode()
        op = Op(
            what,
            self.name,
            called,
            self.world.loop.time(),
            answer,
            items or [],
            jobs or [],
            None if job is None else job.status,
            None if job is None else job.claim_id,
            value,
            why,
        )
        self.world.ops.append(op)
        told = " ".join(op.jobs if what == "submit" else [op.status or "", str(op.claim or "")])
        self.world.trace(self.name, f"{what} {text} {answer} {told}")


def in_batches(submissions: list[Submission]) -> list[Submission]:
    """Neighbours that are alike and have no keys as one batch, as the API makes them."""
    found: list[Submission] = []
    for named, run in groupby(submissions, lambda item: item.key is not None):
        if named:
            found += run
        else:
            jobs = [job for item in run for job in item.batch]
            numbered = [msgspec.structs.replace(job, seq=number) for number, job in enumerate(jobs)]
            found += map(Submission, joined(map(batch_of, numbered)))
    return found


def draw_order(random: Random, marker: str) -> Order:
    """One job of the mix: short, long, failing, crashing, hanging, delayed, large."""
    key = f"key-{marker}" if random.random() < 0.7 else None
    priority = random.choice([0, 1, 1, 2])
    attempts = random.choice([1, 2, 3, 4, 4])
    deed, type = _draw_deed(random, marker)
    timeout = None
    if deed.then == "hang":
        timeout = random.uniform(0.5, 2.5)
        if random.random() < 0.4:
            timeout, key = None, f"key-{marker}"
    elif random.random() < 0.1:
        timeout = deed.seconds + random.uniform(2.0, 8.0)
    return Order(
        deed,
        type,
        key,
        attempts,
        timeout,
        random.uniform(0.5, 8.0) if random.random() < 0.12 else None,
        2 if type == "work" and random.random() < 0.1 else 1,
        priority,
    )


POLICIES: Final = (
    RetryRules(backoff="fixed", base_sec=0.5, jitter=0.2),
    RetryRules(backoff="linear", base_sec=0.4, cap_sec=1.0),
    RetryRules(backoff="exponential", base_sec=0.3, cap_sec=2.0, on=(ERROR,)),
    RetryRules(delays_sec=(0.2, 1.5, 3.0)),
    RetryRules(base_sec=0.2, never=(ERROR,)),
)


def with_features(random: Random, order: Order) -> Order:
    """The order, now and then with a retry policy of its own, snoozes, a webhook or a retention."""
    retry = random.choice(POLICIES) if random.random() < 0.25 else None
    snoozes = random.choice([1, 2, 3]) if random.random() < 0.08 else 0
    attempts = order.max_attempts
    if retry is not None and retry.delays_sec is not None:
        attempts = len(retry.delays_sec) + 1
    deed = msgspec.structs.replace(order.deed, snoozes=snoozes) if snoozes else order.deed
    return msgspec.structs.replace(
        order,
        deed=deed,
        retry=retry,
        max_attempts=attempts,
        notify=random.random() < 0.15,
        keep_sec=KEEP_SEC if random.random() < 0.1 else None,
    )


def _draw_deed(random: Random, marker: str) -> tuple[Deed, str]:
    kind = random.random()
    stubborn, listens = random.random() < 0.3, random.random() < 0.3
    if kind < 0.30:
        # A few of a short type take long: whatever was given to a worker ahead of time behind them goes back.
        slow = random.random() < 0.15
        return Deed(marker, random.uniform(1.0, 6.0) if slow else random.uniform(0.0005, 0.015)), "quick"
    if kind < 0.50:
        return Deed(marker, random.uniform(0.05, 2.0), stubborn=stubborn, listens=listens), "work"
    if kind < 0.62:
        return Deed(marker, random.uniform(5.0, 10.0), stubborn=stubborn), "work"
    if kind < 0.70:
        return Deed(marker, random.uniform(0.05, 3.0)), "nap"
    if kind < 0.80:
        return Deed(marker, random.uniform(0.001, 0.5), "error", random.choice([0, 1, 2])), "work"
    if kind < 0.83:
        return Deed(marker, 0.01, "invalid"), "quick"
    if kind < 0.91:
        deed = Deed(marker, random.uniform(0.01, 0.5), "crash", random.choice([0, 1, 2]))
        return msgspec.structs.replace(deed, holds=random.random() < 0.3), "work"
    return Deed(marker, 1.0, "hang", stubborn=stubborn, listens=listens), "nap" if kind > 0.98 else "work"
