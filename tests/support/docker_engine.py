"""A stand-in for a Docker engine: the five calls that the provider makes, over HTTP on a Unix socket. It starts nothing;
it remembers what it was asked, and containers change state when a test says so."""

import contextlib
import itertools
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from aiohttp import web


class SmallEngine:
    def __init__(self) -> None:
        self.containers: dict[str, dict[str, Any]] = {}
        self.refuses_start = False
        self.images = {"worker-image"}
        self.removed: list[str] = []
        self.stopped: list[tuple[str, str | None]] = []
        self._numbers = itertools.count(1)

    def put(self, name: str, labels: dict[str, str], state: str = "running") -> None:
        """A container that somebody else made."""
        self._add(name, {"Labels": labels}, state)

    def set_state(self, name: str, state: str) -> None:
        self._named(name)["State"] = state

    def names(self) -> list[str]:
        return [container["Name"] for container in self.containers.values()]

    def config(self, name: str) -> dict[str, Any]:
        config: dict[str, Any] = self._named(name)["Config"]
        return config

    def _named(self, name: str) -> dict[str, Any]:
        return next(one for one in self.containers.values() if one["Name"] == name)

    def _add(self, name: str, config: dict[str, Any], state: str) -> str:
        number = next(self._numbers)
        id = f"{number:064x}"
        self.containers[id] = {
            "Id": id,
            "Name": name,
            "Names": [f"/{name}"],
            "Created": number,
            "State": state,
            "Status": state,
            "Labels": config.get("Labels", {}),
            "Config": config,
        }
        return id

    # ── HTTP ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def list(self, request: web.Request) -> web.Response:
        wanted = json.loads(request.query.get("filters", "{}")).get("label", [])
        found = [
            container
            for container in self.containers.values()
            if all(f"{key}={value}" in wanted for key, value in container["Labels"].items() if "auto" in key)
            and any(f"{key}={value}" in wanted for key, value in container["Labels"].items())
        ]
        return web.json_response(found)

    async def create(self, request: web.Request) -> web.Response:
        config = await request.json()
        if config["Image"] not in self.images:
            return web.json_response({"message": f"No such image: {config['Image']}"}, status=404)
        id = self._add(request.query["name"], config, "created")
        return web.json_response({"Id": id, "Warnings": []}, status=201)

    async def start(self, request: web.Request) -> web.Response:
        if self.refuses_start:
            return web.json_response({"message": "network nowhere not found"}, status=404)
        self.containers[request.match_info["id"]]["State"] = "running"
        return web.Response(status=204)

    async def stop(self, request: web.Request) -> web.Response:
        container = self.containers[request.match_info["id"]]
        self.stopped.append((container["Name"], request.query.get("t")))
        container["State"] = "exited"
        return web.Response(status=204)

    async def delete(self, request: web.Request) -> web.Response:
        self.removed.append(self.containers.pop(request.match_info["id"])["Name"])
        return web.Response(status=204)

    async def version(self, request: web.Request) -> web.Response:
        return web.json_response({"ApiVersion": "1.41", "Version": "20.10"})


@contextlib.asynccontextmanager
async def small_engine(folder: Path) -> AsyncIterator[tuple[SmallEngine, str]]:
    """An engine and its address."""
    engine = SmallEngine()
    app = web.Application()
    for prefix in ("", "/v{version}"):
        app.router.add_get(f"{prefix}/version", engine.version)
        app.router.add_get(f"{prefix}/containers/json", engine.list)
        app.router.add_post(f"{prefix}/containers/create", engine.create)
        app.router.add_post(f"{prefix}/containers/{{id}}/start", engine.start)
        app.router.add_post(f"{prefix}/containers/{{id}}/stop", engine.stop)
        app.router.add_delete(f"{prefix}/containers/{{id}}", engine.delete)
    runner = web.AppRunner(app)
    await runner.setup()
    path = folder / "engine.sock"
    await web.UnixSite(runner, str(path)).start()
    try:
        yield engine, f"unix://{path}"
    finally:
        await runner.cleanup()
