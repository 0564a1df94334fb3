"""What a worker says of itself, to coordinators and in its log: the types that it runs, and the app that they are from."""

from collections.abc import Collection

import structlog

from stoker.executors.builtin import BUILTINS
from stoker.executors.pipe import Ready
from stoker.executors.runner_contract import RunnerContract
from stoker.settings import Settings
from stoker.wire.frames import PROTOCOL, Hello, TypeNote
from stoker.wire.schedules import DeclaredSchedule
from stoker.worker.machine import Machine
from stoker.worker.routes import Routes, declared, notes, routes

log = structlog.get_logger()


class Announcement:
    """Made of the settings, and of what the first Python child said that it can run."""

    def __init__(
        self,
        settings: Settings,
        machine: Machine,
        *,
        version: str,
        native_types: Collection[str],
        runner: RunnerContract | None,
    ) -> None:
        self._settings = settings
        self._machine = machine
        self._version = version
        self._native_types = native_types
        self._runner = runner
        self._notes: dict[str, TypeNote] = {}
        self._declared: list[DeclaredSchedule] = []
        self._told: Ready | None = None
        """What the last hello was made of."""
        self.known: Ready | None = None
        self.routes = Routes({}, {})

    @property
    def name(self) -> str:
        return self._settings.worker_name or f"{self._machine.host}-{self._machine.pid}"

    @property
    def is_told(self) -> bool:
        """Whether the last hello says what is known now."""
        return self._told is self.known

    def know(self, ready: Ready) -> None:
        """Announce from now on what a child said that it can run."""
        self.known = ready
        self.routes = self._make_routes(ready)
        self._notes = notes(ready.about, self.routes)
        self._declared = declared(ready.schedules)

    def _make_routes(self, ready: Ready) -> Routes:
        runner = self._runner
        own = ready.about.keys()
        named = () if runner is None else runner.types
        others = {*BUILTINS, *self._native_types, *named, *self._settings.commands}
        if own & others:
            log.info("task_goes_first", types=sorted(own & others))
        return routes(
            python_types=ready.types,
            builtin_types=BUILTINS.keys() - own,
            async_types=ready.async_types,
            native_types=self._native_types,
            runner_types=named,
            commands=self._settings.commands,
            any_type=runner is not None and runner.any_type,
        )

    def hello(self, session_id: str, secret: str, *, draining: bool) -> Hello:
        self._told = ready = self.known
        settings, machine = self._settings, self._machine
        return Hello(
            PROTOCOL,
            session_id,
            self.name,
            settings.worker_threads,
            self.routes.types,
            list(settings.worker_queues) or None,
            dict(settings.worker_labels),
            machine.host,
            machine.pid,
            self._version,
            draining,
            self.routes.async_types,
            settings.async_concurrency,
            self._notes,
            batches=True,
            secret=secret,
            any_type=self.routes.any_type,
            app=None if ready is None else ready.app,
            app_version=None if ready is None else ready.app_version,
            schedules=self._declared,
        )

    def log_start(self) -> None:
        settings, types = self._settings, self.routes.types
        own = set() if self.known is None else self.known.about.keys()
        tasks = [type for type in types if type in own or type not in BUILTINS]
        log.info(
            "worker_started",
            worker=self.name,
            threads=settings.worker_threads,
            tasks=tasks,
            builtin_types=len(types) - len(tasks),
            queues=sorted(settings.worker_queues) or None,
            labels=[f"{key}={value}" for key, value in settings.worker_labels.items()],
        )
        if self._runner is not None:
            self._log_runner(self._runner)

    def _log_runner(self, runner: RunnerContract) -> None:
        """Log which types the configured runner gets, and which it does not, for its operator."""
        given = sorted(type for type, executor in self.routes.by_type.items() if executor == "runner")
        elsewhere = sorted(self.routes.by_type.keys() - set(given))
        log.info(
            "runner_configured",
            runner=self._settings.execution_binary,
            takes=("every other type" if elsewhere else "every type") if runner.any_type else given,
            not_given=elsewhere,
            payload="JSON" if runner.json else "text as it is, all else as JSON",
            threads="--threads" if runner.threads else "STOKER_THREADS",
        )
