"""The child process of a local Stoker: a coordinator on a free port of loopback, until its parent ends it or dies.

    python -m stoker.local.serving < order.json

Settings come from the order alone, never from the environment, which may configure another Stoker.
"""

import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from stoker.cli.serve import CannotStart, running
from stoker.local.coordinator import Order, StartAnswer
from stoker.logs import log as logs
from stoker.settings import Settings, SettingsError, load
from stoker.system import SYSTEM

DATABASE = "stoker.db"


def main() -> int:
    order = msgspec.json.decode(sys.stdin.buffer.read(), type=Order)
    # Only the answer goes to the pipe. The parent reads no more than that, so other output goes to stderr.
    answers = os.dup(1)
    os.dup2(2, 1)
    try:
        signal.signal(signal.SIGTERM, _leave)
        SYSTEM.end_with_parent(order.lifeline, signal.SIGTERM)
        SYSTEM.run(_serve(_settings(order), answers))
    except (CannotStart, SettingsError, OSError) as error:
        _answer(answers, StartAnswer(error=str(error)))
        return 1
    finally:
        if order.temporary:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            shutil.rmtree(order.folder, ignore_errors=True)
    return 0


def _leave(*_: object) -> NoReturn:
    """Exit: SIGTERM came before the coordinator listens, for example because the parent died."""
    raise SystemExit(0)


def _settings(order: Order) -> Settings:
    folder = Path(order.folder).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    given: dict[str, Any] = {"log_level": "error", **order.settings}
    return load({}, {**given, "api_port": 0, "database_url": f"sqlite:///{folder / DATABASE}"})


async def _serve(settings: Settings, answers: int) -> None:
    async with running(settings, logs.configure(settings.log_level, settings.log_format)) as server:
        # Linux may send the parent-death signal several times, as the parent's threads end one by one. So a second SIGTERM
        # must not mean "stop at once", as it does in `stoker serve`.
        SYSTEM.on_signals((signal.SIGTERM,), server.stop)
        _answer(answers, StartAnswer(url=server.url))
        await server.stopped.wait()


def _answer(fd: int, answer: StartAnswer) -> None:
    with os.fdopen(fd, "wb") as line:
        line.write(msgspec.json.encode(answer) + b"\n")


if __name__ == "__main__":
    sys.exit(main())
