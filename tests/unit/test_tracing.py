"""Traces: one for each job, whole or not there, and nothing of it while nobody asks."""

import io
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from stoker import tracing
from stoker.context import JobContext, enter_job
from stoker.coordinator.assembly import Coordinator
from stoker.domain.job import Job
from stoker.ids import new_id
from stoker.logs.log import JobLog
from stoker.settings import Settings
from stoker.store.sqlite.logs import SqliteLogs
from stoker.store.sqlite.store import SqliteStore
from stoker.tracing import JobTracer, from_environment, is_wanted, span_id, trace_id, traceparent
from stoker.wire.http import HttpError, HttpHello, HttpOutcome, HttpReport
from tests.conformance.steps import a_job, a_key
from tests.support.clock import FakeClock
from tests.support.in_loop import in_loop
from tests.support.jobs import a_submission

CALLER = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Site:
    """A coordinator over a real store, a worker that speaks HTTP, and the spans that were told."""

    def __init__(
        self, coordinator: Coordinator, store: SqliteStore, clock: FakeClock, spans: InMemorySpanExporter
    ):
        self.coordinator = coordinator
        self.store = store
        self.clock = clock
        self._spans = spans
        self.worker = ""

    async def submit(self, **fields: Any) -> Job:
        job = a_job(self.store, type="echo", **fields)
        (accepted,) = (await self.coordinator.jobs.submit([a_submission(job)])).accepted
        return accepted.job

    async def attempt(
        self, outcome: HttpOutcome, result: bytes = b"null", error: HttpError | None = None
    ) -> None:
        """Wait two seconds, run for three, report."""
        self.clock.advance(2)
        (job,) = await self.coordinator.http_workers.lease(self.worker, 1, 20.0)
        self.clock.advance(3)
        told = msgspec.UNSET if error else msgspec.Raw(result)
        await self.coordinator.http_workers.report(
            self.worker, [HttpReport(job.id, job.claim_id, outcome, told, error, run_seconds=3.0)]
        )

    def spans(self, job: Job) -> dict[str, ReadableSpan]:
        """By what and claim."""
        found: dict[str, ReadableSpan] = {}
        for span in self._spans.get_finished_spans():
            assert span.attributes is not None
            if span.attributes["stoker.job.id"] == job.id:
                claim = span.attributes.get("stoker.job.claim", "")
                found[f"{span.name.split()[0]}{claim}"] = span
        return found


@pytest.fixture
def site(tmp_path: Path, clock: FakeClock) -> Site:
    @asynccontextmanager
    async def make() -> AsyncIterator[Site]:
        store = await SqliteStore.open(tmp_path / "stoker.db", clock, threads=False)
        logs = SqliteLogs.open(tmp_path / "stoker-logs.db", threads=False)
        exporter = InMemorySpanExporter()
        coordinator = Coordinator(
            Settings(retry_jitter=0.0),
            store,
            clock,
            JobLog(stream=io.StringIO()),
            logs,
            tracer=JobTracer(SimpleSpanProcessor(exporter)),
        )
        coordinator.start()
        site = Site(coordinator, store, clock, exporter)
        welcome = await coordinator.http_workers.register(HttpHello(name="w", threads=4, types=("echo",)))
        site.worker = welcome.id
        yield site
        await coordinator.stop()
        await store.close()
        await logs.close()

    return in_loop(make)


@pytest.fixture(autouse=True)
def no_caller() -> Iterator[None]:
    token = tracing.caller.set(None)
    yield
    tracing.caller.reset(token)


async def test_submit_wait_and_run_are_one_trace_whose_id_is_the_jobs(site: Site) -> None:
    job = await site.submit(queue="mail")
    await site.attempt("completed", b'"done"')
    spans = site.spans(job)
    assert spans.keys() == {"submit", "wait1", "run1"}
    contexts = {name: span.context for name, span in spans.items()}
    assert {f"{context.trace_id:032x}" for context in contexts.values() if context} == {
        job.id.replace("-", "")
    }
    submit = spans["submit"]
    assert submit.parent is None
    for name in ("wait1", "run1"):
        parent = spans[name].parent
        assert parent is not None
        assert submit.context is not None
        assert parent.span_id == submit.context.span_id
    wait, run = spans["wait1"], spans["run1"]
    assert (wait.name, run.name) == ("wait echo", "run echo")
    assert wait.start_time == job.run_at * 1_000
    assert (wait.end_time or 0) - (wait.start_time or 0) == 2_000_000_000
    assert (run.end_time or 0) - (run.start_time or 0) == 3_000_000_000
    assert run.start_time == wait.end_time
    assert run.attributes is not None
    assert run.attributes["messaging.destination.name"] == "mail"
    assert run.attributes["stoker.worker.id"] == site.worker
    assert run.attributes["stoker.job.status"] == "completed"
    assert run.status.status_code is not StatusCode.ERROR


async def test_a_retry_is_linked_to_the_attempt_before_it(site: Site) -> None:
    job = await site.submit()
    await site.attempt("failed", error=HttpError("ValueError", "no"))
    site.clock.advance(60)
    await site.store.promote(10)
    await site.attempt("completed", b"1")
    spans = site.spans(job)
    assert spans.keys() == {"submit", "wait1", "run1", "wait2", "run2"}
    first, second = spans["run1"], spans["run2"]
    assert first.links == ()
    (link,) = second.links
    assert first.context is not None
    assert (link.context.trace_id, link.context.span_id) == (first.context.trace_id, first.context.span_id)
    assert first.status.status_code is StatusCode.ERROR
    assert first.attributes is not None
    assert "stoker.job.status" not in first.attributes, "it goes on"


async def test_the_callers_trace_is_linked_and_bad_ones_are_left_out(site: Site) -> None:
    tracing.caller.set(CALLER)
    (link,) = site.spans(await site.submit())["submit"].links
    assert f"{link.context.trace_id:032x}-{link.context.span_id:016x}".encode() in CALLER
    for bad in (b"", b"00-zz-01", CALLER + b"-more", b"00-" + b"0" * 32 + b"-" + b"0" * 16 + b"-01"):
        tracing.caller.set(bad)
        assert site.spans(await site.submit())["submit"].links == ()


async def test_a_job_that_says_where_it_comes_from_is_linked_to_that(site: Site) -> None:
    tracing.begin_request(CALLER)
    job, other = a_job(site.store, type="echo"), a_job(site.store, type="echo")
    tracing.remember_caller(job.id, b"00-%032x-%016x-01" % (7, 8))
    await site.coordinator.jobs.submit([a_submission(job), a_submission(other)])
    (link,), (of_request,) = (site.spans(one)["submit"].links for one in (job, other))
    assert (link.context.trace_id, link.context.span_id) == (7, 8)
    assert f"{of_request.context.trace_id:032x}".encode() in CALLER
    tracing.begin_request(None)
    assert site.spans(await site.submit())["submit"].links == ()


async def test_a_job_that_is_cancelled_while_it_waits_has_only_waited(site: Site) -> None:
    job = await site.submit()
    site.clock.advance(4)
    await site.coordinator.jobs.cancel(job.id)
    spans = site.spans(job)
    assert spans.keys() == {"submit", "wait"}
    assert (spans["wait"].end_time or 0) - (spans["wait"].start_time or 0) == 4_000_000_000


async def test_a_repeated_submission_is_told_once(site: Site) -> None:
    job = a_job(site.store, type="echo")
    for _ in range(2):
        await site.coordinator.jobs.submit([a_submission(job, a_key(site.store, "k", b"same"))])
    assert len(site._spans.get_finished_spans()) == 1


def test_a_share_of_the_jobs_is_traced_and_each_of_them_whole() -> None:
    exporter = InMemorySpanExporter()
    tracer = JobTracer(SimpleSpanProcessor(exporter), share=0.25)
    traced = [id for id in (new_id() for _ in range(4_000)) if tracer._is_traced(id)]
    assert 800 < len(traced) < 1_200
    assert not JobTracer(SimpleSpanProcessor(exporter), share=0.0)._is_traced(new_id())
    assert JobTracer(SimpleSpanProcessor(exporter), share=1.0)._is_traced(
        "ffffffff-ffff-7fff-bfff-ffffffffffff"
    )


def test_what_a_job_does_itself_can_join_its_run() -> None:
    id = new_id()
    enter_job(JobContext(id, 7, "echo", 2, 4, 1, "default", None, {}))
    assert traceparent() == f"00-{id.replace('-', '')}-{span_id(id, 7):016x}-01"
    from opentelemetry import trace

    context = trace.get_current_span(tracing.context()).get_span_context()
    assert (context.trace_id, context.span_id) == (trace_id(id), span_id(id, 7))


def test_span_ids_differ() -> None:
    id, other = new_id(), new_id()
    ids = [
        span_id(id, 1),
        span_id(id, 2),
        span_id(id, 1, "wait"),
        span_id(id, 0, "submit"),
        span_id(other, 1),
    ]
    assert len(set(ids)) == len(ids)
    assert span_id(id, 1) == span_id(id, 1)


@pytest.mark.parametrize(
    ("environ", "wanted"),
    [
        ({}, False),
        ({"OTEL_TRACES_EXPORTER": "none"}, False),
        ({"OTEL_TRACES_EXPORTER": "console"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318", "OTEL_TRACES_EXPORTER": "none"}, False),
        ({"OTEL_TRACES_EXPORTER": "otlp", "OTEL_SDK_DISABLED": "true"}, False),
    ],
)
def test_it_is_on_when_the_usual_variables_say_so(environ: dict[str, str], wanted: bool) -> None:
    assert is_wanted(environ) is wanted


def test_it_can_be_made_from_the_environment() -> None:
    assert from_environment({}, "1") is None
    tracer = from_environment({"OTEL_TRACES_EXPORTER": "console"}, "1")
    assert tracer is not None
    tracer.close()
    assert from_environment({"OTEL_TRACES_EXPORTER": "carrier-pigeon"}, "1") is None


def test_without_the_extra_everything_works_but_traces() -> None:
    code = """
import sys
sys.modules["opentelemetry"] = None  # as if it were not installed
import stoker.cli.serve
from stoker import tracing
assert tracing.from_environment({}, "1") is None
assert tracing.from_environment({"OTEL_TRACES_EXPORTER": "console"}, "1") is None
"""
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("tracing_unavailable") == 1
    assert "stoker[otel]" in done.stdout


def test_nothing_of_the_library_is_loaded_while_nobody_asks() -> None:
    code = "import sys; from stoker import tracing; assert tracing.from_environment({}, '1') is None; "
    code += "sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
