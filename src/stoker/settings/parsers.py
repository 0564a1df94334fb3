"""How the text of a setting becomes a value. Each parser raises ValueError for what it does not accept."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import msgspec

from stoker import webhook_hosts, worker_endpoints
from stoker.settings import service_urls

NEW_TOKEN = "STOKER_TOKEN=$(python3 -c 'import secrets; print(secrets.token_urlsafe(32))')"  # noqa: S105
_TOKEN_MIN_CHARS = 16
_NAME_MAX_CHARS = 200
POSTGRES_SCHEMES = frozenset({"postgresql", "postgres"})
NUMBERED = re.compile(r"(STOKER_)?(WORKER_([0-9]{1,6})_THREADS)")
WORKERS_MAX = 1000
THREADS_MAX = 1024
_APP = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)


class Parser(NamedTuple):
    """Reads one value from text, and says in words what it accepts."""

    parse: Callable[[str], Any]
    allowed: str
    check: Callable[[Mapping[str, Any]], Any] | None = None
    """Takes pairs that the command line has told apart already, in which any character may stand."""


def _printable(text: str) -> str:
    if len(text) > _NAME_MAX_CHARS or not text.isprintable():
        raise ValueError
    return text


NEW_WEBHOOK_SECRET = (
    'STOKER_WEBHOOK_SECRET=whsec_$(python3 -c "import base64, secrets; '  # noqa: S105
    'print(base64.b64encode(secrets.token_bytes(32)).decode())")'
)
_WEBHOOK_SECRET_BYTES = (24, 64)
"""As Standard Webhooks recommends."""


def _webhook_secret(text: str) -> str:
    fewest, most = _WEBHOOK_SECRET_BYTES
    secret = base64.b64decode(text.removeprefix("whsec_"), validate=True)
    if not fewest <= len(secret) <= most:
        raise ValueError
    return text


def _token(text: str) -> str:
    if len(text) < _TOKEN_MIN_CHARS or not all("!" <= char <= "~" for char in text):
        raise ValueError
    return text


def _http_url(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
        raise ValueError
    parts.port  # noqa: B018 - reading it raises ValueError for a port that is not one
    return text.rstrip("/")


def _origin(text: str) -> str:
    url = _http_url(text)
    if urlsplit(url).path:
        raise ValueError
    return url


def _sqlite_url(text: str) -> str:
    path = text.removeprefix("sqlite:///")
    if path == text or not path or path.startswith(":") or "?" in path or "\0" in unquote(path):
        raise ValueError
    return text


def _database_url(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in POSTGRES_SCHEMES:
        return _sqlite_url(text)
    parts.port  # noqa: B018
    return text


def _redis_url(text: str) -> str:
    """`REDIS_ADDR` is `host:port` in the systems that use it, so the scheme may be missing."""
    url = text if "://" in text else f"redis://{text}"
    parts = urlsplit(url)
    if parts.scheme not in {"redis", "rediss", "unix"} or not (parts.hostname or parts.path):
        raise ValueError
    parts.port  # noqa: B018
    return url


def _app(text: str) -> str:
    if not _APP.fullmatch(text):
        raise ValueError
    return text


def _listed(parse_item: Callable[[str], str]) -> Callable[[str], tuple[str, ...]]:
    def parse(text: str) -> tuple[str, ...]:
        return tuple(parse_item(item.strip()) for item in text.split(",") if item.strip())

    return parse


def _labels(text: str) -> dict[str, str]:
    items = [item.partition("=") for item in _listed(_printable)(text)]
    if not all(equals for _, equals, _ in items):
        raise ValueError
    return _checked_labels({key: value for key, _, value in items})


def _checked_labels(pairs: Mapping[str, str]) -> dict[str, str]:
    labels = {_printable(key.strip()): _printable(value.strip()) for key, value in pairs.items()}
    if "" in labels:
        raise ValueError
    return labels


def _commands(text: str) -> dict[str, tuple[str, ...]]:
    """Types bound to an argv: inline JSON, or the path of a JSON file. Never a shell string."""
    source = text if text.lstrip().startswith("{") else Path(text).read_text(encoding="utf-8")
    return _checked_commands(msgspec.json.decode(source, type=dict[str, tuple[str, ...]]))


def _checked_commands(commands: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    if any(not type or not argv or not argv[0] for type, argv in commands.items()):
        raise ValueError
    return dict(commands)


def _boolean(text: str) -> bool:
    if text.lower() not in _BOOLEANS:
        raise ValueError
    return _BOOLEANS[text.lower()]


_BOOLEANS = {
    "1": True,
    "true": True,
    "yes": True,
    "on": True,
    "0": False,
    "false": False,
    "no": False,
    "off": False,
}


def _sizes(threads: Mapping[str, str]) -> dict[int, int]:
    """`WORKER_1_THREADS=4` and so on, by the number of the worker."""
    sizes = {}
    for variable, text in threads.items():
        match = NUMBERED.fullmatch(variable)
        number, size = int(match[3]) if match else 0, int(text)
        if not 1 <= number <= WORKERS_MAX or not 1 <= size <= THREADS_MAX:
            raise ValueError
        sizes[number] = size
    return dict(sorted(sizes.items()))


def _not_text(text: str) -> Any:
    raise ValueError


BOOLEAN = Parser(_boolean, "1 or 0")
ANY_TEXT = Parser(str, "any text")
HOST = Parser(service_urls.host, "a name, an address, or where its socket is")
PORT = Parser(service_urls.port, "a whole number from 1 to 65535")
SIZES = Parser(
    _not_text,
    f"whole numbers from 1 to {THREADS_MAX}, for workers from 1 to {WORKERS_MAX}",
    _sizes,
)
NAME = Parser(_printable, f"at most {_NAME_MAX_CHARS} printable characters")
NAMES = Parser(_listed(_printable), "names, separated by commas")
LABELS = Parser(_labels, "pairs such as zone=eu,gpu=yes", _checked_labels)
COMMANDS = Parser(
    _commands,
    'a JSON object such as {"thumbnail": ["/usr/bin/convert", "-", "png:-"]}, or the path of a file with one',
    _checked_commands,
)
TOKEN = Parser(
    _token, f"at least {_TOKEN_MIN_CHARS} visible ASCII characters, no spaces; make one: {NEW_TOKEN}"
)
HTTP_URL = Parser(_http_url, "an address such as http://127.0.0.1:8080")
HTTP_URLS = Parser(_listed(_http_url), "addresses such as http://127.0.0.1:8080, separated by commas")
ENDPOINTS = Parser(
    _listed(lambda text: str(worker_endpoints.parse(text))),
    "addresses such as http://10.0.0.5:9000/jobs, separated by commas; no credentials, query, `..` or `%`",
)
WEBHOOK_HOSTS = Parser(
    _listed(webhook_hosts.parse_entry),
    "hosts such as hooks.example.com or *.example.com, addresses or networks, separated by commas",
)
WEBHOOK_SECRET = Parser(
    _webhook_secret, "whsec_ and base64 of 24 to 64 bytes; make one: " + NEW_WEBHOOK_SECRET
)
ORIGINS = Parser(_listed(_origin), "origins such as https://jobs.example.com (no path), separated by commas")
REDIS_URL = Parser(_redis_url, "redis://HOST:PORT/DB, or HOST:PORT")
APP = Parser(_app, "MODULE:NAME, such as tasks:app")
DATABASE_URL = Parser(
    _database_url,
    "sqlite:///relative/path.db, sqlite:////absolute/path.db or postgresql://USER:PASSWORD@HOST:PORT/DATABASE; "
    "a database in memory would lose every job (set STOKER_DATABASE_URL to override a DATABASE_URL meant for "
    "another program)",
)
