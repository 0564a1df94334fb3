"""The tasks of `chaos_app` in a child as it once was: a forked copy keeps the pipe and the shared state, and comes
back to work.

It stands in the workers' folder under the name `planted_forks`.
"""

from chaos_app import app  # type: ignore[import-not-found]

from stoker.executors.supervisor_line import SupervisorLine

__all__ = ["app"]

SupervisorLine._after_fork = lambda self: None  # type: ignore[method-assign]
SupervisorLine.check_owner = lambda self: None  # type: ignore[method-assign]
