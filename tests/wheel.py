"""What people install: sdist and wheel, each in an empty environment outside of the source tree, and a system there.

    python tests/wheel.py

The wheel is built from the sdist, so a file that the sdist lacks is missed here. The wheel is installed first; then the
sdist, where neither CMake nor a compiler can be found: that must work too, with Python in place of the C++ runner. Uses
nothing but the standard library, so that any Python 3.11 or later can run it. Exit code 1 says what did not work.
"""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
BUILD: Final = ROOT / "build" / "wheel-test"
START_SECONDS: Final = 60.0
TOOLS: Final = ("pytest", "mypy", "hypothesis", "scikit_build_core", "ruff")
"""Of developers; an install for use brings none of them."""
COMPILERS: Final = ("cmake", "c++", "g++", "clang++", "cc", "gcc", "make", "ninja")
PACKAGED: Final = ("stoker/py.typed", "stoker/dashboard/index.html", "stoker/store/sqlite/queries.sql")
APP: Final = """\
from stoker import Stoker

app = Stoker()


@app.task
def add(x: int, y: int) -> int:
    return x + y
"""
SDK: Final = """\
import stoker
from tasks import add

assert add.submit(1, 2).result(timeout=30) == 3
assert add.submit_many([(n, n) for n in range(100)]).results(timeout=30) == [2 * n for n in range(100)]
print("SDK: 101 jobs")
"""


class Failed(Exception):
    """Something did not work; the message says what."""


def main() -> int:
    began = time.monotonic()
    shutil.rmtree(BUILD, ignore_errors=True)
    try:
        sdist, wheel = build()
        with tempfile.TemporaryDirectory(prefix="stoker-wheel-") as folder:
            title(f"{wheel.name}: an empty environment")
            try_out(Path(folder) / "wheel", wheel, own_environment(), native=has_compiler())
            title(f"{sdist.name}: an empty environment, no compiler")
            try_out(Path(folder) / "sdist", sdist, without_compiler(), native=False)
    except Failed as failed:
        sys.stdout.write(f"\nFAILED: {failed}\n")
        return 1
    sys.stdout.write(f"\nAll of it works ({time.monotonic() - began:.0f} s).\n")
    return 0


# ── building ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def build() -> tuple[Path, Path]:
    """Build the sdist, and the wheel from it; look for what Python would not miss."""
    title("Build sdist and wheel")
    python = make_environment(BUILD / "tools")
    run([python, "-m", "pip", "install", "--quiet", "build"], own_environment(), BUILD)
    run([python, "-m", "build", "--outdir", BUILD, ROOT], own_environment(), BUILD)
    (sdist,) = BUILD.glob("stoker-*.tar.gz")
    (wheel,) = BUILD.glob("stoker-*.whl")
    with tarfile.open(sdist) as archive:
        look_for([f"/src/{path}" for path in PACKAGED], archive.getnames(), sdist)
    with zipfile.ZipFile(wheel) as archive:
        runner = ["stoker/_runner/stoker-runner"] if has_compiler() else []
        look_for([*PACKAGED, *runner], archive.namelist(), wheel)
        tests = [name for name in archive.namelist() if name.startswith(("tests/", "bench/", "web/"))]
        check(not tests, f"{wheel.name} has files that do not belong there: {tests[:3]}")
    for path in (sdist, wheel):
        ok(f"{path.relative_to(ROOT)}, {path.stat().st_size / 1e6:.1f} MB")
    return sdist, wheel


def look_for(wanted: list[str], names: list[str], where: Path) -> None:
    missing = [end for end in wanted if not any(name.endswith(end) for name in names)]
    check(not missing, f"{where.name} lacks {', '.join(missing)}")


def make_environment(folder: Path) -> Path:
    """Make an empty environment and return its Python."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    run([sys.executable, "-m", "venv", folder], own_environment(), folder.parent)
    return folder / "bin" / "python"


def own_environment() -> dict[str, str]:
    """The variables of this process without those that lead to the source tree or to another system."""
    ours = ("STOKER_", "POSTGRES_", "PYTHON", "VIRTUAL_ENV", "DATABASE_URL", "REDIS_URL", "API_")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)}


def without_compiler() -> dict[str, str]:
    """The same, on a machine without CMake and compiler: the folder on PATH has a link to every other program alone."""
    folder = BUILD / "programs"
    folder.mkdir(parents=True, exist_ok=True)
    for place in os.get_exec_path():
        for program in Path(place).iterdir() if Path(place).is_dir() else ():
            link = folder / program.name
            if not hidden(program.name) and not link.is_symlink():
                link.symlink_to(program)
    kept = {name: value for name, value in own_environment().items() if name not in ("CC", "CXX", "CMAKE")}
    environment = {**kept, "PATH": str(folder)}
    found = [name for name in COMPILERS if shutil.which(name, path=environment["PATH"])]
    check(not found, f"these are not hidden: {', '.join(found)}")
    return environment


def hidden(program: str) -> bool:
    words = ("cmake", "gcc", "g++", "clang", "c++", "ninja", "make", "cpp")
    return program in COMPILERS or any(word in program for word in words)


def has_compiler() -> bool:
    return all(shutil.which(program) for program in ("cmake", "c++", "make"))


# ── trying ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def try_out(folder: Path, package: Path, environment: Mapping[str, str], *, native: bool) -> None:
    """Install a package into an empty environment, and use it there, in a folder that knows nothing of the sources."""
    python = make_environment(folder / "venv")
    work = folder / "work"
    work.mkdir()
    began = time.monotonic()
    run([python, "-m", "pip", "install", "--quiet", package], environment, work)
    ok(f"pip install, {time.monotonic() - began:.0f} s")
    commands(python, environment, work, native=native)
    (work / "tasks.py").write_text(APP, encoding="utf-8")
    (work / "sdk.py").write_text(SDK, encoding="utf-8")
    with system(python, environment, work) as url:
        use(python, {**environment, "STOKER_API_URL": url}, work, url)


def commands(python: Path, environment: Mapping[str, str], work: Path, *, native: bool) -> None:
    """What works without a system: imports, versions, help, the runner in Python."""
    where = run([python, "-c", "import stoker; print(stoker.__file__)"], environment, work).strip()
    check(Path(where).is_relative_to(python.parents[1]), f"stoker is imported from {where}")
    look = f"import importlib.util as u; print([n for n in {TOOLS!r} if u.find_spec(n)])"
    check(run([python, "-c", look], environment, work).strip() == "[]", "tools of developers were installed")
    ok("import stoker; no tools of developers")
    version = run([python.with_name("stoker"), "--version"], environment, work).strip()
    check(version.startswith("stoker "), f"stoker --version says {version!r}")
    check("submit" in run([python.with_name("stoker"), "--help"], environment, work), "stoker --help is odd")
    ok(f"stoker --version, --help: {version}")
    find = "from stoker.executors.native_binary import find_runner; print(find_runner())"
    runner = run([python, "-c", find], environment, work).strip()
    check((runner != "None") is native, f"the C++ runner is {runner}")
    job = ["--job-id", "x", "--type", "add_numbers", "--payload", '{"x": 1, "y": 2}']
    programs = [python.with_name("stoker-python-runner"), *([Path(runner)] if native else [])]
    for program in programs:
        said = run([program, *job], environment, work)
        check("3" in said, f"{program} says {said!r}")
        ok(f"{program.name} runs a job")
    if not native:
        ok("no C++ runner, as there was no compiler")


@contextmanager
def system(python: Path, environment: Mapping[str, str], work: Path) -> Iterator[str]:
    """`stoker up` on a free port, until the end of the block."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    with (work / "up.log").open("w+", encoding="utf-8") as log:
        command: list[str | Path] = [
            python.with_name("stoker"),
            "up",
            "--port",
            str(port),
            "--workers",
            "1",
            "--app",
            "tasks:app",
        ]
        process = subprocess.Popen(command, cwd=work, env={**environment}, stdout=log, stderr=log)
        try:
            wait_until_it_answers(url, process, work)
            ok(f"stoker up at {url}")
            yield url
        except Failed as failed:
            tail = (work / "up.log").read_text(encoding="utf-8")[-2000:]
            raise Failed(f"{failed}\nstoker up said:\n{tail}") from None
        finally:
            process.send_signal(signal.SIGTERM)
            code = process.wait(60)
    check(code in (0, 130, 143), f"stoker up ended with {code}")
    ok("stoker up ends")


def wait_until_it_answers(url: str, process: subprocess.Popen[bytes], work: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        check(process.poll() is None, f"stoker up ended with {process.returncode}")
        try:
            if json.loads(fetch(f"{url}/health")) == {"status": "ok"}:
                return
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.1)
    raise Failed(f"nothing answers at {url} after {START_SECONDS:.0f} s")


def use(python: Path, environment: Mapping[str, str], work: Path, url: str) -> None:
    """Submit by the SDK and by the command line, and look at the dashboard."""
    ok(run([python, "sdk.py"], environment, work).strip())
    for type_name, payload, result in (
        ("echo", '"hello"', "hello"),
        ("add", '{"x": 2, "y": 3}', "5"),
        ("add_numbers", '{"x": 2, "y": 4}', "6"),
    ):
        said = run([python.with_name("stoker"), "submit", type_name, payload, "--wait"], environment, work)
        check(result in said, f"stoker submit {type_name} says {said!r}")
    ok("command line: 3 jobs")
    index = next((python.parents[1] / "lib").glob("python*/site-packages/stoker/dashboard/index.html"))
    page = fetch(f"{url}/dashboard").decode()
    check("<html" in page.lower() and "stoker" in page.lower(), "/dashboard is no page")
    check(page == index.read_text(encoding="utf-8"), "/dashboard is not the installed index.html")
    found = re.search(r'src="(/dashboard/assets/[^"]+\.js)"', page)
    script = fetch(url + found[1]) if found else b""
    check(len(script) > 10_000, "the script that index.html names is not served")
    ok("dashboard: index.html and its script")


# ── small things ─────────────────────────────────────────────────────────────────────────────────────────────────────


def fetch(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=30) as answer:  # noqa: S310 - always http://127.0.0.1
        body: bytes = answer.read()
        return body


def run(command: list[str | Path], environment: Mapping[str, str], folder: Path) -> str:
    """Run a program and return what it said on stdout; raise `Failed` with all it said when it fails."""
    done = subprocess.run(
        command, env={**environment}, cwd=folder, capture_output=True, text=True, timeout=600, check=False
    )
    words = " ".join(map(str, command))
    check(
        done.returncode == 0,
        f"{words}\nended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-4000:]}",
    )
    return done.stdout


def check(holds: bool, otherwise: str) -> None:
    if not holds:
        raise Failed(otherwise)


def title(text: str) -> None:
    sys.stdout.write(f"\n{text}\n")
    sys.stdout.flush()


def ok(text: str) -> None:
    sys.stdout.write(f"  ok  {text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
