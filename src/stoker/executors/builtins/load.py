"""Types that put a load on a worker: `cpu_intensive`, `io_intensive`, `mixed_workload` and `network_task`.

They do real work, and their results prove it: the digests are those of the C++ runner for the same payload, whatever
the number of threads.
"""

import hashlib
import os
import tempfile
from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec

from stoker.context import current_job
from stoker.domain.job import NULL
from stoker.executors.builtins.payload import Fields, decode

_KIB: Final = 1024
_BLOCK_BYTES: Final = 64 * _KIB
_MAX_ITERATIONS: Final = 10**12
_MAX_CHAINS: Final = 1024
_MAX_FILES: Final = 10_000
_MAX_FILE_KB: Final = 1_048_576
_MAX_REQUESTS: Final = 100_000
_MAX_BODY_KB: Final = 10_240
_MAX_CLIENTS: Final = 32

Result = TypeVar("Result")


class IoFailed(OSError):
    """The disk, or what stands for it, said no."""

    error_type = "io_error"
    retryable = True


class NetworkFailed(OSError):
    """The loopback interface said no."""

    error_type = "network_error"
    retryable = True


def cpu_intensive(payload: bytes) -> bytes:
    """`{"iterations", "chains", "seed"}` → `{"iterations", "digest"}`"""
    fields = _sizes(payload, "iterations", "chains", "seed")
    return msgspec.json.encode(_hash(fields, default_iterations=100_000))


def io_intensive(payload: bytes) -> bytes:
    """`{"files", "size_kb", "fsync"}` → `{"files", "bytes", "digest"}`"""
    fields = _sizes(payload, "files", "size_kb", "fsync")
    return msgspec.json.encode(_io(fields, default_files=4, default_size_kb=256)())


def mixed_workload(payload: bytes) -> bytes:
    """Return the fields of both → `{"cpu": …, "io": …}`"""
    fields = _sizes(payload, "iterations", "chains", "seed", "files", "size_kb", "fsync")
    io = _io(fields, default_files=2, default_size_kb=128)  # read all fields before any work is done
    return msgspec.json.encode({"cpu": _hash(fields, default_iterations=50_000), "io": io()})


def network_task(payload: bytes) -> bytes:
    """`{"requests", "size_kb"}` → `{"requests", "bytes"}`"""
    fields = _sizes(payload, "requests", "size_kb")
    requests = fields.integer_or("requests", 20, 1, _MAX_REQUESTS)
    body_bytes = fields.integer_or("size_kb", 4, 0, _MAX_BODY_KB) * _KIB
    from stoker.executors.builtins.loopback import ask, serving

    clients = min(requests, current_job().threads, _MAX_CLIENTS)
    try:
        with serving(body_bytes) as port:
            received = _spread(clients, lambda client: ask(port, _share(requests, clients, client)))
    except OSError as error:
        raise NetworkFailed(f"the loopback server could not be used: {error}") from error
    return msgspec.json.encode({"requests": requests, "bytes": sum(received)})


def _sizes(payload: bytes, *known: str) -> Fields:
    """Return the fields of a load type. A text names no size, so each keeps its default."""
    if payload.lstrip()[:1] != b'"':
        return Fields(payload, *known)
    decode(payload)
    return Fields(NULL, *known)


def _hash(fields: Fields, default_iterations: int) -> dict[str, Any]:
    """A number of chains of digests, each the digest of the one before. The number of chains, not that of threads, decides
    what is computed. One thread does it: hashing 32 bytes does not let go of the interpreter."""
    iterations = fields.integer_or("iterations", default_iterations, 0, _MAX_ITERATIONS)
    chains = fields.integer_or("chains", 8, 1, _MAX_CHAINS)
    seed = fields.text("seed")
    seed = "stoker" if seed is None else seed
    ends = (_chain(f"{seed}:{chain}", _share(iterations, chains, chain)) for chain in range(chains))
    return {"iterations": iterations, "digest": hashlib.sha256(b"".join(ends)).hexdigest()}


def _chain(seed: str, iterations: int) -> bytes:
    sha256 = hashlib.sha256
    digest = sha256(seed.encode()).digest()
    for _ in range(iterations):
        digest = sha256(digest).digest()
    return digest


def _io(fields: Fields, default_files: int, default_size_kb: int) -> Callable[[], dict[str, Any]]:
    """Files to be written, synced, read back and checked."""
    files = fields.integer_or("files", default_files, 1, _MAX_FILES)
    size = fields.integer_or("size_kb", default_size_kb, 1, _MAX_FILE_KB) * _KIB
    sync = fields.boolean("fsync", True)

    def work() -> dict[str, Any]:
        digests = _spread(files, lambda file: _write_and_read(file, size, sync))
        return {
            "files": files,
            "bytes": files * size,
            "digest": hashlib.sha256(b"".join(digests)).hexdigest(),
        }

    return work


def _write_and_read(file: int, size: int, sync: bool) -> bytes:
    """Write one file without a name, so that nothing is left behind, whatever ends this process. Return its digest."""
    block = hashlib.sha256(f"stoker:{file}".encode()).digest() * (_BLOCK_BYTES // 32)
    try:
        with tempfile.TemporaryFile(buffering=0) as handle:
            for offset in range(0, size, _BLOCK_BYTES):
                _write_all(handle.fileno(), block[: size - offset])
            if sync:
                os.fsync(handle.fileno())
            handle.seek(0)
            return _digest(handle.fileno(), size)
    except OSError as error:
        raise IoFailed(f"a temporary file could not be used: {error}") from error


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _digest(fd: int, expected_bytes: int) -> bytes:
    hash = hashlib.sha256()
    total = 0
    while chunk := os.read(fd, _BLOCK_BYTES):
        hash.update(chunk)
        total += len(chunk)
    if total != expected_bytes:
        raise OSError("it came back with another size")
    return hash.digest()


def _share(total: int, shares: int, which: int) -> int:
    """An equal share, and one of what is left over."""
    return total // shares + (which < total % shares)


def _spread(count: int, work: Callable[[int], Result]) -> list[Result]:
    """`work(0)` … `work(count - 1)`, on as many threads as the job was granted."""
    threads = min(count, current_job().threads)
    if threads <= 1:
        return [work(index) for index in range(count)]
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(work, range(count)))
