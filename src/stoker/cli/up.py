"""The whole system from one command: a coordinator in this process, workers as processes of their own.

An autoscaler looks on. It only recommends, and the crew stays as large as it was told to be (`--workers`), unless it is
asked to act (`--autoscale process`): then that number is the minimum, and `MAX_WORKERS` the maximum. Either way it asks
the coordinator over its API, like one that runs elsewhere.
"""

import asyncio
import sys
from collections.abc import Coroutine, Sequence
from typing import Final

import structlog
from msgspec.structs import replace

from stoker.autoscale.providers.base import ProviderError
from stoker.autoscale.providers.process import ProcessProvider
from stoker.cli import autoscale, hints, output
from stoker.cli import reload as reloading
from stoker.cli.serve import CANNOT_START, CannotStart, Running, running, url_of
from stoker.cli.signals import on_signals
from stoker.cli.worker import start_problems
from stoker.logs import log as logs
from stoker.settings import Settings, masked
from stoker.system import SYSTEM

RESTART_SECONDS: Final = 1.0
PREFIX: Final = "worker"
SIZES_SHOWN: Final = 8
IN_THE_BANNER: Final = frozenset({"coordinator_started", "autoscaler_started"})

log = structlog.get_logger()


def run(settings: Settings, *, reload: bool = False) -> int:
    """`stoker up`: until it is told to stop; the exit code."""
    wrong = reloading.problem(settings) if reload else None
    if wrong is not None:
        output.say(hints.named(f"error: {wrong}"), sys.stderr)
        return CANNOT_START
    job_log = logs.configure(settings.log_level, settings.log_format, quiet=IN_THE_BANNER)
    problems = start_problems(settings) if settings.workers or settings.autoscale == "process" else []
    for problem in problems:
        output.say(hints.named(f"error: {problem}"), sys.stderr)
    if problems:
        return CANNOT_START
    try:
        SYSTEM.run(_up(_scaled(settings), job_log, reload=reload))
    except CannotStart as error:
        output.say(hints.named(f"error: {error}"), sys.stderr)
        return error.exit
    return 0


def _scaled(settings: Settings) -> Settings:
    """With `--workers` as the minimum, and what the autoscaler does here decided."""
    if settings.autoscale == "docker":
        raise CannotStart(
            "`stoker up` never holds a Docker socket; start `stoker autoscale --mode docker` beside it, "
            "and this with --autoscale off"
        )
    return replace(
        settings,
        autoscale="recommend" if settings.autoscale == "auto" else settings.autoscale,
        min_workers=settings.workers,
        max_workers=max(settings.workers, settings.max_workers),
    )


async def _up(settings: Settings, job_log: logs.JobLog, *, reload: bool) -> None:
    async with running(settings, job_log) as server:
        sizes = {f"{PREFIX}-{number}": threads for number, threads in settings.worker_n_threads.items()}
        workers = autoscale.processes(settings, (server.url,), PREFIX, sizes)
        await workers.start(settings.workers)
        leaving = asyncio.Event()
        on_signals(lambda: _leave(server, leaving), workers.kill)
        loops = _loops(settings, server.url, workers)
        if reload:
            loops.append(reloading.watch(settings, workers, settings.workers))
        keeping = [asyncio.create_task(going) for going in loops]
        output.say(banner(settings, server), sys.stdout)
        stopped = asyncio.create_task(server.stopped.wait())
        left = asyncio.create_task(leaving.wait())
        await asyncio.wait({stopped, left}, return_when=asyncio.FIRST_COMPLETED)
        if not leaving.is_set():
            _leave(server, leaving)
        for loop in keeping:
            loop.cancel()
        await asyncio.gather(*keeping, return_exceptions=True)
        # The workers first, while the coordinator can still take their last reports.
        await workers.close()
        for task in (stopped, left):
            task.cancel()
        await asyncio.gather(stopped, left, return_exceptions=True)
        server.stop()


def _leave(server: Running, leaving: asyncio.Event) -> None:
    log.info("shutting_down")
    server.leave()
    leaving.set()


def _loops(settings: Settings, url: str, workers: ProcessProvider) -> list[Coroutine[None, None, None]]:
    """Return the loops that run while the system is up."""
    acts = settings.autoscale == "process"
    loops = [] if acts else [keep(workers, settings.workers)]
    if settings.autoscale != "off":
        loops.append(autoscale.make(settings, url, workers, acts=acts).run())
    return loops


async def keep(workers: ProcessProvider, count: int) -> None:
    """Start a new worker where one died; not at once where they die at once."""
    while True:
        await asyncio.sleep(RESTART_SECONDS)
        missing = count - len(await workers.running())
        if workers.rest_seconds > 0:
            continue
        try:
            await workers.start(missing)
        except ProviderError as error:
            log.error("worker_start_failed", detail=str(error))


def banner(settings: Settings, server: Running) -> str:
    """Return the text that `stoker up` prints when it is ready: where the dashboard is, and commands to try."""
    url = server.url
    auth = ' -H "Authorization: Bearer $STOKER_TOKEN"' if settings.token else ""
    stoker = hints.program()
    where = "" if url == url_of(Settings().host, Settings().api_port) else f" --url {url}"
    return f"""
  Stoker is up: {_workers(settings)}, data in {_place(settings)}

    Dashboard   {url}/dashboard

  Try:
    curl -X POST {url}/jobs{auth} -H 'Content-Type: application/json' -d '{{"payload": "hello"}}'
    {stoker} submit sleep '{{"seconds": 2}}' --wait{where}
    {stoker} jobs{where}

  Stop with Ctrl-C.
"""


def _workers(settings: Settings) -> str:
    """Return in words how many workers there are and may be, and how many threads they have."""
    count = str(settings.workers)
    if settings.autoscale == "process" and settings.max_workers > settings.workers:
        count = f"{settings.workers} to {settings.max_workers}"
    workers = f"{count} worker" + ("" if count == "1" else "s")
    sizes = settings.worker_n_threads
    if not sizes:
        return f"{workers} with {_counted(settings.worker_threads, 'thread')} each"
    threads = [sizes.get(number, settings.worker_threads) for number in range(1, settings.workers + 1)]
    return f"{workers} with {_listed(threads)} threads"


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")


def _listed(numbers: Sequence[int]) -> str:
    """`4, 8 and 8`, or what fits on a line."""
    shown = [str(number) for number in numbers[:SIZES_SHOWN]]
    if len(numbers) > SIZES_SHOWN:
        return f"{', '.join(shown)}, …"
    return " and ".join(part for part in (", ".join(shown[:-1]), *shown[-1:]) if part)


def _place(settings: Settings) -> str:
    return masked(settings.database_url) if settings.on_postgres else str(settings.database_path)
