"""Traces, by OpenTelemetry (extra `otel`): what happened to one job, from its submission to its end, as one trace.

Nothing is stored for it. A trace id has 128 bits and so has a job's id, so a job's trace *is* its id without the dashes; the
ids of its spans follow from the job's id and the claim's number. So a process that knows a job, on any machine and after any
restart, knows where in which trace it belongs:

    submit ─┬─ wait (claim 1)     from due to start
            ├─ run  (claim 1)     the first attempt
            ├─ wait (claim 2)
            └─ run  (claim 2)     a retry, linked to the run before it

The coordinator that stores the end of an attempt tells of it, with the times that the store judged; workers tell nothing.
A submitter with a trace of its own (`traceparent`) is linked from the submit span: a job is no part of the request that
left it here, since it may run for hours after that. What a job does itself can join its run span: `traceparent()`,
`context()`.

Tracing is on when OpenTelemetry's own variables ask for it: `OTEL_TRACES_EXPORTER` (`otlp`, `console`), or an address in
`OTEL_EXPORTER_OTLP_ENDPOINT`. Only then is the library imported. `OTEL_TRACES_SAMPLER_ARG` is the share of jobs that are
traced, decided by the id, so that a trace is whole or not there at all.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, cast

import structlog

from stoker.context import current_job
from stoker.domain.job import Job
from stoker.domain.lifecycle import FINAL, Status
from stoker.domain.retry import Claim, Outcome

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import SpanProcessor
    from opentelemetry.sdk.trace.id_generator import IdGenerator
    from opentelemetry.trace import Link, SpanContext, SpanKind

SUBMIT_CLAIM: Final = 0
"""No claim has this number: the span of the submission."""
SHARE_DIGITS: Final = 8
"""The last digits of an id: random, where those before them may count the ids of a millisecond."""
_NS: Final = 1_000
_TRACEPARENT: Final = re.compile(rb"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")

caller: ContextVar[bytes | None] = ContextVar("stoker_traceparent", default=None)
"""The `traceparent` of the request that is being answered."""

_callers: ContextVar[dict[str, bytes] | None] = ContextVar("stoker_traceparents", default=None)
"""The `traceparent` of jobs that brought one of their own, by their ids."""

log = structlog.get_logger()


def begin_request(traceparent: bytes | None) -> None:
    """Note where the request comes from that is to be answered now; a connection brings one after the other."""
    caller.set(traceparent)
    if _callers.get() is not None:
        _callers.set(None)


def remember_caller(job_id: str, traceparent: bytes) -> None:
    """Note where a job of the request that is being answered comes from."""
    known = _callers.get()
    if known is None:
        _callers.set({job_id: traceparent})
    else:
        known[job_id] = traceparent


# ── ids: no library needed ───────────────────────────────────────────────────────────────────────────────────────────


def trace_id(job_id: str) -> int:
    return int(job_id.replace("-", ""), 16)


def span_id(job_id: str, claim_id: int, what: str = "run") -> int:
    """Never 0, which would be no id."""
    digest = hashlib.blake2b(f"{job_id}/{claim_id}/{what}".encode(), digest_size=8).digest()
    return int.from_bytes(digest) or 1


def traceparent(job_id: str | None = None, claim_id: int | None = None) -> str:
    """Return the W3C header that makes what follows a part of a job's run; by default of the job that this code runs for."""
    if job_id is None or claim_id is None:
        job = current_job()
        job_id, claim_id = job.id, job.claim_id
    return f"00-{trace_id(job_id):032x}-{span_id(job_id, claim_id):016x}-01"


def context() -> "Context":
    """OpenTelemetry's context of the running job: `tracer.start_as_current_span("…", context=tracing.context())`."""
    from opentelemetry import trace

    job = current_job()
    return trace.set_span_in_context(trace.NonRecordingSpan(_span_context(job.id, job.claim_id, "run")))


def _span_context(job_id: str, claim_id: int, what: str) -> "SpanContext":
    from opentelemetry.trace import SpanContext, TraceFlags

    flags = TraceFlags(TraceFlags.SAMPLED)
    return SpanContext(trace_id(job_id), span_id(job_id, claim_id, what), is_remote=True, trace_flags=flags)


# ── spans ────────────────────────────────────────────────────────────────────────────────────────────────────────────


class JobTracer:
    """Tells of jobs. Not for threads: ids are handed to the library just before it asks for them."""

    def __init__(
        self, processor: "SpanProcessor", *, share: float = 1.0, service: str = "stoker", version: str = "0"
    ) -> None:
        from opentelemetry import trace
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.sampling import ALWAYS_ON

        self._trace = trace
        self._ids = _Ids()
        # Which jobs are traced is decided here, before anything is made for the others.
        self._provider = TracerProvider(
            sampler=ALWAYS_ON,
            resource=Resource.create({"service.name": service, "service.version": version}),
            id_generator=cast("IdGenerator", self._ids),
        )
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("stoker", version)
        self._below = int(share * 16**SHARE_DIGITS)

    def _is_traced(self, job_id: str) -> bool:
        """By the id alone, so that every coordinator says the same of a job, now and after a retry."""
        return int(job_id[-SHARE_DIGITS:], 16) < self._below

    def submitted(self, jobs: Sequence[Job], now: int) -> None:
        """Jobs are durable. Said where the request is still known."""
        request, own = self._link(caller.get()), _callers.get() or {}
        for job in jobs:
            if self._is_traced(job.id):
                attributes = _attributes(job.id, job.type, job.queue)
                link = self._link(own[job.id]) if job.id in own else request
                links = [] if link is None else [link]
                kind = self._trace.SpanKind.PRODUCER
                self._tell(
                    f"submit {job.type}",
                    (job.id, SUBMIT_CLAIM, "submit"),
                    (job.created_at, max(now, job.created_at)),
                    kind,
                    attributes,
                    links,
                )

    def ended(self, claim: Claim, outcome: Outcome, status: Status | None) -> None:
        """The end of an attempt was stored; one that was refused (no status) is not a part of what happened."""
        if status is None or not self._is_traced(claim.id):
            return
        finished = outcome.finished_at or claim.claimed_at
        started = outcome.started_at or finished
        failed = None if outcome.kind in ("completed", "handed_back") else outcome.kind
        self._attempt(claim, started, finished, status, outcome.kind, failed)

    def lost(self, claim: Claim, status: Status, now: int) -> None:
        """A claim was taken from a worker that fell silent. When it started is not known here, only when it was claimed."""
        if self._is_traced(claim.id):
            self._attempt(claim, claim.claimed_at, now, status, "lost", "lost")

    def cancelled(self, job: Job, now: int) -> None:
        """A job was cancelled before it ran: all it did was wait."""
        if self._is_traced(job.id):
            attributes = {**_attributes(job.id, job.type, job.queue), "stoker.job.status": "cancelled"}
            self._wait(job.id, job.claim_id + 1, job.type, (job.run_at, now), attributes)

    def _attempt(
        self, claim: Claim, started: int, finished: int, status: Status, kind: str, failed: str | None
    ) -> None:
        attributes = {
            **_attributes(claim.id, claim.type, claim.queue),
            "stoker.job.attempt": claim.attempt,
            "stoker.job.claim": claim.claim_id,
            "stoker.worker.id": claim.session_id,
            "stoker.attempt.outcome": kind,
        }
        self._wait(claim.id, claim.claim_id, claim.type, (claim.run_at, started), attributes)
        if status in FINAL:
            attributes["stoker.job.status"] = status
        before = claim.claim_id - 1
        links = [] if before < 1 else [self._trace.Link(_span_context(claim.id, before, "run"))]
        self._tell(
            f"run {claim.type}",
            (claim.id, claim.claim_id, "run"),
            (started, max(started, finished)),
            self._trace.SpanKind.CONSUMER,
            attributes,
            links,
            failed,
        )

    def _wait(
        self, job_id: str, claim_id: int, type: str, times: tuple[int, int], attributes: dict[str, Any]
    ) -> None:
        since, until = times
        which = (job_id, claim_id, "wait")
        self._tell(
            f"wait {type}", which, (min(since, until), until), self._trace.SpanKind.INTERNAL, attributes, []
        )

    def _tell(
        self,
        name: str,
        which: tuple[str, int, str],
        times: tuple[int, int],
        kind: "SpanKind",
        attributes: dict[str, Any],
        links: "list[Link]",
        failed: str | None = None,
    ) -> None:
        """One span that is over already. All but the first hang below the submission."""
        job_id, claim_id, what = which
        self._ids.next = (trace_id(job_id), span_id(job_id, claim_id, what))
        parent = None
        if claim_id != SUBMIT_CLAIM:
            above = self._trace.NonRecordingSpan(_span_context(job_id, SUBMIT_CLAIM, "submit"))
            parent = self._trace.set_span_in_context(above)
        span = self._tracer.start_span(
            name,
            parent if parent is not None else _nothing(),
            kind=kind,
            attributes=attributes,
            links=links,
            start_time=times[0] * _NS,
        )
        if failed is not None:
            span.set_attribute("error.type", failed)
            span.set_status(self._trace.StatusCode.ERROR, failed)
        span.end(times[1] * _NS)

    def _link(self, traceparent: bytes | None) -> "Link | None":
        found = _TRACEPARENT.fullmatch(traceparent or b"")
        if found is None:
            return None
        trace, span, flags = (int(part, 16) for part in found.groups())
        if not trace or not span:
            return None
        return self._trace.Link(
            self._trace.SpanContext(trace, span, is_remote=True, trace_flags=self._trace.TraceFlags(flags))
        )

    def close(self) -> None:
        """Send what is still here."""
        self._provider.shutdown()


class _Ids:
    """Gives the library the ids that follow from the job, where it would make up its own."""

    def __init__(self) -> None:
        self.next = (0, 0)

    def generate_trace_id(self) -> int:
        return self.next[0]

    def generate_span_id(self) -> int:
        return self.next[1]

    def is_trace_id_random(self) -> bool:
        return True


def _nothing() -> "Context":
    """A context without a span in it: the first of a trace must not hang below whatever else is traced in this process."""
    from opentelemetry.context import Context

    return Context()


def _attributes(job_id: str, type: str, queue: str) -> dict[str, Any]:
    return {
        "messaging.system": "stoker",
        "messaging.destination.name": queue,
        "stoker.job.id": job_id,
        "stoker.job.type": type,
    }


# ── on and off ───────────────────────────────────────────────────────────────────────────────────────────────────────


def is_wanted(environ: Mapping[str, str]) -> bool:
    """Return whether OpenTelemetry's own variables ask for traces."""
    if environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    exporter = environ.get("OTEL_TRACES_EXPORTER", "")
    addresses = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
    return exporter != "none" and bool(exporter or any(environ.get(name) for name in addresses))


def from_environment(environ: Mapping[str, str], version: str) -> JobTracer | None:
    """None while tracing is off, or cannot be had: a system without traces runs, and says so."""
    if not is_wanted(environ):
        return None
    try:
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        processor = BatchSpanProcessor(_exporter(environ.get("OTEL_TRACES_EXPORTER") or "otlp"))
    except (ImportError, ValueError) as error:
        log.warning("tracing_unavailable", detail=f"{error}; pip install 'stoker[otel]'")
        return None
    service = environ.get("OTEL_SERVICE_NAME", "stoker")
    return JobTracer(processor, share=_share(environ), service=service, version=version)


def _exporter(name: str) -> Any:
    match name:
        case "console":
            from opentelemetry.sdk.trace.export import ConsoleSpanExporter

            return ConsoleSpanExporter()
        case "otlp":
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

            return OTLPSpanExporter()
    raise ValueError(f"OTEL_TRACES_EXPORTER={name} is not one of otlp, console, none")


def _share(environ: Mapping[str, str]) -> float:
    try:
        return min(1.0, max(0.0, float(environ.get("OTEL_TRACES_SAMPLER_ARG") or 1.0)))
    except ValueError:
        return 1.0
