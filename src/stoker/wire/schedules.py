"""A schedule as it travels: in the body of `PUT /schedules/{name}`, and in the hello of a worker whose app declares it."""

from typing import Annotated

import msgspec

from stoker.domain.schedule import (
    GRACE_SEC,
    MAX_CATCH_UP,
    MAX_CATCH_UP_SEC,
    MAX_JITTER_SEC,
    Overlap,
    ScheduleName,
)


class ScheduleFields(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """When a schedule ticks, and what its ticks may do; see `stoker.domain.schedule`. Exactly one of `cron` and
    `every_sec` is given."""

    cron: str | None = None
    every_sec: float | None = None
    timezone: str = "UTC"
    overlap: Overlap = "allow"
    catch_up_sec: Annotated[float, msgspec.Meta(ge=0, le=MAX_CATCH_UP_SEC)] = GRACE_SEC
    catch_up_max: Annotated[int, msgspec.Meta(ge=1, le=MAX_CATCH_UP)] = 1
    jitter_sec: Annotated[float, msgspec.Meta(ge=0, le=MAX_JITTER_SEC)] = 0
    start_at: str | None = None
    end_at: str | None = None
    pause_after_failures: Annotated[int, msgspec.Meta(ge=1, le=100)] | None = None


class DeclaredSchedule(ScheduleFields, frozen=True, kw_only=True, omit_defaults=True):
    """A schedule of an app's code. `job` is the JSON of what to submit."""

    name: ScheduleName
    job: bytes
