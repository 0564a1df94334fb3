"""Changing a job while it waits: `job.update(priority=0)`."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, TypedDict

import msgspec

from stoker.client.errors import ArgumentError
from stoker.client.options import meant
from stoker.client.requests import ApiRequest, JobInfo, job_path, moment
from stoker.domain import json_text
from stoker.domain.json_values import to_json


class EditFields(TypedDict, total=False):
    """The fields of a waiting job that can be changed. None clears a field."""

    priority: int | None
    run_at: datetime | str | None
    queue: str | None
    payload: Any
    max_attempts: int | None
    timeout_sec: float | None
    metadata: dict[str, str] | None


FIELDS: Final = tuple(EditFields.__annotations__)


def edit(job_id: str, changes: EditFields, answer: Any = JobInfo) -> ApiRequest:
    """Return the request that changes a job. Raises `ArgumentError` for a field that cannot be changed."""
    given: dict[str, Any] = dict(changes)
    for name in given:
        if name not in FIELDS:
            raise ArgumentError(f"job.update cannot change {name!r}{meant(name, FIELDS)}", name)
    if not given:
        raise ArgumentError(f"job.update needs something to change: {', '.join(FIELDS)}")
    if given.get("run_at") is not None:
        given["run_at"] = moment(given["run_at"], "run_at")
    if "payload" in given and not isinstance(given["payload"], msgspec.Raw):
        try:
            given["payload"] = msgspec.Raw(json_text.encode(given["payload"], to_json))
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise ArgumentError(f"the payload cannot be sent as JSON: {error}", "payload") from None
    return ApiRequest(
        method="PATCH", path=job_path(job_id), body=msgspec.json.encode(given), answer=answer, repeatable=True
    )
