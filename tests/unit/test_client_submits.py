"""Submits: own ids, requests that concurrent submits share, and pipelines, against a small API over real HTTP."""

from __future__ import annotations

import asyncio
import dis
import itertools
import multiprocessing
import os
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from types import FrameType
from typing import Any

import pytest

import stoker
from stoker import Stoker, Task, errors
from stoker.client import sharing
from stoker.client.requests import SubmitOptions
from stoker.client.sharing import LoopSharing, ThreadSharing
from stoker.client.submission import AcceptedJob, JobTemplate, NewJob, Submitted
from stoker.client.transport import Transport
from tests.unit.fake_api import Answer, FakeApi, Seen, fake_api, problem
from tests.unit.test_client_waits import eventually, run

REFUSED = problem(422, "Not Valid", "bad type", errors=[{"field": "type", "message": "is bad"}])


@pytest.fixture
def api() -> Iterator[FakeApi]:
    with fake_api() as running:
        yield running


@pytest.fixture
def app(api: FakeApi) -> Iterator[Stoker]:
    with Stoker(api.url) as app:
        app.transport = Transport(api.url, pauses=(0, 0))
        yield app


@pytest.fixture
def add(app: Stoker) -> Task[[int, int], int]:
    @app.task
    def add(x: int, y: int) -> int:
        return x + y

    return add


class Hold:
    """Keeps the first submit request waiting until it is released."""

    def __init__(self, api: FakeApi) -> None:
        self.came = threading.Event()
        self._go = threading.Event()
        self._api = api
        api.answers["POST", "/jobs"] = self._answer
        api.answers.setdefault(("POST", "/jobs/batch"), self._answer)

    def _answer(self, seen: Seen) -> Answer:
        first = not self.came.is_set()
        self.came.set()
        if first:
            self._go.wait(20)
        return self._api._submit_batch(seen) if seen.path == "/jobs/batch" else self._api._submit(seen)

    def release(self) -> None:
        self._go.set()


def in_threads(calls: list[Callable[[], Any]]) -> tuple[list[threading.Thread], dict[int, Any]]:
    outcomes: dict[int, Any] = {}

    def call(number: int) -> None:
        try:
            outcomes[number] = calls[number]()
        except errors.StokerError as error:
            outcomes[number] = error

    threads = [threading.Thread(target=call, args=(number,)) for number in range(len(calls))]
    for thread in threads:
        thread.start()
    return threads, outcomes


def seated(app: Stoker, number: int) -> None:
    eventually(lambda: len(app.transport.submits._threads._seats) == number)


def held_and_more(
    api: FakeApi, app: Stoker, calls: list[Callable[[], Any]]
) -> tuple[dict[int, Any], list[Seen]]:
    """Make calls while a submit is under way; their outcomes, and the requests after that one."""
    hold = Hold(api)
    first, _ = in_threads([lambda: app.submit("first")])
    assert hold.came.wait(10)
    threads, outcomes = in_threads(calls)
    seated(app, len(calls))
    hold.release()
    for thread in first + threads:
        thread.join(20)
    return outcomes, api.requests[1:]


# --- ids


def test_the_same_id_is_the_same_job(api: FakeApi, add: Task[[int, int], int]) -> None:
    mine = stoker.new_id()
    assert add.options(id=mine).submit(1, 2).id == mine
    assert add.options(id=uuid.UUID(mine)).submit(1, 2).id == mine  # type: ignore[arg-type]
    assert list(api.jobs) == [mine]


@pytest.mark.parametrize(
    "wrong",
    [
        "order-17",
        "",
        "01890000-0000-4000-8000-000000000000",
        "0189000A-0000-7000-8000-000000000000",
        "0" * 32,
    ],
)
def test_an_id_that_is_no_uuid7_is_refused_before_it_is_sent(
    api: FakeApi, app: Stoker, add: Task[[int, int], int], wrong: str
) -> None:
    with pytest.raises(errors.ArgumentError, match="is no UUIDv7") as caught:
        add.options(id=wrong)
    assert caught.value.parameter == "id"
    with pytest.raises(errors.ArgumentError, match="is no UUIDv7"):
        app.submit("add", id=wrong)
    with pytest.raises(errors.ArgumentError, match="is no UUIDv7"):
        add.submit_many([(1, 2)], [{"id": wrong}])
    assert api.requests == []


def test_under_a_key_the_handle_takes_the_id_of_the_answer(api: FakeApi, add: Task[[int, int], int]) -> None:
    task = add.options(idempotency_key="order-17")
    assert task.submit(1, 2).id == task.submit(1, 2).id
    first, second = (seen.body["id"] for seen in api.requests)
    assert first != second


def test_many_calls_may_have_options_each(api: FakeApi, add: Task[[int, int], int]) -> None:
    mine = stoker.new_id()
    jobs = add.options(priority=2).submit_many(
        [(1, 2), (3, 4), (5, 6)], [{"id": mine}, None, {"idempotency_key": "k", "priority": 0}]
    )
    first, second, third = api.requests[0].body["jobs"]
    assert first["id"] == jobs[0].id == mine
    assert (second["priority"], third["priority"], third["idempotency_key"]) == (2, 0, "k")
    with pytest.raises(errors.ArgumentError, match="2 calls and 1 options"):
        add.submit_many([(1, 2), (3, 4)], [None])
    with pytest.raises(errors.ArgumentError, match=r"submit_many: options\[1\] has no option 'prio'"):
        add.submit_many([(1, 2), (3, 4)], [None, {"prio": 1}])  # type: ignore[list-item]
    for name, value in {"id": mine, "idempotency_key": "k"}.items():
        with pytest.raises(errors.ArgumentError, match=f"one {name} cannot serve many jobs"):
            add.options(**{name: value}).submit_many([(1, 2)])  # type: ignore[arg-type]


def test_a_submit_that_fails_names_the_id_to_try_again_with(api: FakeApi, add: Task[[int, int], int]) -> None:
    api.fail_next = 3
    with pytest.raises(errors.ConnectionFailed, match="submit the job again is safe with id='0") as caught:
        add.submit(1, 2)
    assert list(api.jobs) == [caught.value.job_id], "it was stored, and the answer was lost each time"
    assert add.options(id=caught.value.job_id or "").submit(1, 2).id == caught.value.job_id
    assert len(api.jobs) == 1


def test_a_handle_asks_for_what_a_short_answer_leaves_out(api: FakeApi, app: Stoker) -> None:
    warned = {"id": stoker.new_id(), "warnings": ["no live worker serves the type 'f'"]}
    api.answers["POST", "/jobs"] = Answer(202, warned)
    job = app.submit("f")
    assert (job.id, job.warnings) == (warned["id"], warned["warnings"])
    assert repr(job) == f"<JobHandle {job.id} f>"


# --- threads


def test_a_lone_submit_goes_at_once_and_needs_no_other_thread(
    api: FakeApi, add: Task[[int, int], int]
) -> None:
    add.submit(1, 2)
    mine = {thread.name for thread in threading.enumerate() if thread.name.startswith("stoker")}
    assert mine == set()
    assert [seen.path for seen in api.requests] == ["/jobs"]
    assert api.connections == 1


def test_threads_that_submit_while_a_request_is_under_way_share_the_next(
    api: FakeApi, app: Stoker, add: Task[[int, int], int]
) -> None:
    outcomes, sent = held_and_more(api, app, [partial(add.submit, n, 0) for n in range(6)])
    (batch,) = sent
    assert batch.path == "/jobs/batch"
    assert batch.body["atomic"] is False
    assert batch.headers["prefer"] == "return=minimal"
    payloads = {job["id"]: job["payload"]["x"] for job in batch.body["jobs"]}
    assert payloads == {outcomes[n].id: n for n in range(6)}, "each caller has the id of its own job"


def test_a_job_that_is_refused_fails_its_own_caller_only(api: FakeApi, app: Stoker) -> None:
    api.refusals["bad"] = REFUSED
    api.refusals["hasty"] = problem(429, "Too Many", "slow down", headers={"Retry-After": "3"})
    types = ["good", "bad", "good", "hasty"]
    outcomes, _ = held_and_more(api, app, [partial(app.submit, t) for t in types])
    assert type(outcomes[1]) is errors.InvalidInput
    assert outcomes[1].errors == [errors.FieldError("type", "is bad")]
    assert type(outcomes[3]) is errors.RateLimited
    assert (outcomes[1].retry_after, outcomes[3].retry_after) == (None, 3)
    assert {outcomes[0].id, outcomes[2].id} <= set(api.jobs)
    assert len(api.jobs) == 3


def test_a_batch_that_is_refused_as_a_whole_is_sent_one_by_one(api: FakeApi, app: Stoker) -> None:
    api.refusals["bad"] = REFUSED
    api.answers["POST", "/jobs/batch"] = REFUSED
    outcomes, sent = held_and_more(api, app, [partial(app.submit, t) for t in ("good", "bad", "good")])
    assert [seen.path for seen in sent] == ["/jobs/batch", "/jobs", "/jobs", "/jobs"]
    assert type(outcomes[1]) is errors.InvalidInput
    assert {outcomes[0].id, outcomes[2].id} <= set(api.jobs)


def test_a_refusal_of_all_reaches_each_with_an_exception_of_its_own(api: FakeApi, app: Stoker) -> None:
    api.answers["POST", "/jobs/batch"] = problem(503, "Stopping", "come back", headers={"Retry-After": "1"})
    outcomes, _ = held_and_more(api, app, [lambda: app.submit("f")] * 3)
    assert [type(outcome) for outcome in outcomes.values()] == [errors.Unavailable] * 3
    assert len(set(map(id, outcomes.values()))) == 3


def test_a_batch_whose_answer_is_lost_is_sent_again_and_no_job_exists_twice(
    api: FakeApi, app: Stoker
) -> None:
    lose = iter([True, True])

    def answer(seen: Seen) -> Answer:
        api.fail_next = 1 if next(lose, False) else 0
        return api._submit_batch(seen)

    api.answers["POST", "/jobs/batch"] = answer
    outcomes, sent = held_and_more(api, app, [lambda: app.submit("f")] * 4)
    assert len(sent) == 3
    assert len({outcome.id for outcome in outcomes.values()}) == 4
    assert len(api.jobs) == 5


def test_a_batch_that_fails_names_the_id_of_each_job(api: FakeApi, app: Stoker) -> None:
    def answer(seen: Seen) -> Answer:
        api.fail_next = 1
        return api._submit_batch(seen)

    api.answers["POST", "/jobs/batch"] = answer
    outcomes, _ = held_and_more(api, app, [lambda: app.submit("f")] * 2)
    assert {outcome.job_id for outcome in outcomes.values()} <= set(api.jobs)
    assert len({outcome.job_id for outcome in outcomes.values()}) == 2


def test_a_batch_that_a_load_balancer_refuses_names_the_id_of_each_job(api: FakeApi, app: Stoker) -> None:
    api.answers["POST", "/jobs/batch"] = Answer(502, b"<html>sorry</html>")
    outcomes, sent = held_and_more(api, app, [lambda: app.submit("f")] * 2)
    assert all(isinstance(outcome, errors.Unavailable) for outcome in outcomes.values())
    asked = [{job["id"] for job in seen.body["jobs"]} for seen in sent]
    assert asked == [{outcome.job_id for outcome in outcomes.values()}] * 3


def test_a_large_job_has_a_request_to_itself(api: FakeApi, app: Stoker) -> None:
    hold = Hold(api)
    first, _ = in_threads([lambda: app.submit("first")])
    assert hold.came.wait(10)
    assert app.submit("large", "x" * sharing.ALONE_BYTES).id in api.jobs
    hold.release()
    first[0].join()


def test_two_jobs_of_one_id_or_key_are_not_in_one_batch(api: FakeApi, app: Stoker) -> None:
    mine = stoker.new_id()
    calls: list[Callable[[], Any]] = [lambda: app.submit("f", id=mine)] * 2
    calls += [lambda: app.submit("f", idempotency_key="k")] * 2
    outcomes, sent = held_and_more(api, app, calls)
    assert outcomes[0].id == outcomes[1].id == mine
    assert outcomes[2].id == outcomes[3].id
    for seen in sent:
        jobs = seen.body.get("jobs", [seen.body])
        assert len({job.get("idempotency_key") or job["id"] for job in jobs}) == len(jobs)


def test_a_shared_request_is_bounded(api: FakeApi, app: Stoker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "MAX_JOBS", 3)
    _, sent = held_and_more(api, app, [lambda: app.submit("f")] * 7)
    assert sorted(len(seen.body.get("jobs", [1])) for seen in sent) == [1, 3, 3]


def test_many_threads_submit_many_jobs(api: FakeApi, add: Task[[int, int], int]) -> None:
    ids: list[str] = []

    def submit_some() -> None:
        ids.extend(add.submit(n, 0).id for n in range(50))

    threads, outcomes = in_threads([submit_some] * 8)
    for thread in threads:
        thread.join(60)
    assert outcomes == dict.fromkeys(range(8))
    assert len(set(ids)) == 400 == len(api.jobs)
    assert set(ids) == set(api.jobs)


def _waiting(shared: ThreadSharing, number: int) -> bool:
    return len(shared._seats) == number


class Turns:
    """Threads that submit job after job through one `ThreadSharing`; the first request is held until all others wait."""

    def __init__(self, names: str) -> None:
        self.sent: list[str] = []
        self._go = threading.Event()
        self.shared = ThreadSharing(self._send_one, self._send_many)
        self._threads = [threading.Thread(target=self._submit, args=(name,)) for name in names]

    def run(self) -> None:
        self._threads[0].start()
        eventually(lambda: self.shared._sender is not None)
        for number, thread in enumerate(self._threads[1:], 1):
            thread.start()
            eventually(partial(_waiting, self.shared, number))
        self._go.set()
        for thread in self._threads:
            thread.join(10)

    def _submit(self, name: str) -> None:
        for _ in range(2):
            self.shared.submit(JobTemplate(name, SubmitOptions()).new(b"null"))

    def _send_one(self, job: NewJob) -> AcceptedJob:
        assert self._go.wait(10)
        self.sent.append(job.type)
        return AcceptedJob(job.id)

    def _send_many(self, jobs: list[NewJob]) -> list[Submitted]:
        self.sent.append("".join(sorted(job.type for job in jobs)))
        return [AcceptedJob(job.id) for job in jobs]


def test_threads_that_were_told_submit_again_before_the_next_request_is_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sharing, "RETURN_SECONDS", 1)
    turns = Turns("abcd")
    turns.run()
    assert turns.sent[:2] == ["a", "bcd"]
    assert len(turns.sent[2]) >= 2, "as many as were told of theirs"


def test_threads_that_submit_no_more_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "RETURN_SECONDS", 0.001)
    shared = ThreadSharing(lambda job: AcceptedJob(job.id), lambda jobs: [])
    began = time.monotonic()
    shared._gather(1_000)
    assert time.monotonic() - began < 5


class Interrupted(BaseException):
    """Like Ctrl-C."""


def test_a_leader_that_is_interrupted_hands_on_what_it_was_to_send() -> None:
    sent: list[list[str]] = []
    came, go = threading.Event(), threading.Event()

    def send_one(job: NewJob) -> AcceptedJob:
        came.set()
        go.wait(10)
        return AcceptedJob(job.id)

    def send_many(jobs: list[NewJob]) -> list[Submitted]:
        sent.append([job.type for job in jobs])
        if len(sent) == 1:
            raise Interrupted
        return [AcceptedJob(job.id) for job in jobs]

    shared = ThreadSharing(send_one, send_many)
    outcomes: dict[str, Any] = {}

    def submit(name: str) -> None:
        try:
            outcomes[name] = shared.submit(JobTemplate(name, SubmitOptions()).new(b"null"))
        except Interrupted as error:
            outcomes[name] = error

    threads = [threading.Thread(target=submit, args=(name,)) for name in "abcd"]
    threads[0].start()
    assert came.wait(10)
    for number, thread in enumerate(threads[1:], 1):
        thread.start()
        eventually(partial(_waiting, shared, number))
    go.set()
    for thread in threads:
        thread.join(10)
    assert sent == [["b", "c", "d"], ["c", "d"]]
    assert isinstance(outcomes["b"], Interrupted)
    assert all(isinstance(outcomes[name], AcceptedJob) for name in "acd")
    assert isinstance(shared.submit(JobTemplate("e", SubmitOptions()).new(b"null")), AcceptedJob)


@pytest.mark.skipif(sys.gettrace() is not None, reason="another tracer, such as a debugger, is at work")
def test_a_handler_that_raises_anywhere_in_a_submit_leaves_the_next_one_free() -> None:
    """As Ctrl-C in a notebook does, or a timeout by `signal.alarm`: Python runs signal handlers after calls."""
    shared = ThreadSharing(lambda job: AcceptedJob(job.id), lambda jobs: [])
    job = JobTemplate("a", SubmitOptions()).new(b"null")
    for count in itertools.count(1):
        raised = _raise_after_call(count, lambda: shared.submit(job))
        assert shared._sender is None, f"interrupted after call {count}"
        assert not shared._mutex.locked()
        if not raised:
            break
    assert count > 15


def _raise_after_call(count: int, call: Callable[[], object]) -> bool:
    """Call, and raise `Interrupted` in `sharing` after the call of that number; return whether there was one."""
    left = count
    called = False

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal left, called
        if frame.f_code.co_filename != sharing.__file__:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            name = dis.opname[frame.f_code.co_code[frame.f_lasti]]
            # A NOP begins a `try` block, and an exception after the call before it belongs outside.
            now, called = called and name != "NOP", name.startswith(("CALL", "RESUME"))
            left -= now
            if now and left == 0:
                raise Interrupted
        return trace

    sys.settrace(trace)
    try:
        call()
    except Interrupted:
        return True
    finally:
        sys.settrace(None)
    return False


def test_a_submit_within_a_submit_of_the_same_thread_does_not_wait_for_it() -> None:
    """As a signal handler or a destructor makes it, which cannot wait for the thread that it interrupts."""
    sent: list[str] = []
    inner = JobTemplate("inner", SubmitOptions()).new(b"null")

    def send_one(job: NewJob) -> AcceptedJob:
        sent.append(job.type)
        if job.type == "outer":
            shared.submit(inner)
        return AcceptedJob(job.id)

    shared = ThreadSharing(send_one, lambda jobs: [])
    outer = JobTemplate("outer", SubmitOptions()).new(b"null")
    thread = threading.Thread(target=lambda: [shared.submit(outer) for _ in range(2)], daemon=True)
    thread.start()
    thread.join(10)
    assert sent == ["outer", "inner"] * 2


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_child_that_is_forked_while_a_submit_is_under_way_submits_by_itself(
    api: FakeApi, app: Stoker
) -> None:
    hold = Hold(api)
    first, _ = in_threads([lambda: app.submit("first")])
    assert hold.came.wait(10)
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()

    def child() -> None:
        answers.put([app.submit("child").id for _ in range(3)])

    process = context.Process(target=child)
    process.start()
    process.join(20)
    assert process.exitcode == 0
    theirs = answers.get()
    assert set(theirs) <= set(api.jobs)
    hold.release()
    first[0].join()
    mine = [app.submit("mine").id for _ in range(3)]
    assert len({*theirs, *mine}) == 6, "ids differ after a fork"
    answers.close()


# --- event loops


def test_tasks_that_submit_at_once_share_requests(api: FakeApi, add: Task[[int, int], int]) -> None:
    async def main() -> list[Any]:
        return await asyncio.gather(*(add.submit_async(n, 0) for n in range(100)))

    jobs = run(add.app, main)
    assert [api.jobs[job.id]["payload"]["x"] for job in jobs] == list(range(100))
    assert [seen.path for seen in api.requests] == ["/jobs", "/jobs/batch"]
    assert api.connections == 1


def test_on_a_loop_too_a_refused_job_fails_its_own_caller_only(api: FakeApi, app: Stoker) -> None:
    api.refusals["bad"] = REFUSED

    async def main() -> list[Any]:
        types = ["good", "bad", "good", "bad"]
        outcomes: list[Any] = await asyncio.gather(
            *(app.submit_async(t) for t in types), return_exceptions=True
        )
        return outcomes

    outcomes = run(app, main)
    assert [type(outcome) for outcome in outcomes[1::2]] == [errors.InvalidInput] * 2
    assert outcomes[1] is not outcomes[3]
    assert {outcomes[0].id, outcomes[2].id} == set(api.jobs)


def test_a_submit_whose_task_was_cancelled_is_not_sent_and_the_others_are(api: FakeApi, app: Stoker) -> None:
    hold = Hold(api)

    async def main() -> list[Any]:
        tasks = [asyncio.create_task(app.submit_async(t)) for t in ("first", "gone", "stays")]
        await asyncio.to_thread(hold.came.wait, 10)
        tasks[1].cancel()
        hold.release()
        outcomes: list[Any] = await asyncio.gather(*tasks, return_exceptions=True)
        return outcomes

    first, gone, stays = run(app, main)
    assert isinstance(gone, asyncio.CancelledError)
    assert [job["type"] for job in api.jobs.values()] == ["first", "stays"]
    assert {first.id, stays.id} == set(api.jobs)


def test_a_cancelled_submit_that_is_under_way_lets_the_next_go(api: FakeApi, app: Stoker) -> None:
    hold = Hold(api)

    async def main() -> Any:
        first = asyncio.create_task(app.submit_async("first"))
        await asyncio.to_thread(hold.came.wait, 10)
        second = asyncio.create_task(app.submit_async("second"))
        await asyncio.sleep(0)
        first.cancel()
        return await second

    assert run(app, main).id in api.jobs
    hold.release()


@pytest.mark.parametrize("how", [ValueError("broken"), asyncio.CancelledError()])
async def test_on_a_loop_a_request_that_breaks_down_leaves_nobody_waiting(how: BaseException) -> None:
    sharing = LoopSharing(accept_later, partial(break_down_once, how, []))
    job = partial(JobTemplate("add", SubmitOptions()).new, b"{}")
    tasks = [asyncio.create_task(sharing.submit(job())) for _ in range(3)]
    await asyncio.sleep(0.15)  # the request of the second and the third is under way
    tasks += [asyncio.create_task(sharing.submit(job())) for _ in range(2)]
    _, waiting = await asyncio.wait(tasks, timeout=5)
    assert not waiting
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [AcceptedJob, type(how), type(how), *2 * [AcceptedJob]]


async def accept_later(job: NewJob) -> AcceptedJob:
    await asyncio.sleep(0.1)
    return AcceptedJob(job.id)


async def break_down_once(how: BaseException, calls: list[int], jobs: list[NewJob]) -> list[Submitted]:
    calls.append(len(jobs))
    await asyncio.sleep(0.1)
    if len(calls) == 1:
        raise how
    return [AcceptedJob(job.id) for job in jobs]


# --- pipelines


def test_a_pipeline_sends_in_the_background_and_everything_is_stored_at_its_end(
    api: FakeApi, app: Stoker, add: Task[[int, int], int]
) -> None:
    with app.pipeline() as pipeline:
        jobs = [pipeline.submit(add, n, 0) for n in range(500)]
    assert [api.jobs[job.id]["payload"]["x"] for job in jobs] == list(range(500))
    assert len(api.requests) < 250, "they went in batches"
    assert not any(thread.name == "stoker-pipeline" for thread in threading.enumerate())


def test_a_flush_waits_until_everything_so_far_is_stored(
    api: FakeApi, app: Stoker, add: Task[[int, int], int]
) -> None:
    with app.pipeline() as pipeline:
        jobs = [pipeline.submit(add, n, 0) for n in range(20)]
        pipeline.flush()
        assert {job.id for job in jobs} == set(api.jobs)
        pipeline.submit(add, 20, 0)
    assert len(api.jobs) == 21


def test_the_end_of_a_pipeline_names_the_submissions_that_failed(
    api: FakeApi, app: Stoker, add: Task[[int, int], int]
) -> None:
    api.refusals["bad"] = REFUSED

    @app.task
    def bad() -> None: ...

    submitted: list[stoker.JobHandle[Any]] = []

    def block() -> None:
        with app.pipeline() as pipeline:
            submitted.append(pipeline.submit(add, 1, 2))
            submitted.append(pipeline.submit(bad))
            submitted.append(pipeline.submit(add, 3, 4))
            submitted.append(pipeline.submit(bad))

    with pytest.raises(
        errors.PipelineError, match=r"submission 1 was not stored: 422 .*and 1 more"
    ) as caught:
        block()
    failures = caught.value.failures
    assert [failure.index for failure in failures] == [1, 3]
    assert failures[0].job is submitted[1]
    assert isinstance(failures[0].error, errors.InvalidInput)
    assert len(api.jobs) == 2
    with app.pipeline() as pipeline:
        pipeline.submit(add, 1, 2)
        pipeline.flush()


def test_an_error_of_the_block_goes_first_and_what_was_submitted_is_stored(
    api: FakeApi, app: Stoker, add: Task[[int, int], int]
) -> None:
    api.refusals["bad"] = REFUSED

    @app.task
    def bad() -> None: ...

    def block() -> None:
        with app.pipeline() as pipeline:
            pipeline.submit(add, 1, 2)
            pipeline.submit(bad)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught:
        block()
    assert len(api.jobs) == 1
    assert "submission 1 was not stored" in caught.value.__notes__[0]


def test_wrong_arguments_are_told_at_once_also_in_a_pipeline(
    api: FakeApi, app: Stoker, add: Task[[int, int], int]
) -> None:
    with app.pipeline() as pipeline, pytest.raises(errors.ArgumentError):
        pipeline.submit(add, "one", 2)  # type: ignore[arg-type]
    assert api.requests == []


def test_a_pipeline_that_is_full_makes_the_producer_wait(
    api: FakeApi, app: Stoker, add: Task[[int, int], int]
) -> None:
    hold = Hold(api)
    submitted: list[str] = []

    def produce() -> None:
        with app.pipeline(max_pending=3) as pipeline:
            for n in range(10):
                submitted.append(pipeline.submit(add, n, 0).id)  # noqa: PERF401 - each is seen at once

    (thread,), _ = in_threads([produce])
    assert hold.came.wait(10)
    eventually(lambda: len(submitted) == 3)
    assert thread.is_alive()
    hold.release()
    thread.join(20)
    assert submitted == list(api.jobs)


@pytest.mark.parametrize("bound", [0, -1, 1.5, "many", None])
def test_a_bound_that_is_none_is_refused(app: Stoker, bound: Any) -> None:
    with pytest.raises(errors.ArgumentError, match=f"max_pending={bound!r} must be"):
        app.pipeline(max_pending=bound)


@pytest.mark.parametrize("given", ["add", print, lambda: None])
def test_a_pipeline_says_that_it_takes_tasks(app: Stoker, given: Any) -> None:
    with app.pipeline() as pipeline, pytest.raises(errors.ArgumentError, match="is no task"):
        pipeline.submit(given, 1, 2)


def test_a_pipeline_that_gets_no_thread_says_so_and_does_not_wait_for_one(
    api: FakeApi, app: Stoker, add: Task[[int, int], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the interpreter ends, and at the limit of a container."""

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    def block() -> None:
        with app.pipeline() as pipeline:
            pipeline.submit(add, 1, 2)

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="start new thread"):
            block()
    assert api.requests == []


def test_a_pipeline_on_a_loop(api: FakeApi, app: Stoker, add: Task[[int, int], int]) -> None:
    async def main() -> list[str]:
        async with app.pipeline(max_pending=7) as pipeline:
            first = pipeline.submit(add, 0, 0)
            await pipeline.flush_async()
            assert first.id in api.jobs
            return [first.id] + [(await pipeline.submit_async(add, n, 0)).id for n in range(1, 100)]

    assert run(app, main) == list(api.jobs)


def test_a_pipeline_on_a_loop_tells_of_failures_too(api: FakeApi, app: Stoker) -> None:
    api.refusals["bad"] = REFUSED

    @app.task
    def bad() -> None: ...

    async def main() -> None:
        async with app.pipeline() as pipeline:
            await pipeline.submit_async(bad)

    with pytest.raises(errors.PipelineError):
        run(app, main)


def test_a_pipeline_sits_out_lost_connections(api: FakeApi, app: Stoker, add: Task[[int, int], int]) -> None:
    api.fail_next = 2
    with app.pipeline() as pipeline:
        jobs = [pipeline.submit(add, n, 0) for n in range(50)]
    assert [job.id for job in jobs] == list(api.jobs)


def test_a_handle_of_a_pipeline_takes_the_id_of_the_answer(
    api: FakeApi, app: Stoker, add: Task[[int, int], int]
) -> None:
    keyed = add.options(idempotency_key="k")
    first = keyed.submit(1, 2)
    with app.pipeline() as pipeline:
        again = pipeline.submit(keyed, 1, 2)
        twice = pipeline.submit(keyed, 1, 2)
    assert first.id == again.id == twice.id


def test_a_pipeline_that_is_closed_takes_no_more(app: Stoker, add: Task[[int, int], int]) -> None:
    with app.pipeline() as pipeline:
        pass
    with pytest.raises(errors.StokerError, match="is closed"):
        pipeline.submit(add, 1, 2)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_pipeline_does_not_work_in_a_forked_child(app: Stoker, add: Task[[int, int], int]) -> None:
    with app.pipeline() as pipeline:
        pipeline.submit(add, 1, 2)
        pid = os.fork()
        if pid == 0:
            try:
                pipeline.submit(add, 3, 4)
            except errors.StokerError:
                os._exit(7)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
