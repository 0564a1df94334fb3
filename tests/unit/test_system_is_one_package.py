"""What depends on the operating system stays in `stoker.system`: the rest of the code must import, and where it makes sense
run, on systems without these modules and calls."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import stoker

PACKAGE: Final = Path(stoker.__file__).parent


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


MODULES: Final = words(
    "ctypes fcntl grp msvcrt multiprocessing posix psutil pty pwd resource termios tty uvloop winreg"
)
OS: Final = words(
    """fork forkpty register_at_fork memfd_create sched_setaffinity sched_getaffinity killpg setsid setpgid getpgid getppid
    wait wait3 wait4 waitpid waitid pidfd_open getuid geteuid getgid chown fchmod fchown mkfifo pread pwrite preadv pwritev
    fdatasync posix_fallocate posix_fadvise sysconf getloadavg uname statvfs prlimit lockf major minor sync nice
    O_CLOEXEC O_DIRECTORY O_NOFOLLOW O_TMPFILE O_NONBLOCK O_SYNC O_BINARY"""
)
SIGNAL: Final = words(
    """SIGKILL SIGHUP SIGUSR1 SIGUSR2 SIGCHLD SIGSTOP SIGCONT SIGPIPE SIGALRM SIGWINCH setitimer alarm pthread_sigmask
    sigwait set_wakeup_fd"""
)
OTHERS: Final = {
    "os": OS,
    "signal": SIGNAL,
    "socket": frozenset({"AF_UNIX", "SO_REUSEPORT", "SO_EXCLUSIVEADDRUSE", "send_fds", "recv_fds"}),
    "select": frozenset({"epoll", "kqueue", "poll"}),
}
METHODS: Final = frozenset(
    {"add_signal_handler", "create_unix_server", "create_unix_connection", "symlink_to"}
)
FOLDERS: Final = re.compile(r"^/(proc|sys|dev)(/|$)")


def findings(path: Path) -> Iterator[str]:
    """What a file uses that not every system has."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        for found in _in(node):
            yield f"{path.name}:{getattr(node, 'lineno', 0)}: {found}"


def _in(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Import(names):
            yield from (name.name for name in names if name.name.partition(".")[0] in MODULES)
        case ast.ImportFrom(module=str(module), names=names):
            if module.partition(".")[0] in MODULES:
                yield module
            yield from (f"{module}.{one.name}" for one in names if one.name in OTHERS.get(module, ()))
        case ast.Attribute(value=ast.Name(module), attr=name) if name in OTHERS.get(module, ()):
            yield f"{module}.{name}"
        case ast.Attribute(attr=name) if name in METHODS:
            yield name
        case ast.Constant(str(text)) if FOLDERS.match(text):
            yield text


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("import fcntl", 1),
        ("from resource import getrlimit", 1),
        ("def f():\n    import uvloop", 1),
        ("os.killpg(1, 2)", 1),
        ("from os import fork, path", 1),
        ("signal.signal(signal.SIGHUP, f)", 1),
        ("open(f'/proc/{pid}/statm')", 1),
        ("select.epoll()", 1),
        ("loop.add_signal_handler(15, f)", 1),
        ("os.kill(1, signal.SIGTERM); import os.path; x = 'see /proc'", 0),
    ],
)
def test_the_check_sees_what_it_is_for(tmp_path: Path, line: str, found: int) -> None:
    file = tmp_path / "file.py"
    file.write_text(line)
    assert len(list(findings(file))) == found


def test_only_the_package_system_uses_what_not_every_system_has() -> None:
    files = [path for path in PACKAGE.rglob("*.py") if (PACKAGE / "system") not in path.parents]
    assert len(files) > 200
    found = [finding for path in files for finding in findings(path)]
    assert not found, "put it behind stoker.system:\n" + "\n".join(found)
