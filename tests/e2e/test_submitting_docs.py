"""The examples of docs/submitting.md, as they stand, against a real system."""

import re
import subprocess
import sys
from pathlib import Path

from tests.e2e.system import System

ROOT = Path(__file__).parents[2]
BLOCKS = re.findall(
    r"^```python\n(.*?)^```", (ROOT / "docs" / "submitting.md").read_text("utf-8"), re.DOTALL | re.MULTILINE
)

READER = """
import ast, asyncio, inspect, sys

code = compile(sys.stdin.read(), "docs/submitting.md", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
names = {}
waiting = eval(code, names)
if inspect.iscoroutine(waiting):
    asyncio.run(waiting)
print(names["jobs"].results(timeout=30), names["again"].id == names["order_id"], names["job"].result(timeout=30))
"""


def test_the_examples_about_submitting_run_as_they_stand(system: System) -> None:
    tasks = (ROOT / "examples" / "tasks.py").read_text("utf-8")
    (system.folder / "tasks.py").write_text(tasks, encoding="utf-8")
    up = system.up("--threads", 4, "--app", "tasks:app")
    done = subprocess.run(
        [sys.executable, "-W", "always::ResourceWarning", "-c", READER],
        input="\n".join(BLOCKS),
        cwd=system.folder,
        env=system.environ({"STOKER_API_URL": up.url}),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "[3, 7] True 3\n", ""), done.stderr
    assert up.get("/stats")["jobs_total"] == 1 + 1 + 2 + 2 + 1_000 + 1_000 + 1_000 + 1 + 1 + 1
