"""`python -m bench.postgres [PART…]`: measure Stoker on PostgreSQL, and the peers beside it; print, judge."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

from bench import command
from bench.context import Run
from bench.postgres.contenders import Contender, Stoker, peers
from bench.postgres.context import QUICK, Context, Sizes
from bench.postgres.parts import bloat, compare, coordinators, latency
from tests.support.servers import Postgres

PEERS: Final = "peers"
COMPARED: Final = {"singles": compare.singles, "batches": compare.batches, "latency": latency.run}
ALONE: Final = {"coordinators": coordinators.run, "bloat": bloat.run}


class OnPostgres:
    """Parts that compare run with the peers if `peers` is named (or nothing is), and with the peers alone if only it is."""

    program = "python -m bench.postgres"
    description = (
        "Measure Stoker on PostgreSQL, on this machine. "
        f"With the part '{PEERS}', pgqueuer and Procrastinate are measured beside it; with that part alone, only they are."
    )
    parts: Sequence[str] = (PEERS, *COMPARED, *ALONE)
    limit_seconds = 2_400.0
    notes_title = "How each was run:"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--peer-python",
            default=sys.executable,
            metavar="PROGRAM",
            help="the interpreter that has pgqueuer and Procrastinate (default: this one)",
        )

    def prepare(self, options: argparse.Namespace, folder: Path, stack: ExitStack) -> Run:
        folder.chmod(0o755)  # the server may have to run as another user
        server = Postgres(folder / "pg")
        stack.callback(server.stop)
        server.start()
        self._peers = peers(options.peer_python)
        self._context = Context(folder, QUICK if options.quick else Sizes(), server, options.peer_python)
        return self._context

    def steps(self, parts: Sequence[str]) -> Iterator[command.Step]:
        only_peers = set(parts) == {PEERS}
        contenders: list[Contender] = [] if only_peers else [Stoker()]
        if PEERS in parts:
            contenders += self._peers
        self._context.notes += [f"{contender.name}: {contender.setup}" for contender in contenders]
        for name, compared in COMPARED.items():
            if name in parts or only_peers:
                yield name, partial(compared, self._context, contenders)
        for name, part in ALONE.items():
            if name in parts:
                yield name, partial(part, self._context)


if __name__ == "__main__":
    sys.exit(command.main(OnPostgres()))
