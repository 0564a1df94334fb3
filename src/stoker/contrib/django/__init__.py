"""Run the tasks of a Django project with Stoker: `docs/howto/django.md`.

    TASKS = {"default": {"BACKEND": "stoker.contrib.django.StokerBackend", "OPTIONS": {"url": "http://127.0.0.1:8080"}}}

    DJANGO_SETTINGS_MODULE=mysite.settings stoker worker --app stoker.contrib.django:app

- `backend` turns a Django task into a job, and `results` a job into a Django `TaskResult`;
- `running` is the app of the worker: job types that find a Django task by its path and call it;
- `tasks_api` has Django's own names, from Django 6 or from the package django-tasks.

Both names load on first use: settings are read while they are not complete, and `app` calls `django.setup()`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stoker.client.app import Stoker
    from stoker.contrib.django.backend import StokerBackend

    app: Stoker

__all__ = ["StokerBackend", "app"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found = _app() if name == "app" else _backend()
    return found


def _backend() -> type[StokerBackend]:
    from stoker.contrib.django.backend import StokerBackend

    return StokerBackend


def _app() -> Stoker:
    """Return the app of the first Stoker backend in the settings of the project."""
    import django
    from django.apps import apps

    if not apps.ready:
        django.setup()
    from stoker.contrib.django.backend import first_backend

    return first_backend().app
