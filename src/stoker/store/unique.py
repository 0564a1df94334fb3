"""Unique keys of the submissions of one call, as both stores resolve them."""

from stoker.domain.errors import UniqueConflict
from stoker.domain.job import Job, OnConflict
from stoker.domain.unique import KeyTaken, answer_conflict


class CallKeys:
    """Keeps the unique keys that one call takes or replaces, so that all are dropped if the call is refused."""

    def __init__(self, now: int) -> None:
        self._now = now
        self._call: dict[str, Job] = {}
        """Jobs that hold a key because of this call, by key."""
        self._replaced: dict[str, KeyTaken] = {}

    def begin(self) -> None:
        """Begin a call: what the last one took and did not keep is forgotten."""
        self._call, self._replaced = {}, {}

    def _answer(self, key: str, job: Job, holder: Job, on_conflict: OnConflict) -> KeyTaken | UniqueConflict:
        """Return what becomes of a job whose key another one holds."""
        answer = answer_conflict(job, holder, on_conflict, self._now)
        if isinstance(answer, KeyTaken) and answer.mark == "replaced":
            first = self._replaced.get(key, answer)
            self._replaced[key] = KeyTaken(answer.job, "replaced", first.before)
            self._call[key] = answer.job
        return answer
