"""Both implementations of what depends on the system, on this one; the portable one also where modules are missing."""

import asyncio
import contextlib
import mmap
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stoker.cli.doctor import check_workers
from stoker.system import SYSTEM, Portable, choose
from stoker.system.linux import Linux

BOTH = [Portable(), Linux()]
SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]
CHILD = """
import os, sys, time
from stoker.system.{module} import {name}
if {closes}:
    os.closerange(3, 200)
{name}().end_with_parent(sys.argv[1])
print(os.getpid(), flush=True)
time.sleep(600)
"""
PARENT = """
import subprocess, sys, time
from stoker.system.{module} import {name}
word, fds = {name}().lifeline()
child = subprocess.Popen([sys.executable, "-c", sys.argv[1], word], pass_fds=fds, start_new_session=True)
time.sleep(600)
"""


@pytest.mark.parametrize(
    ("environ", "platform", "name"),
    [
        ({}, "linux", "linux"),
        ({"STOKER_PORTABLE": ""}, "linux", "linux"),
        ({"STOKER_PORTABLE": "0"}, "linux", "linux"),
        ({"STOKER_PORTABLE": "1"}, "linux", "portable"),
        ({}, "darwin", "portable"),
        ({}, "win32", "portable"),
    ],
)
def test_the_system_and_one_variable_choose(environ: dict[str, str], platform: str, name: str) -> None:
    assert choose(environ, platform).name == name


def test_a_linux_python_without_the_modules_gets_the_portable_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "stoker.system.linux", None)
    assert choose({}, "linux").name == "portable"


@pytest.mark.parametrize("system", BOTH, ids=lambda system: system.name)
def test_shared_memory_is_shared_and_what_is_written_by_descriptor_does_not_reach_it(
    system: Portable,
) -> None:
    fd = system.create_shared_memory(4096)
    ours, theirs = mmap.mmap(fd, 4096), mmap.mmap(fd, 4096)
    system.seal_shared_memory(fd)
    with contextlib.suppress(PermissionError):
        os.write(fd, b"garbage")
    assert ours[:16] == bytes(16)
    theirs[:5] = b"hello"
    assert ours[:5] == b"hello"
    ours.close()
    theirs.close()
    os.close(fd)


def lives(pid: int) -> bool:
    try:
        return b") Z " not in Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False


def gone(pid: int, within: float = 10.0) -> bool:
    deadline = time.monotonic() + within
    while lives(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not lives(pid)


@pytest.mark.parametrize("closes", [False, True], ids=["", "its descriptors closed"])
@pytest.mark.parametrize("system", BOTH, ids=lambda system: system.name)
def test_a_child_ends_with_its_parent(system: Portable, closes: bool) -> None:
    names = {"module": system.name, "name": type(system).__name__}
    child_code = CHILD.format(**names, closes=closes)
    argv = [sys.executable, "-c", PARENT.format(**names), child_code]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, start_new_session=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert lives(child)
        parent.kill()
        assert gone(child)


@pytest.mark.parametrize("system", BOTH, ids=lambda system: system.name)
def test_a_child_whose_parent_is_gone_already_ends_at_once(system: Portable) -> None:
    names = {"module": system.name, "name": type(system).__name__}
    done = subprocess.run(
        [sys.executable, "-c", CHILD.format(**names, closes=False), "1"], timeout=30, check=False
    )
    assert done.returncode == 1


def test_the_portable_one_finds_orphans_by_their_environment_and_leaves_others_alone() -> None:
    mine, other = (
        subprocess.Popen(SLEEP, env={**os.environ, "STOKER_WORKER_CHILD": mark}, start_new_session=True)
        for mark in ("test-a10-1", "test-a10-2")
    )
    try:
        Portable().end_orphans("STOKER_WORKER_CHILD=test-a10-1", "test-a10", 1)
        assert mine.wait(10) == -signal.SIGKILL
        assert other.poll() is None
    finally:
        for process in (mine, other):
            process.kill()
            process.wait()


@pytest.mark.parametrize("system", BOTH, ids=lambda system: system.name)
def test_what_a_process_uses_is_told(system: Portable) -> None:
    code = "x = bytearray(60_000_000); sum(range(3_000_000)); import time; time.sleep(600)"
    process = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    try:
        assert system.wait(process.pid, block=False) is None
        deadline = time.monotonic() + 20
        while system.group_memory_kb(process.pid) < 50_000 and time.monotonic() < deadline:
            time.sleep(0.02)
        assert 50_000 < system.group_memory_kb(process.pid) < 500_000
    finally:
        system.kill_group(process.pid)
    ended = system.wait(process.pid, block=True)
    process.returncode = -9
    assert ended is not None
    code_, usage = ended
    assert code_ == -signal.SIGKILL
    assert usage is not None
    assert usage.cpu_us > 0
    assert usage.peak_kb > 50_000  # a fork of a large process begins with its peak
    assert system.group_memory_kb(process.pid) == 0


@pytest.mark.parametrize("system", BOTH, ids=lambda system: system.name)
def test_a_meter_counts_the_cpu_time_of_one_job(system: Portable) -> None:
    meter = system.meter()
    sum(range(3_000_000))
    cpu_us, peak_kb = meter.stop(1.0)
    assert cpu_us is not None
    assert peak_kb is not None
    assert 1_000 < cpu_us < 60_000_000
    assert peak_kb > 1_000
    again, _ = meter.stop(1.0)
    assert again is not None
    assert again < cpu_us


@pytest.mark.parametrize("fcntl", [True, False], ids=["fcntl", "no fcntl"])
def test_a_file_is_locked_by_one_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fcntl: bool
) -> None:
    if not fcntl:
        monkeypatch.setitem(sys.modules, "fcntl", None)
    path = tmp_path / "x.lock"
    lock = Portable().lock_file(path)
    assert lock is not None
    assert Portable().lock_file(path) is None
    code = "import sys; from stoker.system import Portable; from pathlib import Path; "
    hidden = "" if fcntl else "sys.modules['fcntl'] = None; "
    code += f"{hidden}print(Portable().lock_file(Path(sys.argv[1])))"
    argv = [sys.executable, "-c", code, str(path)]
    assert subprocess.run(argv, capture_output=True, text=True, check=True).stdout == "None\n"
    lock.release()
    again = Portable().lock_file(path)
    assert again is not None
    again.release()
    assert path.stat().st_size == 0


async def test_signals_reach_the_loop_also_where_it_has_no_handlers(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> None:
        raise NotImplementedError

    loop = asyncio.get_running_loop()
    monkeypatch.setattr(loop, "add_signal_handler", missing)
    came = asyncio.Event()
    before = signal.getsignal(signal.SIGTERM)
    try:
        Portable().on_signals([signal.SIGTERM], came.set)
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(came.wait(), 10)
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_port_is_never_shared_on_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "SO_EXCLUSIVEADDRUSE", socket.SO_KEEPALIVE, raising=False)
    with socket.socket() as listener:
        Portable().prepare_listener(listener)
        assert listener.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert listener.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR) == 0


def test_files_for_bytes_are_opened_as_such_where_that_is_a_choice(tmp_path: Path) -> None:
    path = tmp_path / "x"
    fd = SYSTEM.open_private(path, os.O_RDWR | os.O_CREAT)
    assert not os.get_inheritable(fd)
    os.write(fd, b"a\nb")
    assert SYSTEM.read_start(fd, 2) == b"a\n"
    os.close(fd)
    assert path.stat().st_mode & 0o777 == 0o600


def test_workers_are_refused_where_there_is_no_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Portable().worker_problem is None
    monkeypatch.delattr(os, "fork")
    assert "WSL" in (Portable().worker_problem or "")
    assert check_workers(Portable()).state == "warning"


@pytest.mark.parametrize("system", BOTH, ids=["portable", "linux"])
def test_a_socket_does_not_wait_for_longer_than_its_timeout(system: Portable) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        system.set_timeout(ours, 30)
        theirs.sendall(b"x")
        assert ours.recv(10) == b"x"
        system.set_timeout(ours, 0.05)
        began = time.monotonic()
        with pytest.raises((TimeoutError, BlockingIOError)):
            ours.recv(10)
        with pytest.raises((TimeoutError, BlockingIOError)):
            ours.sendall(bytes(64 * 1024 * 1024))
        assert 0.09 <= time.monotonic() - began < 10


def test_the_kernel_keeps_the_time_on_linux_unless_reads_are_another_library_s() -> None:
    class Library(socket.socket):
        def recv(self, size: int, flags: int = 0, /) -> bytes:
            return super().recv(size, flags)

    with socket.socket() as plain, Library() as other:
        Linux().set_timeout(plain, 1.5)
        Linux().set_timeout(other, 1.5)
        assert (plain.gettimeout(), other.gettimeout()) == (None, 1.5)
        assert plain.getsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, 16) == struct.pack("@ll", 1, 500_000)
