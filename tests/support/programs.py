"""Programs that some tests need and a developer may not have. In CI they must be there: a test that is always skipped
proves nothing."""

import os
import shutil

import pytest


def needs(program: str, package: str) -> pytest.MarkDecorator:
    """Skips where the program is missing, except in CI, where the test then fails by itself."""
    missing = shutil.which(program) is None and os.environ.get("CI") != "true"
    return pytest.mark.skipif(missing, reason=f"{program} is not installed (Debian: {package})")
