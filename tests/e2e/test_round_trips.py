"""Every supported type through a real system: SDK, REST, worker, child, and back."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import stoker
from stoker import Stoker
from stoker.domain.json_values import to_json
from tests.e2e import typed_app
from tests.e2e.system import Server, System
from tests.support.typed_values import TYPES

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def echoes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with System(tmp_path_factory.mktemp("types")) as system:
        shutil.copy(Path(__file__).with_name("typed_app.py"), system.folder / "typed_app.py")
        server = system.serve()
        system.worker(server, app="typed_app:app", threads=2, PYTHONPATH=ROOT)
        with Stoker(server.url) as client:
            typed_app.app.transport = client.transport
            yield server
            del typed_app.app.transport


@settings(
    max_examples=6, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
@given(values=st.fixed_dictionaries({name: strategy for name, (_, strategy) in TYPES.items()}))
def test_values_of_every_type_come_back_as_they_were_sent(echoes: Server, values: dict[str, Any]) -> None:
    jobs = {name: typed_app.ECHOES[name].submit(value) for name, value in values.items()}
    results = dict(zip(jobs, stoker.gather(jobs.values(), timeout=60), strict=True))
    by_hand = {  # the JSON that REST shows of a result, as an argument again
        name: echoes.submit(name.replace(" ", "_"), {"value": echoes.job(job.id)["result"]})["id"]
        for name, job in jobs.items()
    }
    again = stoker.gather([typed_app.ECHOES[name].job(id) for name, id in by_hand.items()], timeout=60)
    for name, value, second in zip(values, values.values(), again, strict=True):
        assert results[name] == second == value, name
        assert type(results[name]) is type(second) is type(value), name


def test_rest_shows_plain_json_and_takes_it(echoes: Server) -> None:
    for name, value in {
        "timedelta": "P1D",
        "bytes": "aGk=",
        "decimal": "1.50",
        "set": [1],
        "named tuple": [1, "r"],
        "dataclass": {"name": "n", "points": [{"x": 1, "y": 2}], "colour": "red", "parent": None},
        "model": {"name": "n", "at": None, "path": ".", "inner": None},
    }.items():
        done = echoes.ended(echoes.submit(name.replace(" ", "_"), {"value": value})["id"])
        assert done["result"] == value, name
        typed = typed_app.ECHOES[name].job(done["id"]).result(timeout=10)
        assert json.loads(msgspec.json.encode(typed, enc_hook=to_json)) == value
