"""What all requests of one app share."""

from stoker.api.server.limits import SubmissionLimiter
from stoker.api.server.security import Guard
from stoker.coordinator.services import Services
from stoker.ids import NewId


class Context(Services):
    """The services of the coordinator behind the API, and what is derived once from its settings."""

    def __init__(
        self, services: Services, *, guard: Guard, limiter: SubmissionLimiter | None, new_id: NewId
    ) -> None:
        for name in Services.__annotations__:
            setattr(self, name, getattr(services, name))
        self.guard = guard
        self.limiter = limiter
        self.new_id = new_id
        self.openapi: bytes = b""
        """The document is made from the endpoint table, which handlers cannot import: it imports them."""
