"""That a 202 is a promise: strace shows the sync of the log between a request and its answer."""

import re
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from bench.context import Context
from bench.processes import BenchFailed, tethered
from bench.results import Line, Target
from bench.system import System

NAME: Final = "syncs between a request and its 202"
_CALLS: Final = "fsync,fdatasync,read,recvfrom,recvmsg,write,writev,pwrite64,sendto,sendmsg"
_SYNC: Final = re.compile(r"(?:\bf(?:data)?sync\(.*|f(?:data)?sync resumed.*)= 0")
_BEGUN: Final = re.compile(r"\bf(?:data)?sync\(.*unfinished")
_FOLDER: Final = re.compile(r"<[^<>]*/([^<>/]+)>")
_MARK: Final = "the-one-that-is-traced"
_LONGEST: Final = 110
_FLUSH_SECONDS: Final = 5.0


class Order(msgspec.Struct, frozen=True):
    """The lines of a trace from a request to its answer."""

    request: str
    syncs: Sequence[str]
    answer: str


def run(context: Context) -> list[Line]:
    strace = shutil.which("strace")
    if strace is None:
        return [Line(NAME, None, note="strace not installed, skipped")]
    folder = context.folder / "traced"
    folder.mkdir()
    order = _trace(strace, folder)
    shutil.rmtree(folder)
    context.notes += [_shown(line) for line in (order.request, *order.syncs, order.answer)]
    return [Line(NAME, len(order.syncs), target=Target(1, at_least=True, timing=False))]


def _trace(strace: str, folder: Path) -> Order:
    output = folder / "trace"
    # strace starts the coordinator, which needs no privilege; the inner tether ends it should strace be killed.
    prefix = [
        strace,
        "-f",
        "-I",
        "anywhere",
        "-y",
        "-ttt",
        "-s",
        "256",
        "-e",
        f"trace={_CALLS}",
        "-o",
        str(output),
    ]
    with System(folder, [*prefix, *tethered((), parent=0)]) as system:
        system.submit(b'{"payload":"%s"}' % _MARK.encode())
        deadline = time.monotonic() + _FLUSH_SECONDS
        while time.monotonic() < deadline:
            order = find_order(output.read_text(errors="replace").splitlines())
            if order is not None:
                return order
            time.sleep(0.05)
    raise BenchFailed("the trace does not show the request and its answer")


def find_order(lines: Sequence[str]) -> Order | None:
    """The marked request, the syncs that ended after it, and the 202 that followed; None if they are not all there."""
    asked = next((place for place, line in enumerate(lines) if _MARK in line and "POST /jobs" in line), None)
    if asked is None:
        return None
    for place in range(asked + 1, len(lines)):
        if "HTTP/1.1 202" in lines[place]:
            between = lines[asked + 1 : place]
            syncs = [line for line in between if _SYNC.search(line) or _BEGUN.search(line)]
            return (
                Order(lines[asked], syncs, lines[place])
                if _any_ended(syncs)
                else Order(lines[asked], (), lines[place])
            )
    return None


def _any_ended(syncs: Sequence[str]) -> bool:
    return any(_SYNC.search(line) for line in syncs)


def _shown(line: str) -> str:
    """A line of the trace without the paths of this machine."""
    text = _FOLDER.sub(r"<\1>", line)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
