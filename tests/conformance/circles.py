"""Notices transactions that PostgreSQL ended because they waited for each other in a circle. They run again, and nobody is
told; its own counter of them is some seconds late."""

from typing import Any

import pytest

from stoker.store.postgres.database import Contended
from stoker.store.postgres.writer import PostgresWriter


def noticed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list to which every such transaction of this process is added."""
    circles: list[str] = []
    run = PostgresWriter._transaction

    async def watched(writer: PostgresWriter, *calls: Any, **how: Any) -> Any:
        try:
            return await run(writer, *calls, **how)
        except Contended as error:
            circles.append(str(error))
            raise

    monkeypatch.setattr(PostgresWriter, "_transaction", watched)
    return circles
