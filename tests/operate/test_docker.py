"""A real Docker engine: both images are built and run, workers are containers that come and go with the queue, and the stack
of `compose.yaml` works together.

Whether a busy worker was removed is not asked of the autoscaler: every job must have been done at its first attempt, the
coordinator must not have taken a claim back, and the engine itself must not have seen a worker end in any other way than
by leaving.
"""

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
import yaml

from stoker.autoscale.providers.docker import GROUP_LABEL, group_of
from tests.e2e.system import FINAL, Program, System, eventually, free_port
from tests.support.docker import ROOT, Engine, engine, needs_docker
from tests.support.programs import needs
from tests.support.prometheus import Prometheus

pytestmark = [needs_docker, pytest.mark.slow, pytest.mark.timeout(1800)]

TOKEN: Final = "a-token-of-enough-characters"
PASSWORD: Final = "a-password-of-the-test"
NETWORK: Final = "stoker"
DOCKERFILE: Final = ROOT / "deploy" / "Dockerfile"
ROLES: Final = ("coordinator", "worker", "autoscaler")
SERVICES: Final = ("postgres", "redis", "prometheus")
JOBS: Final = 50
QUICK: Final[dict[str, object]] = {
    "STOKER_SCALE_COOLDOWN_SEC": 1,
    "SCALE_DOWN_STABLE_SEC": 3,
    "MIN_WORKERS": 1,
    "MAX_WORKERS": 4,
    "STOKER_WORKER_THREADS": 1,
}


class Api:
    """A coordinator's API, wherever it runs."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.http = httpx.Client(base_url=url, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=60)

    def answers(self, path: str = "/health") -> bool:
        try:
            return self.http.get(path).status_code == 200
        except httpx.TransportError:
            return False

    def get(self, path: str, **params: Any) -> Any:
        answer = self.http.get(path, params=params)
        assert answer.is_success, answer.text
        return answer.json()

    def post(self, path: str, body: object) -> Any:
        answer = self.http.post(path, json=body)
        assert answer.is_success, answer.text
        return answer.json()

    def sleeps(self, count: int, seconds: float) -> list[str]:
        jobs = [{"type": "sleep", "payload": {"seconds": seconds}} for _ in range(count)]
        return [job["id"] for job in self.post("/jobs/batch", {"jobs": jobs})["jobs"]]

    def ended(self, id: str, within: float = 120) -> dict[str, Any]:
        return eventually(
            lambda: job if (job := self.get(f"/jobs/{id}", wait=5))["status"] in FINAL else None,
            within,
            lambda: f"{id} to end: {self.get(f'/jobs/{id}')}",
        )

    def live(self) -> list[str]:
        return [row["name"] for row in self.get("/workers")["workers"] if row["status"] == "live"]

    def number(self, metric: str) -> float:
        lines = self.http.get("/metrics").text.splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.split("{")[0].split()[0] == metric)


@pytest.fixture(scope="module")
def docker() -> Iterator[Engine]:
    """The engine with all images in it."""
    with engine() as docker:
        for role in ROLES:
            docker.build(f"stoker-{role}", DOCKERFILE, ROOT, role)
        yield docker


@pytest.fixture
def network(docker: Engine) -> Iterator[str]:
    docker("network", "create", NETWORK)
    yield NETWORK
    docker("network", "rm", NETWORK)


@contextlib.contextmanager
def coordinator(docker: Engine, network: str, **settings: object) -> Iterator[Api]:
    """One that answers and calls itself healthy, with its database inside."""
    id = docker.run(
        "stoker-coordinator",
        options=("--network", network, "--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL"),
        STOKER_TOKEN=TOKEN,
        **settings,
    )
    address = docker.inspect(id)["NetworkSettings"]["Networks"][network]["IPAddress"]
    api = Api(f"http://{address}:8080")
    try:
        eventually(api.answers, 60, lambda: docker("logs", id))
        yield api
    finally:
        api.http.close()
        docker("rm", "--force", "--volumes", id)


def workers_of(docker: Engine, api: Api) -> list[str]:
    """Containers of the autoscaler's workers, whatever became of them."""
    return docker.containers(**{GROUP_LABEL: group_of(api.url)})


# ── images ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def inside(docker: Engine, role: str, *argv: str) -> str:
    return docker("run", "--rm", "--network=none", f"--entrypoint={argv[0]}", f"stoker-{role}", *argv[1:])


@pytest.mark.parametrize("role", ROLES)
def test_an_image_runs_as_nobody_special_and_holds_no_tools(docker: Engine, role: str) -> None:
    assert inside(docker, role, "id", "-u") == "10001"
    assert inside(docker, role, "stoker", "--version").startswith("stoker ")
    missing = "import shutil; print([t for t in ('cc', 'c++', 'cmake', 'make', 'git') if shutil.which(t)])"
    assert inside(docker, role, "python3", "-c", missing) == "[]"
    base, image = (docker.inspect(name)["Size"] for name in ("base", f"stoker-{role}"))
    assert image - base < 250_000_000, "what comes on top of the base"


def test_the_worker_has_the_native_runner(docker: Engine) -> None:
    find = "from stoker.executors.native_binary import find_runner; print(find_runner())"
    runner = inside(docker, "worker", "/opt/stoker/bin/python", "-c", find)
    argv = (runner, "--job-id", "1", "--type", "add_numbers", "--payload", '{"x": 2, "y": 3}')
    assert json.loads(inside(docker, "worker", *argv)) == {"sum": 5}


def test_only_the_autoscaler_can_speak_to_an_engine(docker: Engine) -> None:
    ask = "import importlib.util; print(importlib.util.find_spec('aiodocker') is not None)"
    found = {role: inside(docker, role, "/opt/stoker/bin/python", "-c", ask) for role in ROLES}
    assert found == {"coordinator": "False", "worker": "False", "autoscaler": "True"}


# ── the autoscaler ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def scaled(docker: Engine, network: str, system: System) -> Iterator[tuple[Api, Program]]:
    """A coordinator, and an autoscaler that has brought the first worker."""
    with coordinator(docker, network, WORKER_HEARTBEAT_TIMEOUT_SEC=5) as api:
        scaler = start_scaler(docker, api, system)
        eventually(lambda: len(api.live()) == 1, 60, lambda: scaler.output)
        yield api, scaler


def start_scaler(docker: Engine, api: Api, system: System, **settings: object) -> Program:
    return system.start(
        *("autoscale", "--url", api.url, "--log-format", "json"),
        DOCKER_HOST=docker.host,
        WORKER_IMAGE="stoker-worker",
        STOKER_WORKER_NETWORK=NETWORK,
        STOKER_TOKEN=TOKEN,
        **(QUICK | settings),
    )


def test_fifty_jobs_bring_four_containers_and_when_it_is_quiet_one_is_left(
    docker: Engine, scaled: tuple[Api, Program]
) -> None:
    api, scaler = scaled
    ids = api.sleeps(JOBS, 1.0)
    eventually(lambda: len(api.live()) == 4, 90, lambda: scaler.output)
    assert len(workers_of(docker, api)) == 4
    assert sorted(api.live()) == sorted(workers_of(docker, api)), "a container is known by its name"
    seen = set(workers_of(docker, api))

    jobs = [api.ended(id) for id in ids]
    assert {(job["status"], job["attempt"]) for job in jobs} == {("completed", 1)}
    assert {job["worker_id"] for job in jobs} >= {
        row["id"] for row in api.get("/workers")["workers"] if row["name"] in seen
    }, "each of the four had its share"

    (last,) = eventually(lambda: live if len(live := api.live()) == 1 else None, 90, lambda: scaler.output)
    eventually(lambda: workers_of(docker, api) == [last], 60, "containers that left to be removed")
    ups, downs = scaler.events("scale_up"), scaler.events("scale_down")
    # The first brought the first worker, for which no job was needed.
    assert [(event["workers"], event["wanted"]) for event in ups] == [(0, 1), (1, 2), (2, 3), (3, 4)]
    assert [(event["workers"], event["wanted"]) for event in downs] == [(4, 3), (3, 2), (2, 1)]
    assert {event["draining"] for event in downs} == seen - {last}
    # By the coordinator's books nothing was taken back, and by the engine's every container left by itself.
    for metric in ("stoker_lease_timeouts_total", "stoker_hand_backs_total", "stoker_job_retries_total"):
        assert api.number(metric) == 0, metric
    left = {event["worker"]: event["detail"] for event in scaler.events("container_removed")}
    assert left.keys() == seen - {last}
    assert all(detail.startswith("Exited (0)") for detail in left.values()), left

    leaves_nothing(docker, api, scaler)


def test_a_container_that_is_killed_is_replaced_and_its_job_is_done_all_the_same(
    docker: Engine, scaled: tuple[Api, Program]
) -> None:
    api, scaler = scaled
    (victim,) = api.live()
    (job,) = api.sleeps(1, 3.0)
    eventually(lambda: api.get(f"/jobs/{job}")["started_at"], 30)
    docker("kill", "--signal=KILL", victim)
    (heir,) = eventually(lambda: set(api.live()) - {victim}, 60, lambda: scaler.output)
    done = api.ended(job)
    assert (done["status"], done["attempt"]) == ("completed", 2)
    assert workers_of(docker, api) == [heir], "the dead one was removed"
    leaves_nothing(docker, api, scaler)


def test_a_busy_worker_stays_however_quiet_the_queue_is(docker: Engine, network: str, system: System) -> None:
    """Long jobs on several workers, an empty queue, no stable window and no cool-down: nobody goes before he is done."""
    with coordinator(docker, network) as api:
        now = {"SCALE_DOWN_STABLE_SEC": 0, "STOKER_SCALE_COOLDOWN_SEC": 0, "QUEUE_THRESHOLD_HIGH": 3}
        scaler = start_scaler(docker, api, system, **now)
        ids = api.sleeps(6, 6.0)
        jobs = [api.ended(id) for id in ids]
        assert {(job["status"], job["attempt"]) for job in jobs} == {("completed", 1)}
        assert len({job["worker_id"] for job in jobs}) >= 2
        eventually(lambda: len(api.live()) == 1, 60, lambda: scaler.output)
        assert api.number("stoker_hand_backs_total") == api.number("stoker_lease_timeouts_total") == 0
        leaves_nothing(docker, api, scaler)


def leaves_nothing(docker: Engine, api: Api, scaler: Program) -> None:
    scaler.terminate()
    assert scaler.exit_code(within=90) == 0, scaler.output
    assert workers_of(docker, api) == []
    assert TOKEN not in scaler.output
    assert docker("volume", "ls", "--quiet", "--filter=dangling=true") == ""


# ── compose ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def stack(docker: Engine, tmp_path: Path) -> Iterator["Stack"]:
    for service in SERVICES:
        docker.build(
            f"test-{service}",
            Path(__file__).parent / "images/Dockerfile",
            Path(__file__).parent / "images",
            service,
        )
    stack = Stack(docker, tmp_path)
    try:
        yield stack
    finally:
        stack("down", "--volumes", "--timeout", "60")


class Stack:
    """`deploy/compose.yaml` without Grafana, which no Debian has, on free ports and the test's own engine."""

    def __init__(self, docker: Engine, folder: Path) -> None:
        self._docker = docker
        self._file = folder / "compose.yaml"
        self._ports = {"coordinator": free_port(), "prometheus": free_port()}
        self._file.write_text(yaml.safe_dump(self._adapted(folder)))

    def _adapted(self, folder: Path) -> dict[str, Any]:
        compose: dict[str, Any] = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())
        del compose["services"]["grafana"]
        for name, port in self._ports.items():
            (published,) = compose["services"][name]["ports"]
            host, _, inner = published.split(":")
            compose["services"][name]["ports"] = [f"{host}:{port}:{inner}"]
        for service in compose["services"].values():
            service.pop("build", None)
            service["volumes"] = [self._volume(volume) for volume in service.get("volumes", [])]
        # Compose 1.29, which Debian 12 has, knows neither a name nor a secret that comes from the environment.
        del compose["name"]
        token = folder / "token"
        token.write_text(TOKEN)
        assert compose["secrets"] == {"stoker_token": {"environment": "STOKER_TOKEN"}}
        return compose | {"version": "3.8", "secrets": {"stoker_token": {"file": str(token)}}}

    def _volume(self, volume: str) -> str:
        source, inner = volume.split(":", 1)
        if source == "/var/run/docker.sock":
            source = str(self._docker.socket)
        elif source.startswith("./"):
            source = str(ROOT / "deploy" / source)
        return f"{source}:{inner}"

    def __call__(self, *args: str) -> str:
        program = ["docker-compose"] if shutil.which("docker-compose") else ["docker", "compose"]
        environ = self._docker.environ | {
            "STOKER_TOKEN": TOKEN,
            "POSTGRES_PASSWORD": PASSWORD,
            "DOCKER_GID": str(os.stat(self._docker.socket).st_gid),
            "MIN_WORKERS": "2",
            **{f"{service.upper()}_IMAGE": f"test-{service}" for service in SERVICES},
        }
        done = subprocess.run(
            [
                *program,
                "--project-name",
                "stoker",
                "--file",
                str(self._file),
                "--profile",
                "autoscale",
                *args,
            ],
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, (
            f"{args}: {(done.stdout + done.stderr)[-4000:]}\n{self._docker('ps', '--all')}"
        )
        return done.stdout

    def container(self, service: str) -> str:
        return self("ps", "--quiet", service).strip()

    def health(self, service: str) -> str:
        return str(self._docker.inspect(self.container(service))["State"]["Health"]["Status"])

    def url(self, service: str) -> str:
        return f"http://127.0.0.1:{self._ports[service]}"


@needs("docker-compose", "docker-compose")
def test_the_stack_of_compose_works_together(docker: Engine, stack: Stack) -> None:
    stack("up", "--detach", "--no-build")
    api = Api(stack.url("coordinator"))
    eventually(api.answers, 120, lambda: stack("logs"))
    job = api.post("/jobs", {"type": "add_numbers", "payload": {"x": 2, "y": 3}})
    done = api.ended(job["id"])
    assert (done["status"], done["result"]) == ("completed", {"sum": 5})

    # It stands in PostgreSQL, and Redis has company.
    ask = ("psql", "--host=127.0.0.1", "--username=stoker", "-Atc", "SELECT count(*) FROM history")
    assert docker("exec", f"--env=PGPASSWORD={PASSWORD}", stack.container("postgres"), *ask) == "1"
    clients = docker("exec", stack.container("redis"), "redis-cli", "client", "list").splitlines()
    assert len(clients) > 1

    # The autoscaler, held to two workers, has put one of its own beside that of the file.
    own = group_of("http://coordinator:8080")
    eventually(lambda: len(api.live()) == 2, 90, lambda: stack("logs", "autoscaler"))
    assert [name for name in api.live() if name in docker.containers(**{GROUP_LABEL: own})]
    assert api.get("/stats")["autoscaler"]["mode"] == "docker"
    for service in ("coordinator", "worker", "postgres", "redis"):
        eventually(lambda: stack.health(service) == "healthy", 60, f"{service} to be healthy")  # noqa: B023

    # Prometheus finds the coordinator by its name, and the token where compose puts it.
    prometheus = Prometheus(stack.url("prometheus"))
    eventually(prometheus.ready, 60)
    eventually(
        lambda: prometheus.numbers('up{job="stoker"}') == [1.0], 60, lambda: stack("logs", "prometheus")
    )
    eventually(lambda: prometheus.numbers('stoker_jobs{status="completed"}') == [1.0], 30)
    assert {rule["health"] for rule in prometheus.rules()} <= {"ok", "unknown"}
    prometheus.close()
    api.http.close()

    assert TOKEN not in stack("logs")
    stack("down", "--volumes", "--timeout", "60")
    assert docker.containers() == [], "the workers of the autoscaler left with it"
