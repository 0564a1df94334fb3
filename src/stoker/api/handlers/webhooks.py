"""Checks of a submission that concern webhooks, with errors that name the field."""

from collections.abc import Sequence

from stoker.api.problems import invalid_field
from stoker.api.server.locate import join
from stoker.domain.webhooks import WEBHOOK_QUEUE, notify_url
from stoker.webhook_hosts import NotListed, check_url


def check_webhook(queue: str, extras: str | None, hosts: Sequence[str], path: str) -> None:
    """Raise 422 for a `notify_url` whose host is not listed, and for a job in the queue of deliveries, which are signed."""
    if queue == WEBHOOK_QUEUE:
        raise invalid_field(
            join(path, "queue"), f"cannot be {WEBHOOK_QUEUE}, which holds webhooks that are sent"
        )
    url = notify_url(extras)
    if url is not None:
        try:
            check_url(url, hosts)
        except NotListed as error:
            raise invalid_field(join(path, "notify_url"), str(error)) from None
