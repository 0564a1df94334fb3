"""The Django project of `tests/django_project`, set up in this process, with a database of its own."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def orders_database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Set Django up once: it can be configured once in a process. Return the SQLite file that its models are in."""
    path = tmp_path_factory.mktemp("orders") / "orders.db"
    os.environ["ORDERS_DATABASE"] = str(path)
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.django_project.settings"
    zone = os.environ.get("TZ")
    import django

    django.setup()
    _put_time_zone_back(zone)  # Django sets TZ for its whole process
    from django.db import connection

    from tests.django_project.orders.models import Note

    with connection.schema_editor() as editor:
        editor.create_model(Note)
    connection.close()
    yield path
    del os.environ["ORDERS_DATABASE"], os.environ["DJANGO_SETTINGS_MODULE"]


def _put_time_zone_back(zone: str | None) -> None:
    if zone is None:
        os.environ.pop("TZ", None)
    else:
        os.environ["TZ"] = zone
    time.tzset()


@pytest.fixture
def orders(orders_database: Path) -> Iterator[None]:
    """The project, without notes."""
    from django.db import connection

    from tests.django_project.orders.models import Note

    Note.objects.all().delete()
    yield
    connection.close()
