"""That the page stays quick with many jobs: the small version; `test_load.py` has the large one."""

import time
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import expect

from bench import databases
from tests.browser import frames
from tests.browser.conftest import Visitor
from tests.browser.load import Load
from tests.e2e.system import System, eventually

JOBS = 50_000
SECONDS = 5
BUSY_MACHINE_MS = 400
"""Other tests may run beside this one, so this bounds what is clearly wrong; `make dashboard-load` measures."""


def test_a_long_list_and_many_changes_do_not_stop_the_page(
    system: System, new_visitor: Callable[..., Visitor], tmp_path: Path
) -> None:
    databases.write_finished(tmp_path / "stoker.db", JOBS)
    server = system.serve()
    system.worker(server, threads=2, app=None)
    visitor = new_visitor(server.url)
    page = visitor.visit("/jobs")
    expect(page.get_by_role("grid", name="Jobs")).to_have_attribute("aria-rowcount", str(JOBS + 1))
    frames.begin(page)
    for share in (0.5, 0.99, 0.02, 0.0):
        frames.jump(page, share, JOBS)
    assert frames.end(page).longest_task_ms < BUSY_MACHINE_MS

    frames.begin(page)
    with Load(server.url, 1000) as load:
        until = time.monotonic() + SECONDS
        eventually(lambda: time.monotonic() > until, SECONDS + 5)
    expected = JOBS + load.submitted
    expect(page.get_by_role("grid", name="Jobs")).to_have_attribute("aria-rowcount", str(expected + 1))
    assert frames.end(page).longest_task_ms < BUSY_MACHINE_MS
    assert load.refused == 0
    visitor.stayed()
