"""`--reload`: replace the workers when the source of their app changes.

A change is first tried in a process of its own, which imports the app. Code that cannot be imported is told in the log, and
the workers that run go on with what they have until the next change. Otherwise they are asked to drain, which finishes or
hands back their jobs uncharged, and as many others start at once: no job waits for the drain of another.

`stoker up --reload` does this to its own workers. `stoker worker --reload` is the parent of a worker, and does it to that.
"""

import asyncio
import importlib.util
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog

from stoker.access import Access
from stoker.autoscale.providers.base import ProviderError
from stoker.autoscale.providers.process import ProcessProvider
from stoker.cli import output
from stoker.cli.signals import on_signals
from stoker.cli.worker import RELOADER, start_problems
from stoker.executors.app_check import import_error
from stoker.logs import log as logs
from stoker.settings import Settings
from stoker.system import SYSTEM

if TYPE_CHECKING:
    from watchfiles import PythonFilter

PREFIX: Final = "worker"
DATA: Final = ".stoker"
SHOWN: Final = 5

log = structlog.get_logger()


def problem(settings: Settings) -> str | None:
    """Why `--reload` cannot work here; None if it can."""
    if settings.app is None:
        return "--reload watches the source of an app; name the app, such as --app tasks:app"
    if importlib.util.find_spec("watchfiles") is None:
        return "--reload needs watchfiles, which is not installed: pip install 'stoker[reload]'"
    return None


def run(settings: Settings, argv: Sequence[str]) -> int:
    """`stoker worker --reload`: until it is told to leave; the exit code. `argv` is the command line of this process."""
    wrong = problem(settings)
    for text in [wrong] if wrong is not None else start_problems(settings):
        output.say(f"error: {text}", sys.stderr)
        return 1
    logs.configure(settings.log_level, settings.log_format)
    asyncio.run(_look_after(settings, worker_words(argv)))
    return 0


async def _look_after(settings: Settings, words: Sequence[str]) -> None:
    from stoker.cli.up import keep

    parent, lifeline = SYSTEM.lifeline()
    workers = ProcessProvider(
        lambda _: [sys.executable, "-m", "stoker", *words],
        {**os.environ, RELOADER: parent},
        prefix=PREFIX,
        leave_seconds=settings.shutdown_grace_sec + settings.cancel_grace_sec + 10,
        lifeline=lifeline,
    )
    await workers.start(1)
    leaving = asyncio.Event()
    on_signals(leaving.set, workers.kill)
    loops = [asyncio.create_task(keep(workers, 1)), asyncio.create_task(watch(settings, workers, 1))]
    await leaving.wait()
    for loop in loops:
        loop.cancel()
    await asyncio.gather(*loops, return_exceptions=True)
    await workers.close()


def worker_words(argv: Sequence[str]) -> list[str]:
    """Return the arguments of the worker that is looked after: those of this process without `--reload`."""
    return [word for word in argv[1:] if word != "--reload"]


# ── watching ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def watch(settings: Settings, workers: ProcessProvider, count: int) -> None:
    """Replace the workers, at least `count` of them, after each change of the app's source."""
    app = settings.app or ""
    given = Access(settings.coordinator_urls[0], settings.token)
    folders = watched(app, Path.cwd())
    log.info("reload_watching", app=app, paths=[str(folder) for folder in folders])

    async def check() -> str | None:
        return await asyncio.to_thread(import_error, app, given)

    from watchfiles import awatch

    try:
        async for changes in awatch(*folders, watch_filter=source_filter()):
            await apply(sorted({path for _, path in changes}), check, workers, count, app)
    except (OSError, RuntimeError) as error:
        advice = "raise fs.inotify.max_user_watches, or set WATCHFILES_FORCE_POLLING=1"
        log.error("reload_watch_failed", detail=f"{error}; {advice}")


async def apply(
    changed: Sequence[str],
    check: Callable[[], Awaitable[str | None]],
    workers: ProcessProvider,
    count: int,
    app: str,
) -> None:
    """Renew the workers if the app can be imported; else say why not."""
    why = await check()
    if why is not None:
        log.error("reload_failed", app=app, detail=f"{why}; the workers go on with the code that they have")
        return
    there = len(await workers.running())
    log.info("reloading", app=app, changed=[*changed[:SHOWN], *(["…"] if len(changed) > SHOWN else [])])
    try:
        await workers.renew(max(count, there))
    except ProviderError as error:
        log.error("worker_start_failed", detail=str(error))


def source_filter() -> "PythonFilter":
    """Python files, but for those in folders of tools, environments and of Stoker's own data."""
    from watchfiles import PythonFilter

    return PythonFilter(ignore_paths=[Path.cwd() / DATA])


def watched(app: str, folder: Path) -> list[Path]:
    """Return what to watch for an app (`module:name`): the working folder if the module is in it, which is where modules
    beside it are too; else the package that it belongs to."""
    top = app.partition(":")[0].partition(".")[0]
    spec = PathFinder.find_spec(top, [str(folder), *sys.path])
    places = [] if spec is None else list(spec.submodule_search_locations or [])
    if spec is not None and not places and spec.origin is not None:
        places = [spec.origin]
    outside = [Path(place) for place in places if not Path(place).is_relative_to(folder)]
    return outside or [folder]
