"""A program that submits jobs through the Python SDK, one after the other, as a process of its own.

It runs under the interpreter of the revision that is measured, so that it imports that revision's `stoker`, of which it uses
`Stoker`, `app.task` and `task.submit` alone.
"""

import subprocess
import sys
from pathlib import Path
from typing import Final

from bench.processes import BenchFailed, environment, tethered

SDK: Final = "SDK producer"
"""Its role among the processes that are measured."""


class SdkProducer:
    """The process, seen from the driver. Use it when the coordinator answers; end it with `stop`."""

    def __init__(self, python: str, port: int, folder: Path) -> None:
        self._errors = folder / "sdk.log"
        with self._errors.open("ab") as errors:
            self._process = subprocess.Popen(
                tethered([python, "-m", __name__, f"http://127.0.0.1:{port}"]),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environment(),
                cwd=folder,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def submit(self, first: int, jobs: int) -> None:
        """Have it submit so many jobs, numbered from `first`; return when the last one was acknowledged."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{first} {jobs}\n".encode())
        self._process.stdin.flush()
        said = self._process.stdout.readline().strip()
        if said != b"done":
            raise BenchFailed(f"the SDK did not submit: {self._errors.read_text(errors='replace')[-1_000:]}")

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


def main(url: str) -> None:
    """Obey lines of two numbers, the first job and how many."""
    from stoker import Stoker

    app = Stoker(url)

    def echo(n: int) -> dict[str, int]:
        return {"n": n}

    task = app.task(name="echo")(echo)
    for line in sys.stdin:
        first, jobs = map(int, line.split())
        for number in range(first, first + jobs):
            task.submit(number)
        print("done", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
