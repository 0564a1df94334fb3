"""The Flask example with Stoker's test kit and Flask's test client."""

from collections.abc import Callable

import pytest
from flask.testing import FlaskClient
from tasks import app, count_words
from web import web

from stoker.testing import Kit


@pytest.fixture
def t(stoker_test: Callable[..., Kit]) -> Kit:
    return stoker_test(app)


@pytest.fixture
def client() -> FlaskClient:
    return web.test_client()


def test_a_text_is_counted_by_a_job(client: FlaskClient, t: Kit) -> None:
    answer = client.post("/texts", data="to be or not to be")
    assert answer.status_code == 202
    url = answer.get_json()["url"]
    assert client.get(url).json == {"status": "queued"}
    t.run_until_idle()
    found = client.get(url)
    assert (found.status_code, found.json) == (
        200,
        {"status": "completed", "words": {"be": 2, "not": 1, "or": 1, "to": 2}},
    )


def test_other_jobs_are_not_shown(client: FlaskClient, t: Kit) -> None:
    other = app.submit("echo", "a secret")
    assert client.get(f"/texts/{other.id}").status_code == 404
    assert client.get("/texts/nothing").status_code == 404


def test_the_text_travels_as_it_is(client: FlaskClient, t: Kit) -> None:
    client.post("/texts", data="žluťoučký kůň")
    assert [call.arguments for call in t.enqueued(count_words)] == [{"text": "žluťoučký kůň"}]
