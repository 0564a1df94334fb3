"""What the SDK says to a person who typed something wrong: an error of the SDK, which names it and says what to do."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from stoker import Stoker, StokerError, errors
from tests.unit.fake_api import Answer, FakeApi, fake_api

ID = "01a1eede-0c4d-743b-8f79-71a6e2122d4a"


@pytest.fixture
def api() -> Iterator[FakeApi]:
    with fake_api() as api:
        yield api


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"url": "127.0.0.1:8080"}, r"^Stoker\(url=127.0.0.1:8080\): must be an address such as http://"),
        ({"url": 8080}, r"^Stoker\(url=8080\): must be an address"),
        ({"token": "short"}, r"^Stoker\(token=\*\*\*\): must be at least 16 visible"),
    ],
)
def test_a_wrong_address_or_token_is_an_error_of_the_sdk(options: dict[str, Any], said: str) -> None:
    with pytest.raises(StokerError, match=said):
        Stoker(**options).submit("echo")


def test_a_wrong_address_in_the_environment_is_named_by_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOKER_API_URL", "localhost")
    with pytest.raises(StokerError, match=r"^STOKER_API_URL=localhost: must be an address"):
        Stoker().submit("echo")


def test_a_server_that_is_no_stoker_is_doubted(api: FakeApi) -> None:
    api.answers["GET", f"/jobs/{ID}"] = Answer(404, "no problem document")
    with pytest.raises(errors.NotFound, match=r"this is not an answer of Stoker: is STOKER_API_URL right\?"):
        Stoker(api.url).job(ID).status()


@pytest.mark.parametrize("timeout", ["3", float("nan")])
def test_a_timeout_that_is_no_number_is_refused(api: FakeApi, timeout: Any) -> None:
    job = Stoker(api.url).job(ID)
    with pytest.raises(errors.ArgumentError, match="is no number of seconds"):
        job.result(timeout=timeout)
    with pytest.raises(errors.ArgumentError, match="is no number of seconds"):
        asyncio.run(job.result_async(timeout=timeout))


def test_one_call_is_not_taken_for_many() -> None:
    app = Stoker()

    @app.task
    def greet(name: str) -> str:
        return name

    calls: Any
    for calls in ({"name": "you"}, "you"):
        with pytest.raises(errors.ArgumentError, match=r"takes a list of calls.*for a single call: \[call\]"):
            greet.submit_many(calls)


def test_only_apps_can_be_included_and_only_functions_are_tasks() -> None:
    app = Stoker()
    other: Any = "mails"
    with pytest.raises(errors.TaskError, match=r"app\.include takes apps, such as `mails\.app`, not 'mails'"):
        app.include(other)
    with pytest.raises(errors.TaskError, match="'Stoker' is a class"):
        app.task(Stoker)


def test_a_misspelt_field_of_an_update_suggests_the_right_one() -> None:
    changes: Any = {"priorty": 1}
    with pytest.raises(errors.ArgumentError, match=r"cannot change 'priorty'; did you mean priority\?"):
        Stoker().job(ID).update(**changes)
