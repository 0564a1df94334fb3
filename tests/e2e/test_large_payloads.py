"""Payloads of megabytes: they take the disk of a coordinator and not its memory, and all of them run."""

from pathlib import Path

from tests.e2e.system import System, eventually

MEGABYTES = 3
JOBS = 70
LIMIT_MB = 300
"""The jobs have 210 MB, and were held twice; a coordinator on SQLite has 190 with its caches."""


def peak_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024 / 1e6


def test_a_backlog_of_large_payloads_is_worked_off_in_bounded_memory(system: System) -> None:
    server = system.serve()
    body = b'{"type": "length", "payload": {"text": "' + b"x" * (MEGABYTES * 1_000_000) + b'"}}'
    for _ in range(JOBS):
        answer = server.http.post("/jobs", content=body, headers={"Content-Type": "application/json"})
        assert answer.status_code == 202
    system.worker(server, "--threads", "2")

    def completed() -> bool:
        return bool(server.get("/stats")["jobs_by_status"]["completed"] == JOBS)

    eventually(completed, within=120, otherwise="all of them to complete")
    assert peak_mb(server.pid) < LIMIT_MB
