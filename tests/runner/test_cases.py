"""The table of cases against everything that runs jobs."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from stoker.context import JobContext, enter_job
from stoker.executors.builtin import BUILTINS
from stoker.executors.runner import INVALID_PAYLOAD
from tests.runner.cases import CASES, INVALID, Case
from tests.runner.serving import Serving, request

EACH = pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
# Starting Python takes a while; one case per type shows that its runner does what its functions do.
ONE_PER_TYPE_AND_ENDING = list({(case.type, case.error): case for case in CASES}.values())


class _Error(msgspec.Struct):
    type: str
    message: str


def _error_type(body: bytes) -> str:
    error = msgspec.json.decode(body, type=_Error)
    assert error.message
    return error.type


@EACH
def test_python_functions(case: Case) -> None:
    enter_job(JobContext("job-1", case.claim_id, case.type, 1, 1, case.threads, "default", None, {}))
    if case.error is None:
        assert BUILTINS[case.type](case.payload) == case.result
        return
    with pytest.raises(Exception) as caught:  # noqa: PT011 - what it is, is what the next line asks
        BUILTINS[case.type](case.payload)
    assert getattr(caught.value, "error_type", None) == case.error
    assert getattr(caught.value, "retryable", True) == (case.error != INVALID)


@EACH
def test_serving(warm: Serving, case: Case) -> None:
    warm.send(request(7, case.type, case.payload, claim_id=case.claim_id, threads=case.threads))
    answer = warm.answer()
    assert answer.index == 7
    assert answer.started <= answer.finished
    if case.error is None:
        assert (answer.kind, answer.body) == ("completed", case.result)
    else:
        assert answer.kind == ("invalid" if case.error == INVALID else "error")
        assert _error_type(answer.body) == case.error


@EACH
def test_single_shot(binary: Path, case: Case) -> None:
    _check_single_shot([str(binary)], case)


@pytest.mark.parametrize("case", ONE_PER_TYPE_AND_ENDING, ids=lambda case: case.id)
def test_python_runner(case: Case) -> None:
    _check_single_shot([sys.executable, "-m", "stoker.executors.runner"], case)


def _check_single_shot(runner: list[str], case: Case) -> None:
    for payload, stdin in _ways_to_pass(case.payload):
        argv = [*runner, "--job-id", "job-1", "--type", case.type, "--threads", str(case.threads)]
        ended = subprocess.run(
            [*argv, "--payload", payload],
            input=stdin,
            capture_output=True,
            env={"STOKER_CLAIM_ID": str(case.claim_id), "STOKER_ATTEMPT": "1"},
            check=False,
        )
        if case.error is None:
            assert (ended.returncode, ended.stdout) == (0, (case.result or b"") + b"\n")
        else:
            assert ended.returncode == (INVALID_PAYLOAD if case.error == INVALID else 1)
            assert ended.stdout == b""
            assert _error_type(ended.stderr.splitlines()[-1]) == case.error


def _ways_to_pass(payload: bytes) -> Iterator[tuple[str | bytes, bytes]]:
    """On the command line, if it fits there, else on standard input."""
    if b"\0" not in payload and len(payload) < 100_000 and payload != b"-":
        yield payload, b""
    else:
        yield "-", payload
