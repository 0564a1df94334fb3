"""The Python and the commands of every page in `docs/howto` run as they stand, against a real system with its own tasks.

How a page is read:

- a block that begins with a file name (`# tasks.py`) is that file, in the folder of the page's system;
- if one of them is `tasks.py`, the system is started with `--app tasks:app`;
- the other blocks run in order, in one Python (`tests/docs/reader.py` says what is checked of them);
- a block marked ```` ```python no-run ```` is left out;
- then the commands of its `console` blocks run, in one shell, with the address of the page's system in place of
  `http://127.0.0.1:8080`; those that start servers or install packages (`LEFT_OUT`) are for the reader alone;
- `<!-- up: --threads 4 STOKER_RETRY_BACKOFF_BASE_SEC=1 -->` gives arguments and settings to `stoker up`.
"""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.e2e.system import STOKER, System

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs" / "howto").glob("*.md"))
PAGES = [page for page in PAGES if page.name != "README.md"] + [ROOT / "docs" / "coming-from-celery.md"]
READER = Path(__file__).with_name("reader.py")
SETTINGS = {"STOKER_RETRY_BACKOFF_BASE_SEC": "1"}

BLOCK = re.compile(r"^```python(?P<mark>[^\n]*)\n(?P<code>.*?)^```", re.DOTALL | re.MULTILINE)
FILE = re.compile(r"# (?P<name>[\w/]+\.py)\n")
COMMANDS = re.compile(r"^```console\n(?P<code>.*?)^```", re.DOTALL | re.MULTILINE)
LEFT_OUT = re.compile(r"export |pip |uvicorn |flask |stoker (up|worker)\b")
UP = re.compile(r"<!-- up: (?P<words>.*?) -->")


class Page(NamedTuple):
    """What a page asks for: files, the blocks to run, arguments and settings of `stoker up`."""

    files: dict[str, str]
    blocks: list[dict[str, Any]]
    arguments: list[str]
    settings: dict[str, str]
    commands: list[str]


def read_page(text: str) -> Page:
    files: dict[str, str] = {}
    blocks: list[dict[str, Any]] = []
    for block in BLOCK.finditer(text):
        code, name = block["code"], FILE.match(block["code"])
        if "no-run" in block["mark"]:
            continue
        if name is not None:
            files[name["name"]] = files.get(name["name"], "") + code
        else:
            blocks.append({"line": text.count("\n", 0, block.start("code")), "code": code})
    words = [word for up in UP.finditer(text) for word in shlex.split(up["words"])]
    settings = dict(word.split("=", 1) for word in words if re.match(r"[A-Z_]+=", word))
    arguments = [word for word in words if not re.match(r"[A-Z_]+=", word)]
    if "tasks.py" in files and "--app" not in arguments:
        arguments += ["--app", "tasks:app"]
    return Page(files, blocks, arguments, SETTINGS | settings, read_commands(text))


def read_commands(text: str) -> list[str]:
    """Return the commands of a page that can be run, in order, without those that need the reader's own machine."""
    consoles = "".join(block["code"] for block in COMMANDS.finditer(text)).replace("\\\n", " ")
    typed = [line.removeprefix("$ ") for line in consoles.splitlines() if line.startswith("$ ")]
    return [line for line in typed if not LEFT_OUT.match(line)]


def run_commands(system: System, commands: list[str], url: str) -> None:
    """Run the commands in one shell. An answer of curl that is an error fails, as a command does that ends with one."""
    script = "\n".join(['curl() { command curl --silent --show-error --fail-with-body "$@"; }', *commands])
    environ = system.environ({"STOKER_API_URL": url})
    environ["PATH"] = f"{Path(STOKER).parent}:{environ['PATH']}"
    done = subprocess.run(
        ["bash", "-xeuo", "pipefail", "-c", script.replace("http://127.0.0.1:8080", url)],
        cwd=system.folder,
        env=environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]


def run_blocks(system: System, page: str, blocks: list[dict[str, Any]], url: str) -> None:
    done = subprocess.run(
        [sys.executable, str(READER), page],
        input=json.dumps(blocks),
        cwd=system.folder,
        env=system.environ({"STOKER_API_URL": url}),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_the_page_runs_as_it_stands(path: Path, tmp_path: Path) -> None:
    page = read_page(path.read_text("utf-8"))
    assert page.blocks or page.files, "a page of the how-tos has Python to run"
    with System(tmp_path / "page") as system:
        for name, code in page.files.items():
            (system.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (system.folder / name).write_text(code, "utf-8")
        server = system.up(*page.arguments, **page.settings)
        try:
            run_blocks(system, f"docs/howto/{path.name}", page.blocks, server.url)
            run_commands(system, page.commands, server.url)
        except AssertionError as error:
            raise AssertionError(f"{error}\n--- the system:\n{server.output[-4000:]}") from None


PROBE = """
```python
# tasks.py
app = 1
```
```python
x = 2
```
```python no-run
y = 3
```
```console
$ stoker up --app tasks:app
$ stoker jobs \\
      --limit 1  # one
id  type
```
<!-- up: --threads 4 A_SETTING=5 -->
"""


def test_files_blocks_and_options_of_a_page_are_told_apart() -> None:
    page = read_page(PROBE)
    assert page.files == {"tasks.py": "# tasks.py\napp = 1\n"}
    assert page.blocks == [{"line": 6, "code": "x = 2\n"}]
    assert page.arguments == ["--threads", "4", "--app", "tasks:app"]
    assert page.settings["A_SETTING"] == "5"
    assert page.commands == ["stoker jobs        --limit 1  # one"]


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("1 + 1  # 2\n", ""),
        ("1 + 1  # 3\n", "line 8: the page says 3, but the value is 2"),
        ("1 + 1  # two\n", ""),
        ("int('x')  # raises ValueError\n", ""),
        ("int('1')  # raises ValueError\n", "nothing was raised"),
        ("int('x')\n", "ValueError"),
        ("import asyncio\nawait asyncio.sleep(0, 4)  # 4\n", ""),
        ("import asyncio\nawait asyncio.sleep(0, 4)  # 5\n", "the value is 4"),
        ("x = 1\nx  # 1\n", ""),
    ],
)
def test_what_a_page_says_of_a_value_is_checked(code: str, says: str) -> None:
    done = subprocess.run(
        [sys.executable, str(READER), "page.md"],
        input=json.dumps([{"line": 7, "code": code}]),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode == 0, says in done.stderr) == (not says, True), done.stderr
