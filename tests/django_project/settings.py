"""The settings of a small Django project whose tasks Stoker runs."""

import os
from importlib.util import find_spec
from typing import Any

SECRET_KEY = "only for tests"
USE_TZ = True
TIME_ZONE = "UTC"
LOGGING_CONFIG = None
INSTALLED_APPS = ["tests.django_project.orders"]
if find_spec("django.tasks") is None:
    INSTALLED_APPS.append("django_tasks")
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES: dict[str, Any] = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ["ORDERS_DATABASE"],
        "OPTIONS": {"timeout": 20},
    }
}
TASKS: dict[str, Any] = {
    "default": {"BACKEND": "stoker.contrib.django.StokerBackend", "QUEUES": ["default", "mail"]},
}
