"""Where webhooks may go: the operator's list, names and addresses."""

import pytest

from stoker.webhook_hosts import NotListed, WebhookTarget, check_url, may_dial, parse_entry

LISTED = ("hooks.example.com", "*.partner.example", "10.1.0.0/16", "192.0.2.7", "::1")


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("https://hooks.example.com/a?b=c", WebhookTarget("https", "hooks.example.com", 443, "/a?b=c")),
        ("http://HOOKS.example.com.:8080", WebhookTarget("http", "hooks.example.com", 8080, "/")),
        ("https://eu.partner.example/", WebhookTarget("https", "eu.partner.example", 443, "/")),
        ("http://10.1.2.3/", WebhookTarget("http", "10.1.2.3", 80, "/")),
        ("http://[::1]:9000/x", WebhookTarget("http", "::1", 9000, "/x")),
    ],
)
def test_listed_hosts_and_addresses_are_taken(url: str, target: WebhookTarget) -> None:
    assert check_url(url, LISTED) == target


@pytest.mark.parametrize(
    "url",
    [
        "https://example.com/",
        "https://hooks.example.com.evil.example/",
        "https://partner.example/",
        "https://evilpartner.example/",
        "http://127.0.0.1/",
        "http://10.2.0.1/",
        "http://2130706433/",
        "http://localhost/",
        "https://hooks.example.com@127.0.0.1/",
        "https://hooks.example.com\\@127.0.0.1/",
        "https://hooks.example.com/#x",
        "https://hooks.example.com:0/",
        "https://hooks.example.com:99999/",
        "ftp://hooks.example.com/",
        "https:///x",
        "http://[::ffff:127.0.0.1]/",
    ],
)
def test_everything_else_is_refused(url: str) -> None:
    with pytest.raises(NotListed):
        check_url(url, LISTED)


def test_without_a_list_webhooks_are_off() -> None:
    with pytest.raises(NotListed, match="STOKER_WEBHOOK_HOSTS"):
        check_url("https://hooks.example.com/", ())


@pytest.mark.parametrize(
    ("address", "allowed"),
    [
        ("93.184.216.34", True),
        ("2606:2800:220:1:248:1893:25c8:1946", True),
        ("127.0.0.1", False),
        ("10.2.0.1", False),
        ("169.254.169.254", False),
        ("100.64.0.1", False),
        ("0.0.0.0", False),
        ("224.0.0.1", False),
        ("fe80::1%eth0", False),
        ("fd00::1", False),
        ("::ffff:127.0.0.1", False),
        ("::ffff:93.184.216.34", True),
        ("::ffff:10.1.9.9", True),
        ("::127.0.0.1", False),
        ("64:ff9b::7f00:1", False),
        ("64:ff9b::5db8:d822", True),
        ("64:ff9b:1::a00:1", False),
        ("2002:7f00:1::", False),
        ("2001:0:7f00:1::", False),
        ("3fff::1", False),
        ("fec0::1", False),
        ("ff0e::1", False),
        ("10.1.9.9", True),
        ("192.0.2.7", True),
        ("::1", True),
        ("nonsense", False),
    ],
)
def test_addresses_that_are_not_public_must_be_listed(address: str, allowed: bool) -> None:
    assert may_dial(address, LISTED) is allowed


@pytest.mark.parametrize("text", ["", "*", "*.", "http://x", "a b", "ex ample.com", "x/24x", "-a.com"])
def test_entries_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be"):
        parse_entry(text)


def test_entries_are_kept_in_one_form() -> None:
    assert [parse_entry(text) for text in ("Hooks.Example.com", "10.0.0.0/8", "10.0.0.5/32", "*.X.io")] == [
        "hooks.example.com",
        "10.0.0.0/8",
        "10.0.0.5",
        "*.x.io",
    ]
