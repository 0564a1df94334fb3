"""Free text in a filter: which types and which kinds of failures it is a part of.

The store looks for text at the beginning of ids and in names. Types are few and stand in the counters, and failures are
grouped by fingerprint, so both are matched here, against one sample of each kind: the errors of millions of jobs are never
read. What differs from job to job (numbers, ids, paths, quoted text) is no part of a kind and is not found: a search must
not match more than was typed.
"""

from functools import lru_cache
from typing import Final

from msgspec.structs import replace

from stoker.domain.fingerprint import describe
from stoker.store.base import Store
from stoker.store.reads import FailureSample, JobFilter

MAX_KINDS: Final = 2_000
"""How many kinds of failures are looked at."""


async def with_text(store: Store, filter: JobFilter) -> JobFilter:
    """Return the filter with the types and failures that its text is a part of; the same one when it has no text."""
    if filter.text is None:
        return filter
    text = filter.text.casefold()
    types = {count.type for count in await store.counts()}
    samples = await store.failure_samples(MAX_KINDS)
    return replace(
        filter,
        text_types=tuple(sorted(type for type in types if text in type.casefold())),
        text_failures=tuple(sample.fingerprint for sample in samples if is_in_failure(text, sample)),
    )


def is_in_failure(text: str, sample: FailureSample) -> bool:
    """Return whether folded text is a part of what all failures of a kind have in common."""
    return any(text in part for part in _parts(sample))


@lru_cache(maxsize=MAX_KINDS)
def _parts(sample: FailureSample) -> tuple[str, str]:
    """Type and message of the error, and the place, folded. Remembered: a list that is watched asks every second."""
    failure = describe(sample.type, sample.error)
    return f"{failure.error_type}: {failure.message}".casefold(), (failure.frame or "").casefold()
