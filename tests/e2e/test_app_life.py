"""Lifespan, middleware, hooks and context variables of an app, with a real worker."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from stoker import JobFailed, Stoker, errors
from tests.e2e import life_app
from tests.e2e.system import Server, System, eventually


def with_app(system: System) -> System:
    shutil.copy(Path(__file__).with_name("life_app.py"), system.folder / "life_app.py")
    return system


def serve(home: System) -> Server:
    return home.serve(WORKER_HEARTBEAT_TIMEOUT_SEC=5, STOKER_RETRY_BACKOFF_BASE_SEC=1)


@contextmanager
def connected(url: str) -> Iterator[Stoker]:
    """The worker's own app, pointed at the server."""
    with Stoker(url) as client:
        life_app.app.transport = life_app.mails.transport = client.transport
        yield life_app.app
        del life_app.app.transport, life_app.mails.transport


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[System, Server]]:
    """A system for all tests that leave it as it was."""
    with System(tmp_path_factory.mktemp("life")) as system:
        server = serve(with_app(system))
        system.worker(server, app="life_app:app", threads=4, STOKER_API_URL=server.url)
        yield system, server


@pytest.fixture
def home(shared: tuple[System, Server]) -> System:
    """The shared system, with an empty journal."""
    shared[0].journal.path.unlink(missing_ok=True)
    return shared[0]


@pytest.fixture
def app(shared: tuple[System, Server]) -> Iterator[Stoker]:
    with connected(shared[1].url) as app:
        yield app


def lines(home: System) -> list[str]:
    path = home.journal.path
    return path.read_text("utf-8").splitlines() if path.exists() else []


@pytest.mark.parametrize("task", [life_app.signals, life_app.async_signals], ids=["sync", "async"])
def test_what_a_task_raises_for_its_job_passes_all_that_is_around_it(
    home: System, app: Stoker, task: Any
) -> None:
    with pytest.raises(JobFailed, match="no more"):
        (job := task.submit()).result(timeout=20)
    attempts = job.refresh().attempts
    assert [(one.outcome, one.charged) for one in attempts] == [
        ("snoozed", False),
        ("error", True),
        ("invalid", True),
    ]
    assert attempts[1].retry_delay_sec == 0.02
    told = [line for line in lines(home) if f"failure {task.name} " in line]
    assert told == [f"failure {task.name} 1 RetryAfter", f"failure {task.name} 2 Fail"]


def test_every_kind_of_middleware_is_around_every_kind_of_task(home: System, app: Stoker) -> None:
    assert life_app.plain.submit(4).result(timeout=20) == 8
    assert life_app.later.submit(4).result(timeout=20) == 5
    told = [line for line in lines(home) if "enter" not in line]
    for name, value in (("plain", 8), ("later", 5)):
        assert [line for line in told if name in line] == [
            f"outer before {name}",
            f"second before {name}",
            f"second after {name} {value}",
            f"outer after {name}",
            f"success {name} {value}",
        ]


def test_an_included_app_has_its_own_inside(home: System, app: Stoker) -> None:
    job = life_app.send.submit("you")
    assert job.result(timeout=20) == {"to": "you", "pool": "the pool", "model": "the model"}
    told = [line.removesuffix(" send") for line in lines(home) if line.endswith("send")]
    assert told == ["outer before", "second before", "third", "outer after"]


def test_a_failing_hook_is_logged_with_the_job_and_changes_nothing(home: System, app: Stoker) -> None:
    job = life_app.later.submit(1)
    assert job.result(timeout=20) == 2
    said = "".join(entry.text for entry in job.logs(follow=True))
    assert "the hook pleased failed" in said
    assert "hooks cannot change an outcome" in said


def test_a_failure_is_told_after_each_attempt(home: System, app: Stoker) -> None:
    job = life_app.broken.submit("no luck")
    with pytest.raises(JobFailed, match="no luck"):
        job.result(timeout=20)
    told = [line for line in lines(home) if line.startswith("failure broken")]
    assert told == ["failure broken 1 ValueError", "failure broken 2 ValueError"]


def test_a_result_that_does_not_fit_fails_the_attempt_for_good(app: Stoker) -> None:
    job = life_app.unfit.submit()
    with pytest.raises(
        JobFailed, match=r"annotated to return list\[int\].*Expected `int`, got `str` at \[0\]"
    ):
        job.result(timeout=20)
    assert (job.info.attempt, job.info.error and job.info.error.type) == (1, "result_type")


def test_a_cancelled_async_task_ends_behind_a_blocking_middleware(home: System, app: Stoker) -> None:
    job = life_app.slow.submit()
    eventually(lambda: "slow began" in lines(home))
    job.cancel()
    with pytest.raises(errors.JobCancelled):
        job.result(timeout=10)
    eventually(lambda: "outer after slow" in lines(home))
    assert not [line for line in lines(home) if line.startswith(("failure slow", "success slow"))]


def test_context_variables_travel_with_the_job_and_with_what_it_submits(app: Stoker) -> None:
    token = life_app.tenant.set("Zoë & co")
    try:
        job = life_app.who.submit()
    finally:
        life_app.tenant.reset(token)
    assert job.info.metadata == {"stoker.context.tenant": '"Zo\\u00eb & co"'}
    found = job.result(timeout=20)
    assert (found["tenant"], found["context"]) == ("Zoë & co", {"tenant": "Zoë & co"})
    assert life_app.where.job(found["nested"]).result(timeout=20) == "Zoë & conull"
    assert life_app.where.submit().result(timeout=20) == "nobodynull", "a variable is back to what it was"


def test_the_lifespan_is_left_when_the_worker_leaves(system: System) -> None:
    server = serve(with_app(system))
    worker = system.worker(server, app="life_app:app")
    with connected(server.url):
        assert life_app.plain.submit(1).result(timeout=20) == 2
        assert life_app.later.submit(1).result(timeout=20) == 2
    worker.terminate()
    assert worker.exit_code() == 0
    told = lines(system)
    entered = [line.split()[-1] for line in told if line.startswith("enter outer")]
    assert len(entered) >= 2, "one for the sync child, one for the async one"
    for pid in entered:
        mine = [line.removesuffix(f" {pid}") for line in told if line.endswith(f" {pid}")]
        assert mine == ["enter outer", "enter inner", "exit inner", "exit outer"]


def test_a_lifespan_that_fails_keeps_the_worker_from_starting(system: System) -> None:
    server = serve(with_app(system))
    (system.folder / "broken").touch()
    worker = system.start_worker(server, app="life_app:app")
    assert worker.exit_code() != 0
    said = "the lifespan of the app life_app:app failed to start: ConnectionError: the database is down"
    assert said in worker.output
    assert worker.events("app_lifespan_failed")
