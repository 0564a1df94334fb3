"""The house rule of P3: a statement that writes how an attempt went names the claim of that attempt.

Completions are judged by the statement alone, and the conformance tests fail when its fence is gone. Other ends are judged
before, on a row that is locked, so nothing that a test does from outside shows whether the statement has a fence as well.
"""

import re
from collections.abc import Mapping

import pytest

from stoker.store.postgres.rows import Q as POSTGRES
from stoker.store.sqlite.rows import Q as SQLITE

FENCED = [
    (SQLITE, "complete_jobs"),
    (SQLITE, "end_attempt"),
    (SQLITE, "start_job"),
    (POSTGRES, "complete_jobs"),
    (POSTGRES, "requeue_jobs"),
    (POSTGRES, "delete_jobs"),
    (POSTGRES, "start_jobs"),
]


@pytest.mark.parametrize(("queries", "name"), FENCED)
def test_a_statement_that_writes_how_an_attempt_went_names_its_claim(
    queries: Mapping[str, str], name: str
) -> None:
    conditions = queries[name].partition("WHERE")[2]
    assert re.search(r"\bclaim_id = (v\.|\?)", conditions)
