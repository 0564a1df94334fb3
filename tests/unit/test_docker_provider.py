"""The Docker provider: what it asks of an engine, what it never asks, and whose containers it leaves alone."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import aiodocker
import pytest

from stoker.autoscale.coordinator_api import WorkerRow
from stoker.autoscale.providers.base import ProviderError
from stoker.autoscale.providers.docker import GROUP_LABEL, DockerProvider, container_config, group_of
from stoker.cli.autoscale import _docker
from stoker.settings import Settings, load
from tests.support.docker_engine import SmallEngine, small_engine
from tests.support.in_loop import in_loop

TOKEN = "a-token-of-enough-characters"
URL = "http://coordinator:8080"


def settings(**more: str) -> Settings:
    return load({"WORKER_IMAGE": "worker-image", "API_URL": URL, "STOKER_WORKER_THREADS": "2", **more})


class Site(NamedTuple):
    engine: SmallEngine
    address: str
    provider: DockerProvider

    def successor(self, *, keep: bool = False) -> DockerProvider:
        return DockerProvider(settings(), aiodocker.Docker(self.address), keep=keep)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    @asynccontextmanager
    async def make() -> AsyncIterator[Site]:
        async with small_engine(tmp_path) as (engine, address), aiodocker.Docker(address) as docker:
            yield Site(engine, address, DockerProvider(settings(), docker))

    return in_loop(make)


def test_a_container_has_no_binds_no_privileges_and_a_fixed_command() -> None:
    config = container_config(settings(STOKER_TOKEN=TOKEN, STOKER_WORKER_NETWORK="net"), "w-1", "group")
    host = config["HostConfig"]
    assert (host["Privileged"], host["Binds"], host["CapDrop"]) == (False, [], ["ALL"])
    assert host["SecurityOpt"] == ["no-new-privileges"]
    assert host["RestartPolicy"] == {"Name": "no"}
    assert host["NetworkMode"] == "net"
    assert not {"Mounts", "Devices", "CapAdd", "PidMode", "IpcMode", "VolumesFrom"} & host.keys()
    assert not {"Volumes", "Entrypoint", "User"} & config.keys()
    assert config["Cmd"][:5] == ["worker", "--name", "w-1", "--threads", "2"]
    assert config["Env"] == [f"STOKER_TOKEN={TOKEN}"]
    assert TOKEN not in " ".join(config["Cmd"])
    assert config["StopTimeout"] > settings().shutdown_grace_sec


def test_two_systems_on_one_engine_are_two_groups() -> None:
    assert group_of("http://one:8080") != group_of("http://two:8080")
    assert group_of(URL) == group_of(URL)


def test_without_an_image_it_does_not_start_at_all() -> None:
    with pytest.raises(ProviderError, match="WORKER_IMAGE is not set"):
        container_config(load({}), "w", "g")


async def test_workers_are_started_and_counted(site: Site) -> None:
    names = await site.provider.start(2)
    assert len(set(names)) == 2
    assert [own.name for own in await site.provider.running()] == list(names), "oldest first"
    config = site.engine.config(names[0])
    assert config["Labels"][GROUP_LABEL] == group_of(URL)
    assert (config["Image"], config["Hostname"]) == ("worker-image", names[0])
    row = WorkerRow("id", names[0], "live")
    assert site.provider.owns(row)
    assert not site.provider.owns(WorkerRow("id", "stoker-somebody", "live"))


async def test_a_successor_finds_the_containers_again(site: Site) -> None:
    names = await site.provider.start(2)
    successor = site.successor(keep=True)
    assert [own.name for own in await successor.running()] == list(names)
    await successor.close()
    assert site.engine.names() == list(names), "kept, as asked"


async def test_what_died_is_cleaned_up_and_does_not_count(site: Site) -> None:
    first, second, third = await site.provider.start(3)
    site.engine.set_state(first, "exited")
    site.engine.set_state(third, "dead")
    assert [own.name for own in await site.provider.running()] == [second]
    assert site.engine.names() == [second]


async def test_a_container_that_could_not_start_is_told_and_removed_later(site: Site) -> None:
    site.engine.refuses_start = True
    with pytest.raises(ProviderError, match="network nowhere not found"):
        await site.provider.start(1)
    assert len(site.engine.names()) == 1
    assert await site.provider.running() == []
    assert site.engine.names() == []


async def test_containers_of_others_do_not_exist(site: Site) -> None:
    site.engine.put("database", {"app": "db"})
    site.engine.put("other-system", {GROUP_LABEL: group_of("http://other:8080")}, state="exited")
    await site.provider.start(1)
    assert len(await site.provider.running()) == 1
    await site.provider.close()
    assert site.engine.names() == ["database", "other-system"]


async def test_closing_stops_all_with_time_to_leave_and_leaves_nothing(site: Site) -> None:
    names = await site.provider.start(2)
    await site.provider.close()
    assert sorted(site.engine.removed) == sorted(names)
    assert {seconds for _, seconds in site.engine.stopped} == {"41"}


async def test_ending_one_stops_it_and_the_next_count_removes_it(site: Site) -> None:
    first, second = await site.provider.start(2)
    await site.provider.end(first)
    assert [own.name for own in await site.provider.running()] == [second]
    assert site.engine.removed == [first]


async def test_an_image_that_is_not_there_is_named(site: Site) -> None:
    site.engine.images.clear()
    with pytest.raises(ProviderError, match="start a container of worker-image"):
        await site.provider.start(1)


async def test_an_engine_that_does_not_answer_is_an_error_of_the_provider(tmp_path: Path) -> None:
    async with aiodocker.Docker(f"unix://{tmp_path}/none.sock") as docker:
        with pytest.raises(ProviderError, match=r"could not list containers: .*none\.sock"):
            await DockerProvider(settings(), docker).running()


def test_without_an_engine_the_autoscaler_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    monkeypatch.setattr(aiodocker.docker, "_sock_search_paths", [])
    with pytest.raises(ProviderError, match=r"no Docker engine: there is no socket of one.* set DOCKER_HOST"):
        _docker(settings(), keep=False)
