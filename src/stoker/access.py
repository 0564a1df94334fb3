"""How a task submits jobs of its own: the address and the token that its worker handed it.

Neither is in the environment of a child process, where every program that a task starts could read them. The worker sends
them over the child's pipe before the user's app is imported, and the SDK asks here for what the environment does not
say.
"""

import msgspec


class Access(msgspec.Struct, array_like=True, frozen=True, tag="a"):
    """Where the API is and how to be let in; None where the worker has nothing to say."""

    url: str | None = None
    token: str | None = None


_given = Access()


def give(access: Access) -> None:
    """Called once by the executor."""
    global _given
    _given = access


def given() -> Access:
    """Return what the worker gave this process; outside of a worker's child that is nothing."""
    return _given
