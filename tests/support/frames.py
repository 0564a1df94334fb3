"""What frames hold, whether it travels one by one or in batches."""

from msgspec.structs import astuple

from stoker.wire.frames import Assign, ClaimRef, Report, Reports


def reported(frame: Reports) -> list[Report]:
    """Every report in it, those that completed first."""
    rows = [] if frame.done is None else zip(*astuple(frame.done), strict=True)
    done = [Report(id, claim, "completed", result, None, *rest) for id, claim, result, *rest in rows]
    return done + frame.reports


def assigned(frame: Assign) -> list[ClaimRef]:
    """Every claim in it, in the order in which it should run."""
    jobs = [ClaimRef(job.id, job.claim_id) for job in frame.jobs]
    return jobs + [ClaimRef(id, batch.template.claim_id) for batch in frame.batches for id in batch.ids]
