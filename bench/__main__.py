"""`python -m bench [PART…]`: measure, print, judge."""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

from bench import command
from bench.context import QUICK, Context, Run, Sizes
from bench.parts import drain, durable, latency, reads, runner, throughput, unserved
from bench.results import Line

TOGETHER: Final = (throughput.BARE, throughput.SINGLES, throughput.BATCHES)
ALONE: Final[dict[str, Callable[[Context], list[Line]]]] = {
    "drain": drain.run,
    "latency": latency.run,
    "reads": reads.run,
    "unserved": unserved.run,
    "durable": durable.run,
    "runner": runner.run,
}


class OneMachine:
    """Stoker with its defaults: one coordinator on SQLite, one worker."""

    program = "python -m bench"
    description = "Measure Stoker on this machine."
    parts: Sequence[str] = (*TOGETHER, *ALONE)
    limit_seconds = 900.0
    notes_title = "One request, as strace saw it:"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """None of its own."""

    def prepare(self, options: argparse.Namespace, folder: Path, stack: ExitStack) -> Run:
        self._context = Context(folder, QUICK if options.quick else Sizes())
        return self._context

    def steps(self, parts: Sequence[str]) -> Iterator[command.Step]:
        together = [name for name in TOGETHER if name in parts]
        if together:
            yield ", ".join(together), partial(throughput.run, self._context, together)
        for name, part in ALONE.items():
            if name in parts:
                yield name, partial(part, self._context)


if __name__ == "__main__":
    sys.exit(command.main(OneMachine()))
