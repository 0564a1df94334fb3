"""Reads the settings from the command line and the environment, and checks them."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, NamedTuple, get_args, get_origin

from stoker.access import Access
from stoker.settings import service_urls
from stoker.settings.checks import disagreements, unknown
from stoker.settings.parsers import NUMBERED, SIZES
from stoker.settings.table import PREFIX, SettingEntry, Settings, allowed, shown, table


class SettingsError(Exception):
    """The settings cannot be used; `problems` has one line for each reason."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


def load(environ: Mapping[str, str], overrides: Mapping[str, object] | None = None) -> Settings:
    """Read and check everything. `overrides` are by field name; `None` means not given.

    Raises `SettingsError` with every problem found.
    """
    values, sources, problems = _read(table(), environ, overrides or {})
    _join_parts(values, sources, problems)
    _derive(values)
    _number_workers(values, sources)
    found = [*problems.values(), *disagreements(values, broken=set(problems))]
    if found:
        raise SettingsError(found)
    return Settings(**values, sources=sources, warnings=tuple(unknown(environ)))


class ClientTarget(NamedTuple):
    """The address of the API and the token of a client."""

    url: str
    token: str | None


def client_target(
    environ: Mapping[str, str],
    url: str | None = None,
    token: str | None = None,
    given: Access = Access(),  # noqa: B008 - it is frozen
) -> ClientTarget:
    """Return the address and token for a client. Settings that concern servers alone are not checked.

    `given` is what a worker gave the process of a task; it is used where neither argument nor environment says anything.
    """
    entries = [entry for entry in table() if entry.field in {"api_port", "api_url", "token"}]
    values, _, problems = _read(entries, environ, {"api_url": url, "token": token})
    if given.url is not None and not {"api_url", "api_port"} & {*values, *problems}:
        values["api_url"] = given.url
    if given.token is not None and not {"token"} & {*values, *problems}:
        values["token"] = given.token
    _derive(values)
    if problems:
        raise SettingsError(problems.values())
    return ClientTarget(values.get("api_url", Settings().api_url), values.get("token"))


def without_secrets(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for a process that runs jobs: without the token and the addresses of Stoker's own stores.

    A name without the prefix is left where the prefixed one is set to something else: then it is not read as a setting,
    and belongs to another program. So are the parts of an address (`POSTGRES_HOST` and so on) where that is set.
    """
    kept = dict(environ)
    told = {entry.field for entry in table() if any(environ.get(variable) for variable in entry.variables)}
    for entry in table():
        if entry.rule.part_of in told:
            for name in entry.variables:
                if name.startswith(PREFIX):
                    kept.pop(name, None)
        elif entry.rule.secret or entry.rule.kept_from_jobs:
            prefixed = {kept.pop(name, "") for name in entry.variables if name.startswith(PREFIX)} - {""}
            for name in entry.variables:
                if not prefixed or kept.get(name) in prefixed:
                    kept.pop(name, None)
    return kept


def _read(
    entries: Iterable[SettingEntry], environ: Mapping[str, str], overrides: Mapping[str, object]
) -> tuple[dict[str, Any], dict[str, str], dict[str, str]]:
    """Return three maps by field: the values that were given and are valid, their sources, and the problems of others."""
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    problems: dict[str, str] = {}
    for entry in entries:
        found = _find(entry, environ, overrides)
        if found is None:
            continue
        source, raw = found
        try:
            values[entry.field] = _parse(entry, raw)
            sources[entry.field] = source
        except ValueError:
            problems[entry.field] = f"{_given(entry, source, raw)}: must be {allowed(entry)}"
        except OSError as error:
            reason = error.strerror or str(error)
            problems[entry.field] = f"{_given(entry, source, raw)}: {reason}; must be {allowed(entry)}"
    return values, sources, problems


def _find(
    entry: SettingEntry, environ: Mapping[str, str], overrides: Mapping[str, object]
) -> tuple[str, object] | None:
    override = overrides.get(entry.field)
    if override is not None:
        return "the command line", override
    if entry.rule.parser is SIZES:
        return _find_numbered(environ)
    for variable in entry.variables:
        if environ.get(variable):
            return variable, environ[variable]
    return None


def _find_numbered(environ: Mapping[str, str]) -> tuple[str, object] | None:
    """`WORKER_1_THREADS` and its like, by the name that counts: the prefixed one wins."""
    found: dict[str, str] = {}
    for name in sorted(environ, key=lambda name: name.startswith(PREFIX)):
        match = NUMBERED.fullmatch(name)
        if match and environ[name]:
            found[match[2]] = environ[name]
    return (", ".join(sorted(found)), found) if found else None


def _given(entry: SettingEntry, source: str, raw: object) -> str:
    value = shown(entry, _as_text(raw))
    if entry.rule.parser is SIZES:
        return value
    if source == "the command line":
        return f"{entry.name}={value} (from the command line)"
    return f"{source}={value}"


def _parse(entry: SettingEntry, raw: object) -> Any:
    """Return one value, checked; raises ValueError. Values from the command line may already have their type."""
    parser = entry.rule.parser
    if parser is not None:
        if parser.check is not None and isinstance(raw, Mapping):
            return parser.check(raw)
        return parser.parse(_as_text(raw))
    text = str(raw).strip()
    if get_origin(entry.type) is Literal:
        choice = entry.rule.synonyms.get(text.lower(), text.lower())
        if choice not in get_args(entry.type):
            raise ValueError
        return choice
    return _number(entry, text)


def _as_text(raw: object) -> str:
    """Lists from the command line are joined, so that one parser judges both sources; pairs only to show them."""
    if isinstance(raw, Mapping):
        return ",".join(f"{key}={_words(value)}" for key, value in raw.items())
    if isinstance(raw, (list, tuple)):
        return ",".join(str(item) for item in raw)
    return str(raw)


def _words(value: object) -> str:
    return shlex.join(value) if isinstance(value, tuple) else str(value)


def _number(entry: SettingEntry, text: str) -> int | float:
    number: int | float = int(text) if entry.type is int else float(text)
    rule = entry.rule
    if not math.isfinite(number):
        raise ValueError
    if rule.ge is not None and number < rule.ge:
        raise ValueError
    if rule.gt is not None and number <= rule.gt:
        raise ValueError
    if rule.le is not None and number > rule.le:
        raise ValueError
    return number


def _derive(values: dict[str, Any]) -> None:
    """A changed port moves the address at which clients look, unless they were told another."""
    if values.get("api_port") and "api_url" not in values:
        values["api_url"] = f"http://127.0.0.1:{values['api_port']}"


_JOINED: dict[str, Callable[[Mapping[str, object]], str]] = {
    "database_url": service_urls.postgres_url,
    "redis_url": service_urls.redis_url,
}
_PORTS = frozenset({"postgres_port", "redis_port"})
"""They say nothing alone; Kubernetes sets them wherever there is a service called `postgres` or `redis`."""


def _join_parts(values: dict[str, Any], sources: dict[str, str], problems: dict[str, str]) -> None:
    """Make the addresses that are not set from their parts. Parts that are not used may hold anything."""
    for url, join in _JOINED.items():
        parts = [entry.field for entry in table() if entry.rule.part_of == url]
        given = [part for part in parts if part in values or part in problems]
        if url in values or url in problems or _PORTS.issuperset(given):
            for part in given:
                for found in (values, sources, problems):
                    found.pop(part, None)
        elif not any(part in problems for part in given):
            values[url] = join(values)
            sources[url] = ", ".join(sources[part] for part in given)


def _number_workers(values: dict[str, Any], sources: dict[str, str]) -> None:
    """Workers with sizes of their own are as many as the highest number, unless another is asked for."""
    sizes = values.get("worker_n_threads")
    if not sizes:
        return
    if "workers" not in values:
        values["workers"] = max(sizes)
        sources["workers"] = sources["worker_n_threads"]
    if sources.get("worker_threads") == "the command line":
        values["worker_n_threads"] = {}
