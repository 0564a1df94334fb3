"""What `stoker up` shows on a terminal under mixed load: `make transcript` writes it into `docs/logs.md`.

A real system on a pseudo-terminal of 80 columns, with the tasks below.
"""

import re
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import httpx

from tests.e2e.system import STOKER, System, free_port
from tests.support.terminal import Screen, on_a_terminal

PAGE: Final = Path(__file__).parents[2] / "docs" / "logs.md"
BEGIN: Final = "<!-- transcript: `make transcript` writes it anew -->\n```text\n"
END: Final = "```\n<!-- end of the transcript -->"
PORT: Final = "8080"

TASKS: Final = """\
import time

from stoker import Stoker

app = Stoker()


@app.task
def thumbnail(path: str, seconds: float = 0.2) -> str:
    time.sleep(seconds)
    return path


@app.task(max_attempts=3)
def charge(order: int, failures: int = 0) -> int:
    from stoker import current_job

    if current_job().attempt <= failures:
        raise ConnectionError(f"payments.example.com did not answer for order {order} within 10 seconds")
    return order


@app.task(queue="mail")
async def greet(name: str) -> str:
    return f"hello {name}"
"""


def main() -> None:
    with System(Path(tempfile.mkdtemp(prefix="transcript-"))) as home:
        (home.folder / "tasks.py").write_text(TASKS)
        shown = played(home)
    shutil.rmtree(home.folder, ignore_errors=True)
    before, _, rest = PAGE.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text(f"{before}{BEGIN}{shown}{END}{after}")


def played(home: System) -> str:
    port = free_port()
    argv = [STOKER, "up", "--app", "tasks:app", "--port", port]
    with on_a_terminal(argv, home.environ({}), folder=home.folder) as screen:
        screen.until(lambda text: text.count("joined with") == 2)
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as http:
            mixed_load(http, screen)
        screen.press("\x03")
        screen.exit_code(30)
        shown = screen.text
    shown = shown.replace("\r", "").replace("^C", "").replace(str(STOKER), "stoker").replace(str(port), PORT)
    shown = re.sub(r" --url \S+", "", shown)
    return "\n".join(["$ stoker up --app tasks:app", *(line.rstrip() for line in shown.split("\n"))])


def mixed_load(http: httpx.Client, screen: Screen) -> None:
    def submit(type: str, payload: Any, **fields: Any) -> str:
        id: str = http.post("/jobs", json={"type": type, "payload": payload, **fields}).json()["id"]
        return id

    def quiet(seconds: float) -> None:
        until = time.monotonic() + seconds
        screen.until(lambda _: time.monotonic() > until)

    submit("greet", {"name": "you"}, queue="mail")
    submit("thumbnail", {"path": "a.png", "seconds": 2.5})
    quiet(1)
    submit("charge", {"order": 17, "failures": 1}, max_attempts=3)
    submit("charge", {"order": 18, "failures": 9}, max_attempts=1)
    submit("thumbnail", {"file": "b.png"})
    submit("thumbnial", {"path": "c.png"})
    quiet(6)
    jobs: list[dict[str, Any]] = [
        {"type": "greet", "payload": {"name": str(n)}, "queue": "mail"} for n in range(5_000)
    ]
    jobs += [{"type": "charge", "payload": {"order": n, "failures": 9}, "max_attempts": 1} for n in range(30)]
    http.post("/jobs/batch", json={"jobs": jobs}).raise_for_status()
    last = submit("thumbnail", {"path": "d.png", "seconds": 20})
    quiet(3)
    http.post(f"/jobs/{last[-8:]}/cancel").raise_for_status()
    quiet(3)


if __name__ == "__main__":
    main()
