"""`stoker` with something that costs more: `python -m tests.cost.planted WHAT ARGUMENTS…`.

`commit` makes every transaction of SQLite two, `write` makes one more system call for each job that is submitted.
"""

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from stoker.cli.main import main
from stoker.coordinator.jobs import JobService
from stoker.store.sqlite.writer import ThreadWriter
from stoker.store.submissions import Submission


def plant_commit() -> None:
    transact = ThreadWriter.transact

    async def twice(self: ThreadWriter, work: Callable[[], Any], *, alone: bool) -> Any:
        result = await transact(self, work, alone=alone)
        await transact(self, lambda: _write(self), alone=alone)
        return result

    def _write(writer: ThreadWriter) -> None:
        writer._db.execute("INSERT OR REPLACE INTO meta (key, value) VALUES ('planted', random())").fetchall()

    ThreadWriter.transact = twice  # type: ignore[method-assign]


def plant_write() -> None:
    submit = JobService.submit
    nowhere = os.open(os.devnull, os.O_WRONLY)

    async def wordy(self: JobService, jobs: Sequence[Submission]) -> Any:
        for item in jobs:
            for _ in item.batch:
                os.write(nowhere, b".")
        return await submit(self, jobs)

    JobService.submit = wordy  # type: ignore[method-assign]


PLANTED = {"commit": plant_commit, "write": plant_write}

if __name__ == "__main__":
    PLANTED[sys.argv.pop(1)]()
    main()
