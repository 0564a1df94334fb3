"""`docs/tutorial.md` works as it is written: its files, its commands and its Python, from top to bottom.

- a Python block that begins with a file name is that file; the others run by themselves;
- a `console` block is run line by line; what the page shows behind a command is compared if it stands in double quotes;
- `console up` starts the system, in place of the one before it; `console no-run` is for the reader alone.
"""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from tests.e2e.system import STOKER, Server, System

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "tutorial.md"
READER = Path(__file__).with_name("reader.py")
BLOCK = re.compile(
    r"^```(?P<kind>python|console)(?P<mark>[^\n]*)\n(?P<code>.*?)^```", re.DOTALL | re.MULTILINE
)
FILE = re.compile(r"# (?P<name>[\w/]+\.py)\n")
SETTINGS = {"STOKER_RETRY_BACKOFF_BASE_SEC": "1", "WORKER_HEARTBEAT_TIMEOUT_SEC": "3"}
"""The page waits for backoffs and leases; a test need not wait as long."""


class Block(NamedTuple):
    kind: str
    mark: str
    code: str
    line: int


def blocks(text: str) -> list[Block]:
    return [
        Block(found["kind"], found["mark"].strip(), found["code"], text.count("\n", 0, found.start("code")))
        for found in BLOCK.finditer(text)
    ]


class Reader:
    """Somebody who follows the page: one folder, and at most one system at a time."""

    def __init__(self, system: System) -> None:
        self._system = system
        self._server: Server | None = None

    def follow(self, block: Block) -> None:
        name = FILE.match(block.code)
        if block.mark == "no-run":
            return
        if block.mark == "up":
            self._start(block.code)
        elif block.kind == "python" and name is not None:
            (self._system.folder / name["name"]).write_text(block.code, "utf-8")
        elif block.kind == "python":
            code = [{"line": block.line, "code": block.code}]
            self._run([sys.executable, str(READER), "docs/tutorial.md"], json.dumps(code))
        else:
            self._type(block)

    def _start(self, code: str) -> None:
        if self._server is not None:
            self._server.terminate()
            self._server.exit_code(30)
        words = code.removeprefix("$ stoker up").split()
        self._server = self._system.up(*words, **SETTINGS)

    def _type(self, block: Block) -> None:
        lines = block.code.splitlines()
        for line, shown in zip(lines, [*lines[1:], ""], strict=True):
            if line.startswith("$ "):
                output = self._run(["bash", "-euo", "pipefail", "-c", line.removeprefix("$ ")])
                assert not shown.startswith('"') or output.strip() == shown, line

    def _run(self, argv: list[str], given: str | None = None) -> str:
        assert self._server is not None
        environ = self._system.environ({"STOKER_API_URL": self._server.url})
        environ["PATH"] = f"{Path(STOKER).parent}:{environ['PATH']}"
        done = subprocess.run(
            argv,
            input=given,
            cwd=self._system.folder,
            env=environ,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, f"{argv[-1]}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
        return done.stdout


def test_the_tutorial_works_as_it_is_written(tmp_path: Path) -> None:
    with System(tmp_path / "shop") as system:
        reader = Reader(system)
        for block in blocks(PAGE.read_text("utf-8")):
            reader.follow(block)
