"""Dispatch by hand: one claim, without the store's transactions that would ask for it."""

from stoker.coordinator.dispatch import Dispatch
from stoker.store.base import Store


async def dispatch_once(dispatch: Dispatch, store: Store) -> int:
    """Claim for all free capacity and send what was claimed; how many jobs that were."""
    dispatch.look()
    request = dispatch.request()
    if request is None:
        return 0
    granted = await store.claim(request)
    dispatch.granted(granted)
    return sum(len(grant.batch) for grant in granted.grants)
