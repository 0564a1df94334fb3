"""Sessions of workers: the steps of a transaction that open, renew and expire them."""

from collections.abc import Mapping, Sequence

from stoker.domain.errors import WrongSecret
from stoker.domain.job import Job
from stoker.domain.retry import RetryPolicy, claim_of
from stoker.domain.session_secret import may_go_on
from stoker.store.outcomes import lost_outcome
from stoker.store.sessions import Expired, Lost, Renewal, Session, session_texts
from stoker.store.sqlite.outcomes import SqliteOutcomes
from stoker.store.sqlite.rows import SUMMARY_LIST, Q

_OF_SESSION = Q["claims_of_session"].format(columns=SUMMARY_LIST)


class SqliteSessions(SqliteOutcomes):
    """Keeps sessions of workers and their leases; a session that fell silent loses its claims."""

    def open_session(self, calls: list[Session]) -> list[str | WrongSecret | None]:
        return [self._open_session(call) for call in calls]

    def _open_session(self, session: Session) -> str | WrongSecret | None:
        secrets = self._rows(Q["session_secret"], session.id)
        if secrets and not may_go_on(secrets[0][0], session.secret_hash):
            return WrongSecret()
        known = self._rows(Q["session_status"], session.id)
        if known and known[0][0] in ("lost", "gone"):
            return None
        self._db.execute(
            Q["upsert_session"],
            (
                session.id,
                session.name,
                session.threads,
                *session_texts(session),
                session.status,
                self._now,
                self._now,
                session.threads_used,
                session.endpoint,
                session.host,
                session.pid,
                session.secret_hash,
            ),
        )
        return str(self._rows(Q["session_status"], session.id)[0][0])

    def renew(self, calls: list[Sequence[Renewal]]) -> list[list[str | None]]:
        return [[self._renew(item) for item in call] for call in calls]

    def _renew(self, item: Renewal) -> str | None:
        rows = self._rows(Q["renew_session"], item.session_id, self._now, item.threads_used)
        return str(rows[0][0]) if rows else None

    def set_session_status(self, calls: list[tuple[str, str]]) -> list[bool]:
        return [self._changed(Q["set_session_status"], *call) for call in calls]

    def expire(self, calls: list[tuple[int, RetryPolicy]]) -> list[Expired]:
        return [self._expire(*call) for call in calls]

    def _expire(self, since: int, policy: RetryPolicy) -> Expired:
        silent = [str(row[0]) for row in self._db.execute(Q["silent_sessions"], (since,))]
        for id in silent:
            self._db.execute(Q["set_session_status"], (id, "lost"))
        live = {row[0] for row in self._db.execute(Q["live_sessions"])}
        holders = [str(row[0]) for row in self._db.execute(Q["running_sessions"])]
        losses = [lost for id in holders if id not in live for lost in self._lose(id, policy)]
        return Expired(silent, losses)

    def _lose(self, session_id: str, policy: RetryPolicy) -> list[Lost]:
        losses: list[Lost] = []
        for row in self._rows(_OF_SESSION, session_id):
            claim = claim_of(Job(*row))
            status = self._end_attempt(claim, lost_outcome(claim, policy, self._now))
            if status is not None:
                losses.append(Lost(claim, status))
        return losses

    def note_types(self, calls: list[Mapping[str, bytes]]) -> list[None]:
        self._db.executemany(Q["note_type"], [item for call in calls for item in call.items()])
        return [None] * len(calls)
