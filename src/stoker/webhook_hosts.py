"""Which addresses webhooks may go to: the operator's list (`STOKER_WEBHOOK_HOSTS`), and what is on it.

An entry is a host name (`hooks.example.com`), all names under one (`*.example.com`), an address (`10.0.0.5`) or a network
(`10.0.0.0/8`). A name on the list is dialled at a public address only: an address that is private, loopback or otherwise not
public must be listed as an address too, so that a name which is made to point inside reaches nothing there.
"""

import ipaddress
import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple
from urllib.parse import urlsplit

ALLOWED: Final = "a host (hooks.example.com, *.example.com), an address (10.0.0.5) or a network (10.0.0.0/8)"
_NAME: Final = re.compile(
    r"(?:[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
)
_PORTS: Final = {"http": 80, "https": 443}

# What counts as public differs between releases of Python (`is_global`), so the doubtful ones are named here.
_GLOBAL_UNICAST: Final = ipaddress.IPv6Network("2000::/3")
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
_NOT_PUBLIC: Final = (ipaddress.IPv6Network("2002::/16"), ipaddress.IPv6Network("3fff::/20"))
"""6to4, which wraps any IPv4 address, and addresses for documentation."""

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class WebhookTarget(NamedTuple):
    """An address of a webhook in its parts."""

    scheme: str
    host: str
    port: int
    path: str
    """With the query."""


class NotListed(ValueError):
    """The address is none that webhooks may go to; the message is for the submitter."""


def parse_entry(text: str) -> str:
    """An entry of the list in its canonical form. Raises ValueError."""
    entry = text.strip().lower()
    if (network := _network(entry)) is not None:
        return str(network.network_address) if network.num_addresses == 1 else str(network)
    if not _NAME.fullmatch(entry.removeprefix("*.")) or entry == "*":
        raise ValueError(f"must be {ALLOWED}")
    return entry


def parse_url(url: str) -> WebhookTarget:
    """Read the address of a webhook. Raises `NotListed` for what two readers might understand differently."""
    if not url.isascii() or not url.isprintable() or any(char in url for char in ' \\@#"<>'):
        raise NotListed("must be a plain http or https address, without credentials and fragment")
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").rstrip("."), parts.port
    except ValueError:
        raise NotListed("is no address that can be read") from None
    if parts.scheme not in _PORTS or port == 0 or not (_address(host) or _NAME.fullmatch(host)):
        raise NotListed("must be an http or https address with a host name or an IP address")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return WebhookTarget(parts.scheme, host, port or _PORTS[parts.scheme], path)


def check_url(url: str, listed: Sequence[str]) -> WebhookTarget:
    """Return the parts of an address whose host is on the list. Raises `NotListed`."""
    target = parse_url(url)
    if not listed:
        raise NotListed("cannot be used: webhooks are off until STOKER_WEBHOOK_HOSTS lists where they may go")
    address = _address(target.host)
    on_the_list = _lists_name(target.host, listed) if address is None else _lists_address(address, listed)
    if not on_the_list:
        raise NotListed(f"names the host {target.host}, which is not in STOKER_WEBHOOK_HOSTS")
    return target


def may_dial(text: str, listed: Sequence[str]) -> bool:
    """Return whether a resolved address may be dialled: a public one, or one that is listed as an address."""
    address = _address(text)
    if address is None:
        return False
    if _lists_address(address, listed):
        return True
    if isinstance(address, ipaddress.IPv6Address):
        if (inner := _ipv4_inside(address)) is not None:
            return may_dial(str(inner), listed)
        if address not in _GLOBAL_UNICAST or any(address in network for network in _NOT_PUBLIC):
            return False
    return address.is_global and not address.is_multicast


def _ipv4_inside(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """Return the IPv4 address that a packet to this one would reach: it is mapped, or translated by a NAT64 gateway."""
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    return address.ipv4_mapped


def _lists_name(host: str, listed: Iterable[str]) -> bool:
    return any(
        host.endswith(entry[1:]) if entry.startswith("*.") else host == entry
        for entry in listed
        if _network(entry) is None
    )


def _lists_address(address: Address, listed: Iterable[str]) -> bool:
    networks = [network for entry in listed if (network := _network(entry)) is not None]
    return any(address.version == network.version and address in network for network in networks)


def _address(text: str) -> Address | None:
    try:
        return ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None
