"""Every setting of every process, declared once.

A setting is one field of `Settings` (`table.py`): its type, its default, its rule and the text that explains it. The loader
(`loading.py`), the error messages and `docs/reference/settings.md` (`python -m stoker.settings`) are all made from that
declaration, so they cannot disagree. `parsers.py` turns texts into values; `checks.py` compares settings with each other.

Where a value comes from, first match wins:

1. the command line (`overrides`),
2. the environment, as `STOKER_<NAME>`,
3. for the names that other systems already use, the environment as plain `<NAME>`,
4. for the addresses of PostgreSQL and Redis, their parts (`POSTGRES_HOST` and so on),
5. the default.

A variable that is set but empty counts as not set, because that is what `NAME=${NAME:-}` in a compose file
means. A wrong value never falls back to the default: `load` raises `SettingsError`, which lists all problems,
since meeting them one start at a time is a waste of a person's morning.
"""

from stoker.settings.checks import is_loopback
from stoker.settings.loading import ClientTarget, SettingsError, client_target, load, without_secrets
from stoker.settings.table import Settings, masked

__all__ = [
    "ClientTarget",
    "Settings",
    "SettingsError",
    "client_target",
    "is_loopback",
    "load",
    "masked",
    "without_secrets",
]
