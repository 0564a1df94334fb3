"""Makes this Python as poor as one on Windows, as far as that can be pretended: put the folder that `write` fills first on
`PYTHONPATH`, and each Python started so lacks these modules and calls."""

from pathlib import Path
from typing import Final

MODULES: Final = ("fcntl", "grp", "psutil", "pwd", "resource", "termios", "uvloop")
_OS: Final = """fork forkpty register_at_fork memfd_create sched_getaffinity sched_setaffinity killpg setsid getppid wait4
getuid geteuid pread pwrite major minor sysconf O_CLOEXEC O_DIRECTORY O_NOFOLLOW"""
CALLS: Final = {
    "os": _OS.split(),
    "signal": ["SIGKILL", "SIGHUP", "SIGUSR1", "SIGCHLD", "SIGPIPE", "SIGALRM"],
    "select": ["epoll", "poll"],
}

_SITE: Final = f"""
import asyncio, os, select, signal, sys

for name in {MODULES!r}:
    sys.modules[name] = None  # importing it raises ImportError
for module, names in {CALLS!r}.items():
    for name in names:
        if hasattr(sys.modules[module], name):
            delattr(sys.modules[module], name)


def no_signals(self, *args):
    raise NotImplementedError


asyncio.SelectorEventLoop.add_signal_handler = no_signals
"""


def write(folder: Path) -> Path:
    """Fill a folder. Return it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sitecustomize.py").write_text(_SITE, encoding="utf-8")
    return folder
