"""The loop: look, decide, act, tell.

It owns no truth and remembers next to nothing: every turn asks what really runs. A turn that cannot see (no
coordinator, no engine) changes nothing, and what was quiet before does not count as quiet after it.

A worker is removed in three steps, none of which can cost a job anything: it is idle; it is told to drain, through the
API, so that it gets nothing more; it says goodbye and ends by itself. Should it get a job between the first two, it
finishes it. The only workers that are ended from here are those that no coordinator has known for a while: they hold
no lease, so they run nothing.
"""

import asyncio
from typing import Final, Protocol

import structlog
from msgspec.structs import replace

from stoker.autoscale.coordinator_api import CoordinatorSnapshot
from stoker.autoscale.fleet import Fleet, all_workers, assess
from stoker.autoscale.providers.base import Provider, ProviderError
from stoker.client.errors import StokerError
from stoker.clock import Clock
from stoker.domain.scaling import Decision, History, Rules, ScalingState, decide
from stoker.settings import Settings

TICK_SECONDS: Final = 1.0
UNKNOWN_SECONDS: Final = 60.0
"""A worker of ours that no coordinator knows for so long has left without ending, or never will arrive."""
RECOMMEND: Final = "recommend"
_EVENTS: Final = {"up": "scale_up", "down": "scale_down"}

log = structlog.get_logger()


class CoordinatorClient(Protocol):
    """`stoker.autoscale.coordinator_api.CoordinatorApi`."""

    async def look(self) -> CoordinatorSnapshot: ...

    async def drain(self, worker_id: str) -> None: ...

    async def tell(self, state: ScalingState) -> bool: ...


def rules_of(settings: Settings) -> Rules:
    """Return the operator's rules."""
    return Rules(
        threshold_high=settings.queue_threshold_high,
        threshold_low=settings.queue_threshold_low,
        stable_seconds=settings.scale_down_stable_sec,
        cooldown_seconds=settings.scale_cooldown_sec,
        min_workers=settings.min_workers,
        max_workers=settings.max_workers,
        basis=settings.scale_by,
        target_seconds=settings.scale_target_sec,
    )


class Autoscaler:
    """Adjusts the number of workers to the load, one tick at a time.

    Without a provider it only recommends, and counts the registered workers. With a provider that it may not use (`acts`
    is False) it only recommends too, but counts the workers that the provider really runs.
    """

    def __init__(
        self,
        rules: Rules,
        coordinator: CoordinatorClient,
        provider: Provider | None,
        clock: Clock,
        *,
        worker_threads: int,
        acts: bool = True,
    ) -> None:
        self._rules = rules
        self._coordinator = coordinator
        self._provider = provider
        self._hands = provider if acts else None
        self._clock = clock
        self._worker_threads = worker_threads
        self._history = History()
        self._unknown: dict[str, float] = {}
        self._blind = False
        self.latest: Decision | None = None

    @property
    def mode(self) -> str:
        return RECOMMEND if self._hands is None else self._hands.mode

    async def run(self) -> None:
        log.info(
            "autoscaler_started",
            mode=self.mode,
            min_workers=self._rules.min_workers,
            max_workers=self._rules.max_workers,
        )
        while True:
            try:
                await self.tick()
            except Exception:
                # A defect of ours must not leave the system without its scaler, nor go unseen.
                log.exception("autoscaler_failed")
            await asyncio.sleep(TICK_SECONDS)

    async def tick(self) -> Decision | None:
        """Look and act once. Return None if the coordinator could not be asked."""
        try:
            fleet = await self._look()
        except (StokerError, ProviderError) as error:
            self._cannot_see(error)
            return None
        self._blind = False
        now = self._clock.monotonic()
        decision, self._history = decide(fleet.load, self._history, self._rules, now)
        if self._hands is None:
            self._recommend(decision)
        else:
            await self._act(self._hands, decision, fleet)
            await self._end_unknown(self._hands, fleet.unknown)
        self.latest = decision
        await self._coordinator.tell(self._state(decision))
        return decision

    # ── look ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _look(self) -> Fleet:
        if self._provider is None:
            return all_workers(await self._coordinator.look(), self._worker_threads)
        own = await self._provider.running()
        seen = await self._coordinator.look()
        return assess(seen, own, self._provider.owns, self._worker_threads)

    def _cannot_see(self, error: Exception) -> None:
        if not self._blind:
            log.warning(
                "autoscaler_blind", detail=str(error), effect="nothing is changed until it can see again"
            )
        self._blind = True
        self._history = replace(self._history, low_since=None)
        self._unknown.clear()

    # ── act ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _recommend(self, decision: Decision) -> None:
        """Said once, not every second, until it is another."""
        before = self.latest
        known = before is not None and (before.action, before.wanted) == (decision.action, decision.wanted)
        if not known and decision.action != "stay":
            self._say(decision)

    async def _act(self, provider: Provider, decision: Decision, fleet: Fleet) -> None:
        if decision.action == "stay":
            return
        # Also when it fails: what failed now would fail again in a second, a thousand times an hour.
        self._history = self._history.changed(self._clock.monotonic())
        try:
            if decision.action == "up":
                started = await provider.start(decision.wanted - decision.workers)
                self._say(decision, started=list(started))
            else:
                leaving = fleet.removable[0]
                await self._coordinator.drain(leaving.id)
                self._say(decision, draining=leaving.name)
        except (StokerError, ProviderError) as error:
            log.error("scale_failed", action=decision.action, reason=decision.reason, detail=str(error))

    def _say(self, decision: Decision, **more: object) -> None:
        log.info(
            _EVENTS[decision.action],
            mode=self.mode,
            workers=decision.workers,
            wanted=decision.wanted,
            queue_depth=decision.queue_depth,
            reason=decision.reason,
            **more,
        )

    async def _end_unknown(self, provider: Provider, unknown: frozenset[str]) -> None:
        now = self._clock.monotonic()
        self._unknown = {name: self._unknown.get(name, now) for name in unknown}
        for name, since in self._unknown.items():
            if now - since < UNKNOWN_SECONDS:
                continue
            log.warning("worker_unknown", worker=name, seconds=round(now - since), effect="it is ended")
            try:
                await provider.end(name)
            except ProviderError as error:
                log.error("worker_end_failed", worker=name, detail=str(error))

    # ── tell ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _state(self, decision: Decision) -> ScalingState:
        return ScalingState(
            mode=self.mode,
            min_workers=self._rules.min_workers,
            max_workers=self._rules.max_workers,
            decision=decision,
        )
