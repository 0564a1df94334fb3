"""Ids in submissions: their check, and the digests that stand beside them in the store.

The digest of a payload is that of its bytes, which is cheap. So a request that was written in other words (spaces, the order
of names) does not match at first; only then is it compared by what it means (`in_its_words`).
"""

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from stoker.api.handlers.idempotency import asked_for, canonical
from stoker.api.problems import RequestProblem, from_domain, invalid_field
from stoker.api.server.locate import join
from stoker.coordinator.jobs import JobService
from stoker.domain import client_ids
from stoker.domain.errors import IdMismatch, JobPruned, MissingError
from stoker.domain.job import JobSpec


def check_id(spec: JobSpec, now: int, path: str = "") -> None:
    """Raises 422 for an id that is no UUIDv7, or whose time is too far ahead."""
    if spec.id is None:
        return
    if not client_ids.are_well_formed((spec.id,)):
        raise invalid_field(join(path, "id"), client_ids.WORDS)
    if spec.id >= client_ids.end_of_ids(now):
        raise invalid_field(join(path, "id"), client_ids.TOO_FAR)


def check_ids(specs: Sequence[JobSpec], now: int) -> None:
    """The same for the jobs of a batch."""
    ids = [spec.id for spec in specs if spec.id is not None]
    if ids and not (client_ids.are_well_formed(ids) and max(ids) < client_ids.end_of_ids(now)):
        for index, spec in enumerate(specs):
            check_id(spec, now, f"jobs[{index}]")


def digests_of(alike: Sequence[JobSpec], payloads: Sequence[bytes]) -> list[bytes] | None:
    """Return the digests of jobs that ask for the same, payloads aside; None where the server makes their ids."""
    return None if alike[0].id is None else client_ids.digests(asked_for(alike[0]), payloads)


async def in_its_words(jobs: JobService, specs: Sequence[JobSpec]) -> list[JobSpec] | None:
    """Return the specs with the payloads of those jobs that they repeat in other words; None when there is no such job."""
    told = [await _in_its_words(jobs, spec) for spec in specs]
    return None if all(new is old for new, old in zip(told, specs, strict=True)) else told


async def _in_its_words(jobs: JobService, spec: JobSpec) -> JobSpec:
    if spec.id is None:
        return spec
    try:
        job = await jobs.get(spec.id)
    except MissingError:
        return spec
    given = bytes(spec.payload)
    if given == job.payload or client_ids.digests(asked_for(spec), (job.payload,)) != [job.digest]:
        return spec
    same = canonical(given) == canonical(job.payload)
    return replace(spec, payload=msgspec.Raw(job.payload)) if same else spec


def at_place(error: IdMismatch | JobPruned, specs: Sequence[JobSpec]) -> RequestProblem:
    """Return the problem of a batch, which names the job that is the reason: the last with this id."""
    places = [index for index, spec in enumerate(specs) if spec.id == error.job_id]
    return from_domain(error, field=f"jobs[{places[-1]}].id") if places else from_domain(error)
