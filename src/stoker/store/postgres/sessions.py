"""Sessions of workers: the steps of a transaction that open, renew and expire them."""

from collections.abc import Mapping, Sequence

from stoker.domain.errors import WrongSecret
from stoker.domain.retry import RetryPolicy, after_attempt, claim_of
from stoker.domain.session_secret import may_go_on
from stoker.store.outcomes import lost_outcome
from stoker.store.postgres.outcomes import PostgresOutcomes
from stoker.store.postgres.rows import Q
from stoker.store.postgres.state import columns
from stoker.store.sessions import NO_NOTE, Expired, Lost, Renewal, Session, session_texts


class PostgresSessions(PostgresOutcomes):
    """Keeps sessions of workers and their leases; a session that fell silent loses its claims."""

    async def open_session(self, calls: list[Session]) -> list[str | WrongSecret | None]:
        # In the order of their ids: two transactions that begin the same sessions wait for each other's rows.
        answers = {
            place: await self._open_session(calls[place])
            for place in sorted(range(len(calls)), key=lambda place: calls[place].id)
        }
        return [answers[place] for place in range(len(calls))]

    async def _open_session(self, session: Session) -> str | WrongSecret | None:
        kept = await self._link.fetchval(Q["session_secret"], session.id)
        if not may_go_on(kept, session.secret_hash):
            return WrongSecret()
        # Two that begin the same session at once both find none: the statement looks again.
        status: str | None = await self._link.fetchval(
            Q["open_session"],
            session.id,
            session.name,
            session.threads,
            *session_texts(session),
            session.status,
            session.threads_used,
            session.endpoint,
            session.host,
            session.pid,
            self._judge,
            session.secret_hash,
        )
        return status

    async def renew(self, calls: list[Sequence[Renewal]]) -> list[list[str | None]]:
        used = {item.session_id: item.threads_used for call in calls for item in call}
        if not used:
            # Whether a heartbeat could be stored is the question then. This changes no row, and fails on a read-only server.
            await self._link.execute(Q["would_write"])
            return [[] for _ in calls]
        rows = await self._link.fetch(Q["renew_sessions"], *columns(sorted(used.items())), self._judge)
        status = {row[0]: row[1] for row in rows}
        return [[status.get(item.session_id) for item in call] for call in calls]

    async def set_session_status(self, calls: list[tuple[str, str]]) -> list[bool]:
        return [await self._link.fetchval(Q["set_session_status"], *call) is not None for call in calls]

    async def _lose_silent(self, since: int) -> None:
        """Give up the sessions that were not heard since then, and find those given up that hold jobs."""
        self._silent = [row[0] for row in await self._link.fetch(Q["lose_sessions"], since)]
        self._orphans = [row[0] for row in await self._link.fetch(Q["orphans"])]

    async def expire(self, calls: list[tuple[int, RetryPolicy]]) -> list[Expired]:
        return [await self._expire(policy) for _, policy in calls]

    async def _expire(self, policy: RetryPolicy) -> Expired:
        silent, self._silent = self._silent, []
        orphans, self._orphans = self._orphans, []
        if not orphans:
            return Expired(silent, [])
        # A job that others have locked when it is too late to wait is found again by the next look.
        jobs = await self._jobs("lost_claims", orphans, light=True)
        ends = []
        losses = []
        for job in jobs:
            claim = claim_of(job)
            outcome = lost_outcome(claim, policy, self._now)
            after = after_attempt(job, outcome, self._now)
            ends.append((job, after, outcome))
            losses.append(Lost(claim, after.status))
        await self._write_ends(ends)
        return Expired(silent, losses)

    async def note_types(self, calls: list[Mapping[str, bytes]]) -> list[None]:
        notes: dict[str, bytes] = {}
        for type, note in (item for call in calls for item in call.items()):
            if note != NO_NOTE or type not in notes:
                notes[type] = note
        if notes:
            await self._link.execute(Q["note_types"], *columns(sorted(notes.items())))
        return [None] * len(calls)
