"""Runs the tests of an example in its own folder, as the developers of such an application would."""

import os
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def run_tests(folder: Path, *names: str) -> subprocess.CompletedProcess[str]:
    """Run all tests of an example, or those named. They get Stoker's plugin and no other, and so start sooner."""
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-p",
            "stoker.testing.plugin",
            *names,
        ],
        cwd=folder,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
