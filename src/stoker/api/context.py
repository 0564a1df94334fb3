"""What all requests of one app share."""

from stoker.api.limits import SubmissionLimiter
from stoker.api.security import Guard
from stoker.api.service import Service
from stoker.ids import NewId
from stoker.settings import Settings


class Context:
    """The coordinator behind the API, and what is derived once from its settings."""

    __slots__ = ("guard", "limiter", "new_id", "openapi", "service", "settings")

    def __init__(
        self, service: Service, *, guard: Guard, limiter: SubmissionLimiter | None, new_id: NewId
    ) -> None:
        self.service = service
        self.settings: Settings = service.settings
        self.guard = guard
        self.limiter = limiter
        self.new_id = new_id
        self.openapi: bytes = b""
        """The document is made from the endpoint table, which handlers cannot import: it imports them."""
