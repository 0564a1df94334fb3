"""A trace of a whole system: the request that submitted, the coordinator, the worker."""

from tests.e2e.system import System, eventually

CALLER_TRACE = "0af7651916cd43dd8448eb211c80319c"
CALLER_SPAN = "b7ad6b7169203331"


def test_a_jobs_trace_is_told_from_submission_to_end_and_linked_to_its_caller(system: System) -> None:
    server = system.serve(OTEL_TRACES_EXPORTER="console")
    system.worker(server)
    header = {"traceparent": f"00-{CALLER_TRACE}-{CALLER_SPAN}-01"}
    job = server.post("/jobs", {"type": "echo", "payload": 1}, **header)
    other = server.post("/jobs", {"type": "echo", "payload": 2})
    for id in (job["id"], other["id"]):
        assert server.ended(id)["status"] == "completed"
    server.terminate()
    assert server.exit_code() == 0
    trace = f'"trace_id": "0x{job["id"].replace("-", "")}"'
    eventually(lambda: server.output.count(trace) >= 3, 10, lambda: server.output)
    for name in ("submit echo", "wait echo", "run echo"):
        assert server.output.count(f'"name": "{name}"') == 2
    assert server.output.count(f'"trace_id": "0x{CALLER_TRACE}"') == 1, "one caller, one job, one link"
    assert f'"span_id": "0x{CALLER_SPAN}"' in server.output


def test_without_being_asked_nothing_is_traced(system: System) -> None:
    server = system.serve()
    system.worker(server)
    server.ended(server.submit()["id"])
    server.terminate()
    assert server.exit_code() == 0
    assert "trace_id" not in server.output
