"""An environment of its own for each peer, in `build/peers`: made when first needed, kept until its packages change."""

import subprocess
import sys
from collections.abc import Callable
from typing import Final

from bench.peers.systems import PeerSystem
from bench.processes import ROOT, BenchFailed, output_of

KEPT_IN: Final = ROOT / "build" / "peers"
_INSTALL_SECONDS: Final = 600.0


def interpreter(system: PeerSystem, progress: Callable[[str], None]) -> str:
    """Return the Python that has this system installed; install it first where it is missing."""
    if not system.requirements:
        return sys.executable
    folder = KEPT_IN / system.key
    python = folder / "venv" / "bin" / "python"
    stamp = folder / "installed.txt"
    wanted = "\n".join((*system.requirements, sys.version))
    if not (python.exists() and stamp.exists() and stamp.read_text() == wanted):
        progress(f"installing {system.title} into {folder.relative_to(ROOT)}, once")
        folder.mkdir(parents=True, exist_ok=True)
        _run([sys.executable, "-m", "venv", str(folder / "venv")])
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        _run([*pip, *system.requirements])
        stamp.write_text(wanted)
    return str(python)


def _run(argv: list[str]) -> None:
    """With the caller's own environment, which says where packages come from."""
    done = subprocess.run(
        argv, capture_output=True, text=True, check=False, timeout=_INSTALL_SECONDS, stdin=subprocess.DEVNULL
    )
    if done.returncode:
        raise BenchFailed(f"{' '.join(argv[:4])} … failed: {done.stderr.strip()[-1_000:]}")


def versions(python: str, system: PeerSystem) -> str:
    """Return the installed versions of the packages that the system asks for."""
    names = [requirement.partition("==")[0].partition(">=")[0] for requirement in system.requirements]
    names = [name.partition("[")[0] for name in names]
    code = (
        "import sys, importlib.metadata as m; print(', '.join(f'{n} {m.version(n)}' for n in sys.argv[1:]))"
    )
    return output_of([python, "-c", code, *names], f"the versions of {system.title}", 30.0).decode().strip()
