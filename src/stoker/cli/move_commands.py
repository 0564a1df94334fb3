"""`stoker export` and `stoker import`: jobs and their history from one database to another, through a file or a pipe."""

from __future__ import annotations

import asyncio
import gzip
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Literal, NoReturn, cast

import msgspec
import typer

from stoker import __version__
from stoker.cli import output
from stoker.cli.databases import refusals, settings_for, shown
from stoker.cli.exits import Exit
from stoker.cli.options import Json
from stoker.cli.run_commands import Database
from stoker.clock import SystemClock
from stoker.settings import Settings
from stoker.system import SYSTEM

if TYPE_CHECKING:
    from stoker.store.move import Imported, Source, Target, Told
    from stoker.store.move_format import EndRecord, Header

_GZIP = b"\x1f\x8b"
_COMPRESSION = 5
_BUFFER_BYTES = 1024 * 1024


def export(
    to: Annotated[
        str,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="Where to write; compressed if it ends in .gz; - is stdout.",
        ),
    ] = "-",
    queue: Annotated[
        list[str] | None,
        typer.Option("--queue", metavar="QUEUE", help="Only jobs of this queue; repeatable."),
    ] = None,
    logs: Annotated[
        bool, typer.Option("--logs/--no-logs", help="With what the jobs wrote, or without.")
    ] = True,
    database: Database = None,
) -> None:
    """Write all jobs of a database, with their attempts, output and live idempotency keys, as JSON lines.

    The database is read in one snapshot, directly; a coordinator that uses it goes on.

    \b
    Examples:
      stoker export -o jobs.jsonl.gz
      stoker export --database postgresql://stoker@db.example.com/jobs --queue reports -o reports.jsonl
      stoker export | stoker import --database postgresql://stoker@db.example.com/jobs
    """
    settings = settings_for(database)
    started = time.monotonic()
    with refusals(), _written(to) as file:
        end = asyncio.run(_export(settings, file, frozenset(queue) if queue else None, logs))
    seconds = time.monotonic() - started
    output.note(
        f"exported {end.jobs:,} jobs, {end.attempts:,} attempts, {end.keys:,} idempotency keys and the output of "
        f"{end.outputs:,} attempts{_schedules(end.schedules)} from {shown(settings)} in {seconds:.1f} s"
    )


def import_(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="What `stoker export` wrote, compressed or not; - is stdin.")
    ] = "-",
    priority_order: Annotated[
        Literal["lowest_first", "highest_first"] | None,
        typer.Option(
            "--priority-order",
            metavar="ORDER",
            help="lowest_first or highest_first: rank the jobs by this order, though the file was made with the other.",
        ),
    ] = None,
    database: Database = None,
    as_json: Json = False,
) -> None:
    """Store the jobs of an export in another database. Jobs that are there already are left as they are.

    No coordinator may use a SQLite file meanwhile; beside PostgreSQL they go on. An import that was interrupted is
    completed by running it again.

    \b
    Examples:
      stoker import jobs.jsonl.gz --database postgresql://stoker@db.example.com/jobs
      stoker export --database postgresql://stoker@db.example.com/jobs | stoker import --database sqlite:///jobs.db
    """
    from stoker.store.move import Imported, MoveRefused
    from stoker.store.move_format import BadFile

    if file == "-" and sys.stdin.isatty():
        raise typer.BadParameter("name a file, or send one to stdin", param_hint="FILE")
    settings = settings_for(database)
    started = time.monotonic()
    done = Imported()
    try:
        with refusals(), _read(file) as lines:
            try:
                asyncio.run(_import(settings, lines, priority_order, done))
            except MoveRefused as error:
                output.error(str(error))
                raise typer.Exit(Exit.REFUSED) from None
            except BadFile as error:
                _give_up(f"{_named(file)}, {error}", done)
            except (gzip.BadGzipFile, EOFError, OSError) as error:
                _give_up(f"{_named(file)} cannot be read to its end: {error}", done)
    except KeyboardInterrupt:
        output.note(f"stopped: {_so_far(done)}")
        raise
    if as_json:
        output.print_json(msgspec.to_builtins(done))
    else:
        output.note(_in_words(done, settings, time.monotonic() - started))


def _give_up(problem: str, done: Imported) -> NoReturn:
    output.error(problem)
    output.note(_so_far(done))
    raise typer.Exit(Exit.ERROR)


def _so_far(done: Imported) -> str:
    stored = done.jobs + done.jobs_there
    if not stored:
        return "nothing was stored"
    return (
        f"{stored:,} jobs are stored and stay; run the same command again to go on: what is there is skipped"
    )


def _schedules(count: int) -> str:
    return f", and {count:,} schedules" if count else ""


def _in_words(done: Imported, settings: Settings, seconds: float) -> str:
    words = f"imported {done.jobs:,} jobs and {done.keys:,} idempotency keys into {shown(settings)} in {seconds:.1f} s"
    words += _schedules(done.schedules)
    if done.jobs_there:
        words += f"; {done.jobs_there:,} jobs were there already"
    if done.handed_back:
        words += f"; {done.handed_back:,} were running and are queued again"
    return words


# ── databases ──────────────────────────────────────────────────────────────────────────────────────────────────────


async def _export(
    settings: Settings, file: IO[bytes], queues: frozenset[str] | None, logs: bool
) -> EndRecord:
    from stoker.store.move import export_to

    source = await _source(settings)
    try:
        with _progress("exporting") as begin:
            return await export_to(
                source, file.write, version=__version__, queues=queues, logs=logs, begin=begin
            )
    finally:
        await source.close()


async def _import(
    settings: Settings,
    lines: IO[bytes],
    order: Literal["lowest_first", "highest_first"] | None,
    done: Imported,
) -> None:
    from stoker.store.move import import_from

    target = await _target(settings)
    try:
        with _progress("importing") as begin:
            await import_from(lines, target, order=order, begin=begin, done=done)
    finally:
        await target.close()


async def _source(settings: Settings) -> Source:
    if settings.on_postgres:
        from stoker.store.postgres.move import PostgresSource

        return await PostgresSource.open(settings.database_url, SystemClock())
    from stoker.store.sqlite.move import SqliteSource

    return await SqliteSource.open(settings.database_path, SystemClock())


async def _target(settings: Settings) -> Target:
    if settings.on_postgres:
        from stoker.store.postgres.move import PostgresTarget

        return await PostgresTarget.open(settings.database_url, SystemClock())
    from stoker.store.sqlite.move import SqliteTarget

    return await SqliteTarget.open(settings.database_path, SystemClock())


# ── files ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _named(file: str) -> str:
    return "stdin" if file == "-" else file


@contextmanager
def _written(to: str) -> Iterator[IO[bytes]]:
    """Open the destination of an export. A file appears under its name when it is whole, and only its owner may read it,
    because payloads are private."""
    try:
        if to == "-":
            yield sys.stdout.buffer
            sys.stdout.buffer.flush()
        elif Path(to).exists() and not Path(to).is_file():  # a pipe, a device
            with open(to, "wb") as file:
                yield file
        else:
            with _whole_file(Path(to)) as file:
                yield file
    except BrokenPipeError:
        # The reader of the pipe has left. Python would complain once more when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(Exit.ERROR) from None
    except OSError as error:
        output.error(f"cannot write {to}: {error.strerror or error}")
        raise typer.Exit(Exit.ERROR) from None


@contextmanager
def _whole_file(path: Path) -> Iterator[IO[bytes]]:
    part = path.with_name(f"{path.name}.part")
    fd = SYSTEM.open_private(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        with open(fd, "wb", buffering=_BUFFER_BYTES) as file:
            if path.suffix == ".gz":
                with gzip.GzipFile(
                    filename="", mode="wb", fileobj=file, compresslevel=_COMPRESSION
                ) as packed:
                    yield cast("IO[bytes]", packed)
            else:
                yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


@contextmanager
def _read(file: str) -> Iterator[IO[bytes]]:
    """The lines of a file or of stdin, unpacked if they are packed."""
    try:
        plain = sys.stdin.buffer if file == "-" else Path(file).open("rb")  # noqa: SIM115 - closed below
    except OSError as error:
        output.error(f"cannot read {file}: {error.strerror}")
        raise typer.Exit(Exit.USAGE) from None
    with plain:
        peek = getattr(plain, "peek", None)  # a test's stdin may have none
        packed = file.endswith(".gz") if peek is None else peek(2)[:2] == _GZIP
        yield cast("IO[bytes]", gzip.GzipFile(fileobj=plain, mode="rb")) if packed else plain


# ── progress ───────────────────────────────────────────────────────────────────────────────────────────────────────

_EVERY = 500


class _Begin:
    """Shows the progress of a move. Called with the header, it returns a function to be told how many more jobs were moved,
    which does nothing if stderr is no terminal."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._bar: object = None

    def __call__(self, header: Header) -> Told:
        if not sys.stderr.isatty():
            return lambda _: None
        return self._start(sum(header.jobs.values()))

    def _start(self, total: int) -> Told:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        rate = TextColumn("{task.fields[rate]}")
        bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            rate,
            TimeRemainingColumn(),
            console=Console(stderr=True),
        )
        self._bar = bar
        task = bar.add_task(self._what, total=total, rate="")
        bar.start()
        started = time.monotonic()
        seen = shown_at = 0

        def tell(jobs: int) -> None:
            nonlocal seen, shown_at
            seen += jobs
            if seen - shown_at >= _EVERY or seen == total:
                per_second = seen / max(time.monotonic() - started, 0.001)
                bar.update(task, completed=seen, rate=f"{per_second:,.0f} jobs/s")
                shown_at = seen

        return tell

    def stop(self) -> None:
        from rich.progress import Progress

        if isinstance(self._bar, Progress):
            self._bar.stop()


@contextmanager
def _progress(what: str) -> Iterator[_Begin]:
    begin = _Begin(what)
    try:
        yield begin
    finally:
        begin.stop()
