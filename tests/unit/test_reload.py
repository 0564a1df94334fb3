"""`--reload`: what is watched, when workers are renewed, and what becomes of the old ones."""

import asyncio
import importlib.util
import sys
from pathlib import Path

import pytest
import structlog

from stoker.autoscale.providers.process import ProcessProvider
from stoker.cli import reload
from stoker.settings import load

SLEEPS = "import time; print('up', flush=True); time.sleep(600)"


def provider(code: str = SLEEPS) -> ProcessProvider:
    return ProcessProvider(lambda name: [sys.executable, "-c", code], {}, prefix="p", leave_seconds=5)


async def code_is_good() -> str | None:
    return None


async def code_is_bad() -> str | None:
    return "SyntaxError: invalid syntax (tasks.py, line 3)"


async def test_a_change_starts_others_at_once_and_lets_the_old_ones_leave() -> None:
    workers = provider()
    await workers.start(2)
    before = {own.pid for own in await workers.running()}
    with structlog.testing.capture_logs() as lines:
        await reload.apply(["tasks.py"], code_is_good, workers, 2, "tasks:app")
    after = {own.pid for own in await workers.running()}
    assert len(after) == 2
    assert not before & after
    assert [line["event"] for line in lines] == ["reloading"]
    await workers.close()
    assert workers._all() == [] or all(process.poll() is not None for process in workers._all())


async def test_code_that_cannot_be_imported_changes_nothing_and_is_told() -> None:
    workers = provider()
    await workers.start(1)
    before = await workers.running()
    with structlog.testing.capture_logs() as lines:
        await reload.apply(["tasks.py"], code_is_bad, workers, 1, "tasks:app")
    assert await workers.running() == before
    assert [line["event"] for line in lines] == ["reload_failed"]
    assert "SyntaxError: invalid syntax (tasks.py, line 3)" in lines[0]["detail"]
    await workers.close()


async def test_workers_that_died_are_started_with_the_new_code_without_a_pause() -> None:
    workers = provider("raise SystemExit(1)")
    await workers.start(1)
    for process in workers._all():
        await asyncio.to_thread(process.wait, 20)
    assert await workers.running() == []
    assert workers.rest_seconds > 0
    await reload.apply(["tasks.py"], code_is_good, workers, 1, "tasks:app")
    assert len(workers._all()) == 1
    await workers.close()


def test_reload_needs_an_app_and_watchfiles(monkeypatch: pytest.MonkeyPatch) -> None:
    with_app = load({}, {"app": "tasks:app"})
    assert "--app" in str(reload.problem(load({})))
    assert reload.problem(with_app) is None
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "pip install 'stoker[reload]'" in str(reload.problem(with_app))


def test_the_working_folder_is_watched_if_the_app_is_in_it_else_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    (here / "shop").mkdir(parents=True)
    (here / "shop" / "__init__.py").touch()
    (here / "tasks.py").touch()
    (elsewhere / "mail").mkdir(parents=True)
    (elsewhere / "mail" / "__init__.py").touch()
    (elsewhere / "single.py").touch()
    monkeypatch.syspath_prepend(str(elsewhere))
    assert reload.watched("tasks:app", here) == [here]
    assert reload.watched("shop.tasks:app", here) == [here]
    assert reload.watched("mail.tasks:app", here) == [elsewhere / "mail"]
    assert reload.watched("single:app", here) == [elsewhere / "single.py"]
    assert reload.watched("missing:app", here) == [here]


def test_the_worker_gets_the_arguments_of_its_parent() -> None:
    assert reload.worker_words(
        ["/bin/stoker", "worker", "--reload", "--app", "tasks:app", "--label", "a=b"]
    ) == [
        "worker",
        "--app",
        "tasks:app",
        "--label",
        "a=b",
    ]


def test_python_files_count_and_those_of_tools_do_not() -> None:
    from watchfiles import Change

    source = reload.source_filter()
    assert source(Change.modified, str(Path.cwd() / "tasks.py"))
    assert not source(Change.modified, str(Path.cwd() / "notes.txt"))
    assert not source(Change.modified, str(Path.cwd() / ".venv" / "x.py"))
    assert not source(Change.modified, str(Path.cwd() / ".stoker" / "x.py"))
