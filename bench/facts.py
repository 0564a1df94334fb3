"""The facts about this machine without which the figures mean nothing. No names, no paths."""

import hashlib
import os
import platform
import statistics
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Final

import apsw

import stoker

_SYNCS: Final = 50
_PAGE: Final = b"\0" * 4096


def facts(folder: Path) -> dict[str, str]:
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "sqlite": f"{apsw.sqlite_lib_version()} (apsw {apsw.apsw_version()})",
        "libraries": ", ".join(f"{name} {version(name)}" for name in ("uvicorn", "uvloop", "starlette")),
        "system": f"{platform.system()} {platform.machine()}",
        "cpus": str(cpus),
        "source": source_digest(),
        "load average at the start": load_average(),
        "sync of one page in the temporary folder": f"{sync_ms(folder):.2f} ms (median of {_SYNCS})",
    }


def load_average() -> str:
    return f"{os.getloadavg()[0]:.1f}"


def source_digest() -> str:
    """Changes when Stoker's source does: figures of two versions must not be mixed in one table."""
    digest = hashlib.sha256()
    for file in sorted(Path(stoker.__file__).parent.rglob("*")):
        if file.suffix in {".py", ".sql"}:
            digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


def sync_ms(folder: Path) -> float:
    """The median time of appending a page to a file and syncing it: the price of a commit."""
    sync = getattr(os, "fdatasync", os.fsync)
    times: list[float] = []
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        for _ in range(_SYNCS):
            started = time.perf_counter()
            file.write(_PAGE)
            sync(file.fileno())
            times.append((time.perf_counter() - started) * 1e3)
    return statistics.median(times)
