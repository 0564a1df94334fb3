"""What a supervisor needs of the machine under it: child processes, a guardian for them, orphans, CPUs, memory.

The one place in the worker that starts processes, so that a simulation can bring a machine of its own.
"""

import os
import socket
from collections.abc import Collection
from pathlib import Path
from typing import Final, Protocol

from stoker.access import Access
from stoker.executors.command import OneShot, command_argv, runner_argv
from stoker.executors.native import NativeChild
from stoker.executors.process import Callbacks, Child, Guardian, PythonChild
from stoker.executors.runner_contract import PLAIN, RunnerContract
from stoker.settings import Settings
from stoker.system import SYSTEM
from stoker.worker.routes import Executor


class AnyGuardian(Protocol):
    """The interface of a guardian, which kills the children that a killed supervisor leaves behind."""

    @property
    def pid(self) -> int: ...
    @property
    def alive(self) -> bool: ...
    def watch(self, group: int) -> None: ...
    def forget(self, group: int) -> None: ...
    def close(self) -> None: ...


class NoGuardian:
    """Does nothing: for children that are threads of the supervisor, and so cannot outlive it."""

    pid = 1
    alive = True

    def watch(self, group: int) -> None: ...
    def forget(self, group: int) -> None: ...
    def close(self) -> None: ...


class Machine(Protocol):
    @property
    def host(self) -> str: ...
    @property
    def pid(self) -> int: ...
    @property
    def cpus(self) -> list[int]: ...

    def adopt_orphans(self) -> None: ...
    def reap_orphans(self, known: Collection[int]) -> None: ...
    def guardian(self, mark: str) -> AnyGuardian: ...
    def memory_kb(self, pid: int) -> int: ...

    def child(
        self, executor: Executor, mark: str, callbacks: Callbacks, command: tuple[str, ...] | None
    ) -> Child:
        """Start a child; `command` is what a `command` child runs."""
        ...


class ThisMachine:
    """The machine that this process runs on."""

    def __init__(
        self, settings: Settings, native: Path | None = None, runner: RunnerContract | None = None
    ) -> None:
        self._settings: Final = settings
        self._native: Final = native
        self._runner: Final = runner or PLAIN

    @property
    def host(self) -> str:
        return socket.gethostname()

    @property
    def pid(self) -> int:
        return os.getpid()

    @property
    def cpus(self) -> list[int]:
        return SYSTEM.pinnable_cpus()

    def adopt_orphans(self) -> None:
        SYSTEM.adopt_orphans()

    def reap_orphans(self, known: Collection[int]) -> None:
        SYSTEM.reap_orphans(known)

    def guardian(self, mark: str) -> Guardian:
        return Guardian(mark)

    def memory_kb(self, pid: int) -> int:
        return SYSTEM.group_memory_kb(pid)

    def child(
        self, executor: Executor, mark: str, callbacks: Callbacks, command: tuple[str, ...] | None
    ) -> Child:
        settings = self._settings
        limit = settings.max_result_bytes
        if executor == "native" and self._native is not None:
            return NativeChild(mark, callbacks, binary=self._native, max_result_bytes=limit)
        if executor == "runner" and settings.execution_binary is not None:
            argv = runner_argv(settings.execution_binary, self._runner)
            return OneShot(mark, callbacks, argv=argv, runner=self._runner, max_result_bytes=limit)
        if executor == "command" and command is not None:
            argv = command_argv(command)
            return OneShot(mark, callbacks, argv=argv, max_result_bytes=limit)
        concurrency = settings.async_concurrency if executor == "async" else 0
        return PythonChild(
            mark,
            callbacks,
            app=settings.app,
            max_result_bytes=limit,
            concurrency=concurrency,
            access=Access(settings.coordinator_urls[0], settings.token),
        )
