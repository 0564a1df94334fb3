"""`--reload` on a real system: new code runs, broken code ends nothing, and a job that runs meanwhile is not charged."""

from pathlib import Path

from tests.e2e.system import Server, System, eventually, is_alive

TASKS = """
import time
from pathlib import Path
from stoker import Stoker

app = Stoker()

@app.task
def version() -> str:
    return {version!r}

@app.task(max_attempts=1)
def waits(path: str) -> str:
    while not Path(path).exists():
        time.sleep(0.01)
    return {version!r}
"""


def write(system: System, version: str) -> None:
    """Versions differ in length: Python takes a cached module for current that has the same second and size."""
    (system.folder / "tasks.py").write_text(TASKS.format(version=version))


def runs(server: Server, version: str) -> bool:
    job = server.ended(server.submit("version")["id"])
    assert (job["status"], job["attempt"]) == ("completed", 1)
    return bool(job["result"] == version)


def test_up_replaces_its_workers_when_the_source_changes(tmp_path: Path) -> None:
    with System(tmp_path / "reload") as system:
        write(system, "1")
        server = system.up("--app", "tasks:app", "--workers", "1", "--threads", "1", "--reload")
        assert runs(server, "1")
        eventually(lambda: server.events("reload_watching"))

        go = tmp_path / "go"
        slow = server.submit("waits", {"path": str(go)})["id"]
        server.started(slow)
        write(system, "22")
        eventually(lambda: runs(server, "22"), 30, "the new code to run")
        go.touch()
        ended = server.ended(slow)
        assert (ended["status"], ended["result"], ended["attempt"]) == ("completed", "1", 1)

        (system.folder / "tasks.py").write_text("def broken(:\n")
        (failed,) = eventually(lambda: server.events("reload_failed"), 30, "the error to be told")
        assert "SyntaxError" in failed["detail"]
        assert runs(server, "22")

        write(system, "333")
        eventually(lambda: runs(server, "333"), 30, "the mended code to run")
        server.terminate()
        assert server.exit_code() == 0


def test_a_worker_with_reload_hands_its_options_on_and_ends_in_order(tmp_path: Path) -> None:
    with System(tmp_path / "reload") as system:
        write(system, "1")
        server = system.serve()
        worker = system.start_worker(server, "--label", "a=b", "--reload", name="mine", app="tasks:app")
        assert runs(server, "1")
        (row,) = server.live_workers()
        assert (row["name"], row["labels"]) == ("mine", {"a": "b"})
        eventually(lambda: worker.events("reload_watching"))
        write(system, "22")
        eventually(lambda: runs(server, "22"), 30, "the new code to run")
        eventually(lambda: not is_alive(row["pid"]), 15, "the old worker to leave")
        (new,) = server.live_workers()
        worker.terminate()
        assert worker.exit_code() == 0
        assert not is_alive(new["pid"])
