"""A coordinator whose database was changed by a later Stoker accepts nothing more, until the schema is known again."""

import asyncio

import pytest

from stoker.coordinator import schema_watch
from stoker.coordinator.schema_watch import LOOK_SECONDS, SchemaWatch
from stoker.domain.errors import StoreUnavailable


class SchemaStore:
    """Answers one look after the other; the last answer stays."""

    def __init__(self, *answers: int | Exception | None) -> None:
        self._answers = list(answers)
        self.looked = asyncio.Event()

    async def later_schema(self) -> int | None:
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if len(self._answers) == 1:
            self.looked.set()
        if isinstance(answer, Exception):
            raise answer
        return answer


async def watched(store: SchemaStore, monkeypatch: pytest.MonkeyPatch) -> tuple[SchemaWatch, list[str]]:
    """A watch that has seen all answers, and what it was told of."""
    monkeypatch.setattr(schema_watch, "LOOK_SECONDS", 0)
    told: list[str] = []
    watch = SchemaWatch(store, lambda: told.append("back"))  # type: ignore[arg-type]
    task = asyncio.create_task(watch.run())
    try:
        async with asyncio.timeout(10):
            await store.looked.wait()
            await asyncio.sleep(0)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    return watch, told


def test_it_looks_often_enough() -> None:
    assert LOOK_SECONDS < 5


async def test_a_known_schema_is_no_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    watch, _ = await watched(SchemaStore(None), monkeypatch)
    assert (watch.why_not(), watch.outdated()) == (None, False)
    watch.check()


async def test_a_later_schema_refuses_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    watch, _ = await watched(SchemaStore(None, 99), monkeypatch)
    with pytest.raises(StoreUnavailable, match=r"schema 99 .* upgrade it"):
        watch.check()
    assert watch.outdated()


async def test_a_store_that_does_not_answer_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    watch, _ = await watched(SchemaStore(99, StoreUnavailable("away")), monkeypatch)
    assert watch.outdated()


async def test_a_schema_that_is_known_again_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    watch, told = await watched(SchemaStore(99, None), monkeypatch)
    assert (watch.outdated(), told) == (False, ["back"])
