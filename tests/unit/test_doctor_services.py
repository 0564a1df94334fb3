"""What doctor finds out about PostgreSQL and Redis, and what it makes of that."""

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from stoker.cli import doctor_services as services
from stoker.cli.doctor import check_storage
from stoker.cli.doctor_services import (
    PostgresFacts,
    judge_durability,
    judge_migrations,
    judge_postgres,
    judge_redis,
)
from stoker.cli.findings import Finding
from stoker.settings import Settings
from stoker.store.postgres import schema
from stoker.store.schema import Migration
from tests.support.servers import databases, free_port, redis, shared_postgres

FINE = PostgresFacts(
    version=160_003,
    synchronous_commit="on",
    fsync="on",
    skew_seconds=0.1,
    round_trip_seconds=0.001,
    connections_left=80,
    hears=True,
)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return databases.bare(tmp_path)


@pytest.fixture(scope="module")
def redis_url() -> Iterator[str]:
    with redis() as server:
        yield server.url


def states(findings: list[Finding]) -> dict[str, str]:
    return {finding.check: finding.state for finding in findings}


def test_a_healthy_server_whose_schema_is_not_there_yet(url: str) -> None:
    found = states(services.check_postgres(url))
    assert found == {
        "database": "ok",
        "postgresql": "ok",
        "durability": "broken",  # the server of the tests does not sync
        "connections": "ok",
        "database clock": "ok",
        "listen": "ok",
        "schema": "warning",
    }
    asyncio.run(schema.up(url))
    assert states(services.check_postgres(url))["schema"] == "ok"


def test_a_server_that_is_not_there() -> None:
    (finding,) = services.check_postgres(f"postgresql://me:secret@127.0.0.1:{free_port()}/jobs")
    assert (finding.check, finding.state) == ("database", "broken")
    assert "start PostgreSQL" in finding.fix
    assert "secret" not in finding.detail


def test_a_database_that_does_not_exist() -> None:
    (finding,) = services.check_postgres(shared_postgres().url_of("nowhere"))
    assert finding.state == "broken"
    assert "nowhere" in finding.detail


def test_the_storage_of_the_settings_is_what_is_checked(url: str, redis_url: str, tmp_path: Path) -> None:
    assert "listen" in states(check_storage(Settings(database_url=url)))
    assert "data folder" not in states(check_storage(Settings(database_url=url)))
    plain = Settings(database_url=f"sqlite:///{tmp_path}/stoker.db")
    assert set(states(check_storage(plain))) == {"data folder", "disk space"}
    assert states(check_storage(replace(plain, redis_url=redis_url)))["redis"] == "ok"


def test_redis_that_is_not_there_is_only_a_warning() -> None:
    (finding,) = services.check_redis(f"redis://:secret@127.0.0.1:{free_port()}/0")
    assert finding.state == "warning"
    assert "secret" not in finding.detail
    assert "without it everything works" in finding.fix


def test_something_else_behind_the_address_of_redis() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        mute.settimeout(5)
        url = f"redis://127.0.0.1:{mute.getsockname()[1]}/0"
        services_answer, services.ANSWER_SECONDS = services.ANSWER_SECONDS, 0.2
        try:
            (finding,) = services.check_redis(url)
        finally:
            services.ANSWER_SECONDS = services_answer
    assert finding.state == "warning"


@pytest.mark.parametrize(
    ("facts", "check", "state"),
    [
        (FINE, "postgresql", "ok"),
        (replace(FINE, version=130_011), "postgresql", "broken"),
        (replace(FINE, synchronous_commit="off"), "durability", "warning"),
        (replace(FINE, synchronous_commit="remote_apply"), "durability", "ok"),
        (replace(FINE, fsync="off"), "durability", "broken"),
        (replace(FINE, connections_left=3), "connections", "warning"),
        (replace(FINE, connections_left=-2), "connections", "warning"),
        (replace(FINE, skew_seconds=-7.0), "database clock", "warning"),
        (replace(FINE, hears=False), "listen", "warning"),
    ],
)
def test_what_doctor_makes_of_a_server(facts: PostgresFacts, check: str, state: str) -> None:
    (finding,) = [finding for finding in judge_postgres(facts) if finding.check == check]
    assert finding.state == state
    assert bool(finding.fix) == (state != "ok")


def test_what_doctor_makes_of_a_schema() -> None:
    applied, pending = Migration(1, "initial", "applied"), Migration(2, "output", "pending")
    assert judge_migrations([applied]).state == "ok"
    assert judge_migrations([applied, pending]).state == "warning"
    assert judge_migrations([applied, Migration(9, "", "unknown")]).state == "broken"


def test_what_doctor_makes_of_redis() -> None:
    assert judge_redis("redis://x", "7.2.4", 0.001).state == "ok"
    assert judge_redis("redis://x", "5.0.7", 0.001).state == "warning"
    assert judge_redis("redis://x", "7.2.4", 0.2).state == "warning"


def test_durability_is_said_in_the_servers_own_words() -> None:
    assert "synchronous_commit is local" in judge_durability(replace(FINE, synchronous_commit="local")).detail
