"""Workers as containers of a Docker engine.

A process that may talk to an engine may do anything to its machine, so the autoscaler runs in a process of its own, which
takes no orders: it listens on no port, and what it starts is fixed by its operator (`WORKER_IMAGE`, a fixed command,
no binds, no privileges, no capabilities). Nothing that a job or a client says reaches the engine.

Containers carry a label with the group that they belong to, made from the coordinator's address. They outlive this
process, and the next one finds them by that label: nothing is remembered. Containers without it do not exist for us.
"""

import asyncio
import contextlib
import hashlib
import secrets
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

import aiodocker
import aiohttp
import structlog

from stoker.autoscale.coordinator_api import WorkerRow
from stoker.autoscale.providers.base import Own, ProviderError
from stoker.settings import Settings

GROUP_LABEL: Final = "stoker.autoscaler"
ROLE_LABELS: Final = {"stoker.role": "worker"}
_GROUP_CHARS: Final = 12
_NAME_CHARS: Final = 4
"""Random bytes in a name; a name is never used twice."""
_ALIVE: Final = frozenset({"running", "restarting", "paused"})
"""States of a container that has not ended."""
_END_SECONDS: Final = 5

log = structlog.get_logger()


def group_of(url: str) -> str:
    """Return one group for each coordinator's address, so that two systems on one engine leave each other alone."""
    return hashlib.sha256(url.encode()).hexdigest()[:_GROUP_CHARS]


def container_config(settings: Settings, name: str, group: str) -> dict[str, Any]:
    """The one kind of container that is ever made."""
    if settings.worker_image is None:
        raise ProviderError("WORKER_IMAGE is not set: it names the image that workers are started from")
    command = ["worker", "--name", name, "--threads", str(settings.worker_threads)]
    for url in settings.coordinator_urls:
        command += ["--url", url]
    command += ["--log-level", settings.log_level, "--log-format", "json"]
    # By the environment, because a command line can be read by every process of the container.
    environ = [] if settings.token is None else [f"STOKER_TOKEN={settings.token}"]
    host: dict[str, Any] = {
        "Privileged": False,
        "Binds": [],
        "CapDrop": ["ALL"],
        "SecurityOpt": ["no-new-privileges"],
        "RestartPolicy": {"Name": "no"},
        "AutoRemove": False,
        # A small init reaps what jobs leave behind and passes signals on.
        "Init": True,
    }
    if settings.worker_network is not None:
        host["NetworkMode"] = settings.worker_network
    return {
        "Image": settings.worker_image,
        "Cmd": command,
        "Env": environ,
        "Hostname": name,
        "Labels": {GROUP_LABEL: group, **ROLE_LABELS},
        "StopSignal": "SIGTERM",
        "StopTimeout": stop_seconds(settings),
        "HostConfig": host,
    }


def stop_seconds(settings: Settings) -> int:
    """More seconds than a worker needs to drain."""
    return int(settings.shutdown_grace_sec + settings.cancel_grace_sec + 10)


class DockerProvider:
    mode = "docker"

    def __init__(self, settings: Settings, docker: aiodocker.Docker, *, keep: bool = False) -> None:
        self._settings = settings
        self._docker = docker
        self._keep = keep
        self._group = group_of(settings.coordinator_urls[0])
        self._prefix = f"stoker-{self._group}-"
        container_config(settings, self._prefix, self._group)  # fail at the start, not at the first busy hour

    def owns(self, row: WorkerRow) -> bool:
        return row.name.startswith(self._prefix)

    async def running(self) -> list[Own]:
        """Oldest first. Containers that ended, or were made and never started, are removed."""
        alive = []
        async with self._engine("list containers"):
            for container in await self._containers():
                if container["State"] in _ALIVE:
                    alive.append(container)
                else:
                    await self._remove(container)
        alive.sort(key=lambda container: container["Created"])
        return [Own(_name(container)) for container in alive]

    async def start(self, count: int) -> Sequence[str]:
        names = []
        for _ in range(count):
            name = self._prefix + secrets.token_hex(_NAME_CHARS)
            async with self._engine(f"start a container of {self._settings.worker_image}"):
                config = container_config(self._settings, name, self._group)
                container = await self._docker.containers.create(config, name=name)
                await container.start()
            names.append(name)
        return names

    async def end(self, name: str) -> None:
        """The engine kills what does not stop in time. It runs nothing, so it needs little."""
        async with self._engine(f"stop {name}"):
            for container in await self._containers():
                if _name(container) == name:
                    await self._stop(container, _END_SECONDS)

    async def close(self) -> None:
        """Stop and remove all of ours, side by side; nothing is left behind, unless it shall be kept."""
        try:
            if not self._keep:
                async with self._engine("stop containers"):
                    seconds = stop_seconds(self._settings)
                    stopping = [self._stop(container, seconds) for container in await self._containers()]
                    await asyncio.gather(*stopping, return_exceptions=True)
                    for container in await self._containers():
                        await self._remove(container)
        finally:
            await self._docker.close()

    async def _containers(self) -> list[aiodocker.containers.DockerContainer]:
        return await self._docker.containers.list(
            all=True, filters=f'{{"label": ["{GROUP_LABEL}={self._group}"]}}'
        )

    async def _stop(self, container: aiodocker.containers.DockerContainer, seconds: int) -> None:
        await container.stop(t=seconds, timeout=aiohttp.ClientTimeout(total=seconds + 15))

    async def _remove(self, container: aiodocker.containers.DockerContainer) -> None:
        log.info(
            "container_removed", worker=_name(container), state=container["State"], detail=container["Status"]
        )
        await container.delete(force=True, v=True)

    @contextlib.asynccontextmanager
    async def _engine(self, doing: str) -> AsyncIterator[None]:
        """Turn every error of the Docker engine or its client into a `ProviderError`."""
        try:
            yield
        except (aiodocker.DockerError, aiohttp.ClientError, OSError, TimeoutError) as error:
            raise ProviderError(
                f"the Docker engine could not {doing}: {str(error) or repr(error)}"
            ) from error


def _name(container: aiodocker.containers.DockerContainer) -> str:
    names: list[str] = container["Names"]
    return names[0].removeprefix("/")
