"""A real job runs through a real coordinator, worker and child under a profiler; `docs/life-of-a-job.md` must name its path.

The path is what every one of three jobs, or every GET of one, calls beyond what an idle system calls (`bench.path.trace`).

- Every file on the path is named on the page, by a function or a class of it.
- In the files of `PIPELINE`, every function on the path is named, but for those in `LEAVES`.
"""

from collections.abc import Iterable
from pathlib import Path

import pytest

from bench.path.trace import Function, Traced, trace
from tests.support.life_page import PAGE, named_functions, outer

pytestmark = pytest.mark.slow

PIPELINE = {
    "api/app.py",
    "api/handlers/jobs.py",
    "coordinator/connection.py",
    "coordinator/jobs.py",
    "coordinator/observers.py",
    "coordinator/dispatch.py",
    "coordinator/reports.py",
    "executors/child.py",
    "executors/process.py",
    "executors/supervisor_line.py",
    "store/sqlite/claims.py",
    "store/sqlite/outcomes.py",
    "store/sqlite/state.py",
    "store/sqlite/submissions.py",
    "store/sqlite/store.py",
    "store/transaction_state.py",
    "store/verbs.py",
    "worker/supervisor.py",
    "worker/child_pool.py",
    "worker/slot.py",
}
"""The files whose functions take the steps of a job. All others help them."""

LEAVES = {
    # Parts of one step, each called by a function of the same file that the page names.
    "api/handlers/jobs.py": {"_job", "_remember_callers", "_run_at"},  # of submit_spec
    "coordinator/dispatch.py": {"_Frame.__init__"},
    "coordinator/reports.py": {"_are_figures"},  # of ReportSink._completions
    "store/sqlite/claims.py": {
        "SqliteClaims._first_of",  # of SqliteClaims._candidates
        "SqliteClaims._stored_candidates",  # of SqliteClaims._candidates
        "SqliteClaims._lane_named",  # of SqliteClaims._candidates
    },
    "store/sqlite/submissions.py": {
        "_Staged.__init__",  # what one call brings
        "SqliteSubmissions._accept_part",  # of SqliteSubmissions._accept
        "SqliteSubmissions._lane_id",  # of SqliteSubmissions._place
    },
    "store/transaction_state.py": {
        "TransactionState._count",  # the counters of /stats
        "TransactionState._count_fresh",  # the same, for jobs that are inserted
    },
    "store/sqlite/store.py": {"SqliteStore.shared"},  # a constant
    "worker/slot.py": {
        "Slot.free",  # of ChildPool.on_results
    },
}
"""Functions of the pipeline that the page may leave out, and why."""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Traced:
    folder: Path = tmp_path_factory.mktemp("path")
    return trace(folder)


def functions_of(path: Traced) -> set[Function]:
    return {
        outer(function) for called in (path.job, path.get) for found in called.values() for function in found
    }


def missing_files(path: Iterable[Function], named: Iterable[Function]) -> list[str]:
    return sorted({function.file for function in path} - {function.file for function in named})


def missing_steps(path: Iterable[Function], named: Iterable[Function]) -> list[str]:
    """Return the functions of the pipeline that are on the path and not on the page."""
    steps = {f for f in path if f.file in PIPELINE and f.name not in LEAVES.get(f.file, set())}
    return sorted(map(str, steps - set(named)))


def test_the_page_names_every_file_that_a_job_passes_through(path: Traced) -> None:
    assert missing_files(functions_of(path), named_functions(PAGE.read_text(encoding="utf-8"))) == []


def test_the_page_names_every_step_of_the_pipeline(path: Traced) -> None:
    assert missing_steps(functions_of(path), named_functions(PAGE.read_text(encoding="utf-8"))) == []


def test_every_process_is_traced(path: Traced) -> None:
    assert {role for role, functions in path.job.items() if functions} == {"coordinator", "worker", "child"}
    assert {role for role, functions in path.get.items() if functions} == {"coordinator"}


def test_every_file_of_the_pipeline_and_every_leaf_is_on_the_path(path: Traced) -> None:
    """A name that no job passes any more must leave these lists."""
    called = functions_of(path)
    assert PIPELINE - {function.file for function in called} == set()
    leaves = {Function(file, name) for file, names in LEAVES.items() for name in names}
    assert sorted(map(str, leaves - called)) == []


def test_a_page_without_a_step_is_refused(path: Traced) -> None:
    page = PAGE.read_text(encoding="utf-8")
    without = named_functions(page.replace("executors/child.py:SyncChild._run", ""))
    assert missing_steps(functions_of(path), without) == ["executors/child.py:SyncChild._run"]
    without = named_functions(page.replace("coordinator/pace.py:Pace.note", ""))
    assert missing_files(functions_of(path), without) == ["coordinator/pace.py"]
