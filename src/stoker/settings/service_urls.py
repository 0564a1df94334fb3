"""Addresses of PostgreSQL and Redis from their parts, as other systems and the images of both name them. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import quote, urlsplit

_HOST = re.compile(r"[A-Za-z0-9_.-]+|\[?[0-9A-Fa-f:.]+\]?|/[^\x00-\x20]*")


def host(text: str) -> str:
    """A name, an address, or the path of a socket or of its folder. Raises ValueError."""
    if not _HOST.fullmatch(text):
        raise ValueError
    return text.strip("[]")


def port(text: str) -> int:
    """A port, or an address with one: Kubernetes sets `NAME_PORT=tcp://10.0.0.1:5432` for a service of that name."""
    number = urlsplit(text).port if "://" in text else int(text)
    if number is None or not 1 <= number <= 65_535:
        raise ValueError
    return number


def postgres_url(parts: Mapping[str, object]) -> str:
    """Return the URL of a database, with the defaults of the PostgreSQL image: user `postgres`, a database named like
    the user."""
    user = str(parts.get("postgres_user", "postgres"))
    password = parts.get("postgres_password")
    secret = "" if password is None else f":{_quoted(password)}"
    name = _quoted(parts.get("postgres_db", user))
    where = str(parts.get("postgres_host", "127.0.0.1"))
    number = parts.get("postgres_port", 5432)
    if where.startswith("/"):
        return f"postgresql://{_quoted(user)}{secret}@/{name}?host={_quoted(where)}&port={number}"
    return f"postgresql://{_quoted(user)}{secret}@{_bracketed(where)}:{number}/{name}"


def redis_url(parts: Mapping[str, object]) -> str:
    where = str(parts["redis_host"])
    if where.startswith("/"):
        return f"unix://{where}"
    return f"redis://{_bracketed(where)}:{parts.get('redis_port', 6379)}"


def _quoted(text: object) -> str:
    return quote(str(text), safe="")


def _bracketed(where: str) -> str:
    return f"[{where}]" if ":" in where else where
