"""Settings: where values come from, what is refused, and that the reference page tells the truth."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from stoker.access import Access
from stoker.settings import (
    Settings,
    SettingsError,
    client_target,
    is_loopback,
    load,
    parsers,
    without_secrets,
)
from stoker.settings.reference import reference
from stoker.settings.table import Rule, SettingEntry, available_cpus, table

ROOT = Path(__file__).parents[2]
TOKEN = "a-token-that-is-long-enough"

BARE_NAMES = {
    "API_PORT", "API_URL", "DATABASE_URL", "REDIS_URL", "WORKER_ENDPOINT", "EXECUTION_BINARY", "WORKER_IMAGE",
    "PRIORITY_ORDER", "IDEMPOTENCY_TTL_SEC", "RATE_LIMIT_JOBS_PER_MIN", "WORKER_HEARTBEAT_TIMEOUT_SEC",
    "QUEUE_THRESHOLD_HIGH", "QUEUE_THRESHOLD_LOW", "SCALE_DOWN_STABLE_SEC", "MIN_WORKERS", "MAX_WORKERS",
    "POSTGRES_HOST", "POSTGRES_PORT", "POSTGRES_USER", "POSTGRES_PASSWORD", "POSTGRES_DB", "REDIS_HOST", "REDIS_PORT",
    "WORKER_N_THREADS", "METRICS_ALIASES",
}  # fmt: skip


def problems(environ: dict[str, str], overrides: dict[str, object] | None = None) -> tuple[str, ...]:
    with pytest.raises(SettingsError) as caught:
        load(environ, overrides)
    return caught.value.problems


def test_defaults_are_valid_and_are_those_of_the_struct() -> None:
    assert load({}) == Settings()


def test_every_default_passes_its_own_rule() -> None:
    environ = {
        f"STOKER_{entry.field.upper()}": str(entry.default)
        for entry in table()
        if entry.default not in (None, (), {})
    }
    loaded = load(environ)
    for entry in table():
        assert getattr(loaded, entry.field) == entry.default


def test_the_promised_names_are_read_without_prefix_and_no_others() -> None:
    assert {entry.name for entry in table() if entry.rule.bare} == BARE_NAMES
    assert load({"MAX_ATTEMPTS": "9"}).max_attempts == 4


def test_prefixed_wins_over_bare_and_the_command_line_over_both() -> None:
    environ = {"API_PORT": "1000", "STOKER_API_PORT": "2000"}
    assert load({"API_PORT": "1000"}).api_port == 1000
    assert load(environ).api_port == 2000
    assert load(environ, {"api_port": 3000}).api_port == 3000
    assert load(environ, {"api_port": None}).api_port == 2000


def test_sources_say_where_a_value_came_from() -> None:
    loaded = load({"DATABASE_URL": "sqlite:///a.db"}, {"api_port": 1})
    assert loaded.sources == {"database_url": "DATABASE_URL", "api_port": "the command line"}


def test_an_empty_variable_counts_as_not_set() -> None:
    assert load({"STOKER_TOKEN": "", "STOKER_API_PORT": "", "API_PORT": "9000"}).api_port == 9000


def test_all_problems_come_at_once_each_naming_variable_value_and_what_is_allowed() -> None:
    found = problems(
        {
            "STOKER_API_PORT": "abc",
            "RATE_LIMIT_JOBS_PER_MIN": "-1",
            "STOKER_PLACEMENT": "random",
            "MIN_WORKERS": "5",
            "MAX_WORKERS": "2",
        }
    )
    assert found[0] == "STOKER_API_PORT=abc: must be a whole number from 0 to 65535"
    assert "RATE_LIMIT_JOBS_PER_MIN=-1: must be a whole number, at least 0" in found
    assert "STOKER_PLACEMENT=random: must be round_robin or least_loaded or least_recently_used" in found
    assert any(line.startswith("MIN_WORKERS=5 and MAX_WORKERS=2 disagree:") for line in found)
    assert len(found) == 4
    assert all("\n" not in line for line in found)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("STOKER_API_PORT", "65536"),
        ("STOKER_API_PORT", "80.5"),
        ("STOKER_API_URL", "127.0.0.1:8080"),
        ("STOKER_API_URL", "ftp://example.com"),
        ("STOKER_API_URL", "http://example.com:99999"),
        ("STOKER_API_URL", "http://example.com/?a=b"),
        ("STOKER_MAX_ATTEMPTS", "0"),
        ("STOKER_MAX_ATTEMPTS", "101"),
        ("STOKER_RETRY_JITTER", "1.5"),
        ("STOKER_RETRY_JITTER", "nan"),
        ("STOKER_RETRY_BACKOFF_CAP_SEC", "inf"),
        ("WORKER_HEARTBEAT_TIMEOUT_SEC", "0"),
        ("WORKER_HEARTBEAT_TIMEOUT_SEC", "0.001"),
        ("STOKER_WORKER_LABELS", "gpu"),
        ("STOKER_WORKER_LABELS", "=yes"),
        ("STOKER_WORKER_NAME", "x" * 201),
        ("STOKER_WORKER_URLS", "http://a:1,b:2"),
        ("STOKER_ALLOWED_ORIGINS", "https://a.example/path"),
        ("STOKER_ALLOWED_ORIGINS", "*"),
        ("STOKER_APP", "tasks.app"),
        ("STOKER_APP", "../tasks:app"),
        ("STOKER_DATABASE_URL", "postgresql://localhost:port/stoker"),
        ("STOKER_DATABASE_URL", "sqlite://"),
        ("STOKER_DATABASE_URL", "sqlite:///"),
        ("STOKER_DATABASE_URL", "sqlite:///:memory:"),
        ("STOKER_DATABASE_URL", "sqlite:///a.db?mode=ro"),
        ("STOKER_REDIS_URL", "http://localhost"),
        ("STOKER_LOG_LEVEL", "loud"),
        ("STOKER_WORKER_THREADS", "0"),
    ],
)
def test_refused_values_are_named(variable: str, value: str) -> None:
    (problem,) = problems({variable: value})
    assert problem.startswith(f"{variable}={value[:120]}")
    assert ": must be " in problem


def test_control_characters_are_shown_escaped_on_one_line() -> None:
    assert problems({"STOKER_WORKER_NAME": "a\nb\x1b[0m"}) == (
        "STOKER_WORKER_NAME=a\\nb\\x1b[0m: must be at most 200 printable characters",
    )


def test_the_command_line_is_named_as_the_source() -> None:
    assert problems({}, {"workers": -1}) == (
        "STOKER_WORKERS=-1 (from the command line): must be a whole number from 0 to 1000",
    )


def test_another_database_is_refused_with_a_way_out_and_without_its_password() -> None:
    (problem,) = problems({"DATABASE_URL": "mysql://me:hush@db/jobs"})
    assert "postgresql://" in problem
    assert "STOKER_DATABASE_URL" in problem
    assert "hush" not in problem


@pytest.mark.parametrize(
    ("environ", "first", "second"),
    [
        ({"MIN_WORKERS": "5", "MAX_WORKERS": "2"}, "MIN_WORKERS=5", "MAX_WORKERS=2"),
        ({"MIN_WORKERS": "9"}, "MIN_WORKERS=9", "MAX_WORKERS=4"),
        ({"QUEUE_THRESHOLD_LOW": "10"}, "QUEUE_THRESHOLD_LOW=10", "QUEUE_THRESHOLD_HIGH=10"),
        (
            {"STOKER_MAX_BODY_BYTES": "2048"},
            "STOKER_MAX_PAYLOAD_BYTES=4194304",
            "STOKER_MAX_BODY_BYTES=2048",
        ),
    ],
)
def test_settings_that_disagree_are_both_named(environ: dict[str, str], first: str, second: str) -> None:
    (problem,) = problems(environ)
    assert problem.startswith(f"{first} and {second} disagree: ")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.4", "jobs.example.com"])
def test_a_reachable_address_needs_a_token(host: str) -> None:
    (problem,) = problems({"STOKER_HOST": host})
    assert "STOKER_TOKEN=$(python3 -c 'import secrets; print(secrets.token_urlsafe(32))')" in problem
    assert load({"STOKER_HOST": host, "STOKER_TOKEN": TOKEN}).host == host


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "[::1]", "localhost", "LOCALHOST"])
def test_loopback_needs_none(host: str) -> None:
    assert is_loopback(host)
    assert load({"STOKER_HOST": host}).token is None


@pytest.mark.parametrize(
    "token", ["short", "has a space in the middle", "line\nbreak-in-the-token", "näh-nicht-ascii-zeichen"]
)
def test_a_bad_token_is_refused_once_and_not_shown(token: str) -> None:
    (problem,) = problems({"STOKER_TOKEN": token, "STOKER_HOST": "0.0.0.0"})
    assert problem.startswith("STOKER_TOKEN=***: must be at least 16 visible ASCII characters")
    assert token not in problem


def test_secrets_do_not_appear_in_the_repr() -> None:
    loaded = load({"STOKER_TOKEN": TOKEN, "REDIS_URL": "redis://:hush@cache:6379/0"})
    assert TOKEN not in repr(loaded)
    assert "hush" not in repr(loaded)
    assert "redis://***@cache:6379/0" in repr(loaded)


def test_unknown_variables_warn_with_a_suggestion() -> None:
    assert load({"STOKER_PLACMENT": "x", "STOKER_ZZZZZZZ": "x", "STOKER_THREADS": "2"}).warnings == (
        "STOKER_PLACMENT is not a setting; did you mean STOKER_PLACEMENT?",
        "STOKER_ZZZZZZZ is not a setting and was ignored",
    )


def test_lists_and_labels_from_text_and_from_options_are_read_alike() -> None:
    from_text = load(
        {
            "STOKER_WORKER_QUEUES": "a, b,",
            "STOKER_WORKER_LABELS": "zone=eu, gpu=",
            "STOKER_WORKER_URLS": "http://one:1/,http://two:2",
        }
    )
    from_options = load(
        {},
        {
            "worker_queues": ["a", "b"],
            "worker_labels": {"zone": "eu", "gpu": ""},
            "worker_urls": ("http://one:1", "http://two:2"),
        },
    )
    assert from_text.worker_queues == from_options.worker_queues == ("a", "b")
    assert from_text.worker_labels == from_options.worker_labels == {"zone": "eu", "gpu": ""}
    assert from_text.coordinator_urls == from_options.coordinator_urls == ("http://one:1", "http://two:2")


def test_pairs_from_the_command_line_are_taken_as_they_are() -> None:
    given = load({}, {"worker_labels": {"zone": "eu,west"}, "commands": {"upper": ("tr", "a-z", "A,Z=")}})
    assert given.worker_labels == {"zone": "eu,west"}
    assert given.commands == {"upper": ("tr", "a-z", "A,Z=")}


def test_pairs_from_the_command_line_are_judged_like_those_of_the_environment() -> None:
    found = problems({}, {"worker_labels": {"zone": "e\nu"}, "commands": {"upper": ("", "a b")}})
    assert found == (
        "STOKER_WORKER_LABELS=zone=e\\nu (from the command line): must be pairs such as zone=eu,gpu=yes",
        "STOKER_COMMANDS=upper='' 'a b' (from the command line): must be a JSON object such as "
        '{"thumbnail": ["/usr/bin/convert", "-", "png:-"]}, or the path of a file with one',
    )


def test_a_file_of_commands_that_cannot_be_read_is_one_problem_among_others(tmp_path: Path) -> None:
    workers, missing = problems({"STOKER_COMMANDS": "/nope/x.json", "STOKER_WORKERS": "x"})
    assert workers.startswith("STOKER_WORKERS=x: must be")
    assert missing.startswith(
        "STOKER_COMMANDS=/nope/x.json: No such file or directory; must be a JSON object"
    )
    (folder,) = problems({"STOKER_COMMANDS": str(tmp_path)})
    assert ": Is a directory; must be a JSON object" in folder


def test_the_port_moves_the_address_unless_that_is_set() -> None:
    assert load({"API_PORT": "9000"}).coordinator_urls == ("http://127.0.0.1:9000",)
    assert load({"API_PORT": "9000", "API_URL": "http://x:1/"}).api_url == "http://x:1"


def test_redis_addr_is_another_name_for_the_url() -> None:
    assert load({"REDIS_ADDR": "cache:6379"}).redis_url == "redis://cache:6379"
    assert load({"REDIS_ADDR": "cache:6379", "STOKER_REDIS_URL": "redis://x"}).redis_url == "redis://x"


PARTS = {
    "POSTGRES_HOST": "db.example",
    "POSTGRES_PORT": "6000",
    "POSTGRES_USER": "me@home",
    "POSTGRES_PASSWORD": "p/ ss:é",
    "POSTGRES_DB": "jobs",
}


@pytest.mark.parametrize(
    ("environ", "url"),
    [
        (PARTS, "postgresql://me%40home:p%2F%20ss%3A%C3%A9@db.example:6000/jobs"),
        ({"POSTGRES_HOST": "db"}, "postgresql://postgres@db:5432/postgres"),
        ({"POSTGRES_USER": "me"}, "postgresql://me@127.0.0.1:5432/me"),
        ({"POSTGRES_HOST": "::1", "POSTGRES_DB": "x"}, "postgresql://postgres@[::1]:5432/x"),
        ({"POSTGRES_HOST": "/run/pg"}, "postgresql://postgres@/postgres?host=%2Frun%2Fpg&port=5432"),
        (
            {"POSTGRES_HOST": "a", "STOKER_POSTGRES_HOST": "b", "POSTGRES_PORT": "tcp://10.0.0.1:77"},
            "postgresql://postgres@b:77/postgres",
        ),
    ],
)
def test_the_parts_of_an_address_make_the_database_url(environ: dict[str, str], url: str) -> None:
    loaded = load(environ)
    assert (loaded.database_url, loaded.on_postgres) == (url, True)
    assert loaded.sources["database_url"].startswith(("POSTGRES_", "STOKER_POSTGRES_"))


def test_a_url_wins_over_the_parts_which_may_then_hold_anything() -> None:
    environ = {**PARTS, "POSTGRES_PORT": "no port", "REDIS_HOST": "no host!", "REDIS_URL": "redis://r"}
    assert load(environ | {"DATABASE_URL": "sqlite:///a.db"}).database_url == "sqlite:///a.db"
    assert load(environ, {"database_url": "sqlite:///b.db"}).database_url == "sqlite:///b.db"
    assert problems(environ) == ("POSTGRES_PORT=no port: must be a whole number from 1 to 65535",)


def test_a_port_alone_which_kubernetes_sets_makes_no_address() -> None:
    loaded = load({"POSTGRES_PORT": "tcp://10.0.0.1:5432", "REDIS_PORT": "tcp://10.0.0.2:6379"})
    assert loaded == Settings()


def test_the_password_among_the_parts_is_never_shown() -> None:
    environ = {**PARTS, "POSTGRES_PASSWORD": "hush", "POSTGRES_HOST": "no host!"}
    assert "hush" not in " ".join(problems(environ))
    assert "hush" not in repr(load({**PARTS, "POSTGRES_PASSWORD": "hush"}))


def test_the_parts_are_kept_from_jobs_unless_they_are_somebody_elses() -> None:
    environ = {**PARTS, "REDIS_HOST": "r", "REDIS_PORT": "1", "PATH": "/bin"}
    assert without_secrets(environ) == {"PATH": "/bin"}
    elsewhere = {"STOKER_DATABASE_URL": "sqlite:///a.db", "STOKER_REDIS_URL": "redis://r"}
    assert without_secrets(environ | elsewhere) == environ
    assert without_secrets({**elsewhere, "STOKER_POSTGRES_PASSWORD": "hush"}) == {}


@pytest.mark.parametrize(
    ("environ", "url"),
    [
        ({"REDIS_HOST": "cache"}, "redis://cache:6379"),
        ({"REDIS_HOST": "cache", "REDIS_PORT": "1"}, "redis://cache:1"),
        ({"REDIS_HOST": "/run/redis.sock"}, "unix:///run/redis.sock"),
        ({"REDIS_HOST": "cache", "REDIS_ADDR": "other:2"}, "redis://other:2"),
        ({"REDIS_PORT": "1"}, None),
    ],
)
def test_host_and_port_make_the_redis_url(environ: dict[str, str], url: str | None) -> None:
    assert load(environ).redis_url == url


def test_numbered_threads_say_which_workers_there_are() -> None:
    loaded = load({"WORKER_1_THREADS": "4", "WORKER_2_THREADS": "8", "STOKER_WORKER_2_THREADS": "3"})
    assert (loaded.workers, loaded.worker_n_threads) == (2, {1: 4, 2: 3})
    assert loaded.warnings == ()
    assert load({"WORKER_3_THREADS": "1"}).workers == 3
    assert load({"WORKER_3_THREADS": "1", "STOKER_WORKERS": "1"}).workers == 1
    assert load({"WORKER_1_THREADS": ""}) == Settings()


def test_threads_for_all_workers_on_the_command_line_win_over_numbered_ones() -> None:
    loaded = load({"WORKER_1_THREADS": "4", "WORKER_2_THREADS": "8"}, {"worker_threads": 2})
    assert (loaded.workers, loaded.worker_threads, loaded.worker_n_threads) == (2, 2, {})


@pytest.mark.parametrize(
    "environ",
    [
        {"WORKER_1_THREADS": "many"},
        {"WORKER_1_THREADS": "0"},
        {"WORKER_0_THREADS": "1"},
        {"WORKER_1001_THREADS": "1"},
    ],
)
def test_numbered_threads_that_make_no_sense_are_refused(environ: dict[str, str]) -> None:
    ((name, value),) = environ.items()
    (problem,) = problems(environ)
    assert problem.startswith(f"{name}={value}: must be whole numbers from 1 to 1024")


@pytest.mark.parametrize(
    ("name", "policy"),
    [("least_connections", "least_loaded"), ("LRU", "least_recently_used"), ("least_loaded", "least_loaded")],
)
def test_policies_have_the_names_of_the_source_systems_too(name: str, policy: str) -> None:
    assert load({"STOKER_PLACEMENT": name}).placement == policy


@pytest.mark.parametrize(("text", "on"), [("1", True), ("true", True), ("0", False), ("OFF", False)])
def test_switches_are_read_from_what_people_write(text: str, on: bool) -> None:
    assert load({"METRICS_ALIASES": text}).metrics_aliases is on
    assert problems({"METRICS_ALIASES": "maybe"}) == ("METRICS_ALIASES=maybe: must be 1 or 0",)


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:///.stoker/stoker.db", ".stoker/stoker.db"),
        ("sqlite:////var/lib/stoker/jobs.db", "/var/lib/stoker/jobs.db"),
        ("sqlite:///with%20space.db", "with space.db"),
    ],
)
def test_database_path(url: str, path: str) -> None:
    assert load({"DATABASE_URL": url}).database_path == Path(path)


def test_worker_threads_default_to_the_cpus_we_may_use() -> None:
    assert load({}).worker_threads == available_cpus() >= 1


def test_choices_are_read_in_any_case() -> None:
    assert load({"STOKER_LOG_LEVEL": "DEBUG"}).log_level == "debug"


def test_a_client_is_not_troubled_by_server_settings() -> None:
    environ = {"MIN_WORKERS": "oops", "STOKER_HOST": "0.0.0.0", "API_PORT": "9000"}
    assert client_target(environ) == ("http://127.0.0.1:9000", None)
    assert client_target(environ, url="http://x:1", token=TOKEN) == ("http://x:1", TOKEN)
    assert client_target({}) == (Settings().api_url, None)
    with pytest.raises(SettingsError, match="API_URL=nonsense: must be an address"):
        client_target({"API_URL": "nonsense"})


def test_the_reference_page_is_not_stale() -> None:
    page = ROOT / "docs" / "reference" / "settings.md"
    assert page.read_text() == reference(), "run: python -m stoker.settings > docs/reference/settings.md"


def test_the_module_prints_the_reference_page() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "stoker.settings"], capture_output=True, text=True, check=True, timeout=30
    )
    assert done.stdout == reference()


def test_the_reference_page_names_every_setting() -> None:
    named = set(re.findall(r"^\| `(\w+)`", reference(), re.MULTILINE))
    assert named == {entry.name for entry in table()}


# --- what jobs may see -----------------------------------------------------------------------------------


def test_a_job_inherits_everything_but_the_secrets_of_stoker() -> None:
    environ = {
        "STOKER_TOKEN": "t" * 32,
        "STOKER_DATABASE_URL": "postgresql://u:p@db/stoker",
        "STOKER_REDIS_URL": "redis://:p@r",
        "STOKER_REDIS_ADDR": "r:1",
        "API_URL": "http://127.0.0.1:8080",
        "TOKEN": "of the task's own",
        "PATH": "/bin",
    }
    assert set(without_secrets(environ)) == {"API_URL", "TOKEN", "PATH"}
    bare = {"DATABASE_URL": "postgresql://u:p@db/stoker", "REDIS_URL": "redis://r", "REDIS_ADDR": "r:1"}
    assert without_secrets(bare) == {}


def test_a_database_of_the_tasks_own_is_inherited_where_stoker_has_been_told_another() -> None:
    theirs = {"DATABASE_URL": "postgresql://u:p@db/shop", "REDIS_ADDR": "cache:1"}
    ours = {"STOKER_DATABASE_URL": "postgresql://u:p@db/stoker", "STOKER_REDIS_URL": "redis://r"}
    assert without_secrets(theirs | ours) == theirs
    assert without_secrets(ours | {"DATABASE_URL": ours["STOKER_DATABASE_URL"]}) == {}


def test_a_new_secret_is_kept_from_jobs_under_all_its_names(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = Rule("s", "d", parsers.NAME, bare=True, aliases=("OTHER_NAME",), secret=True)
    entry = SettingEntry("brand_new", str, None, rule)
    monkeypatch.setattr("stoker.settings.loading.table", lambda: (entry,))
    names = ("BRAND_NEW", "STOKER_BRAND_NEW", "OTHER_NAME", "STOKER_OTHER_NAME")
    assert {entry.variables[i] for i in range(4)} == set(names)
    assert without_secrets(dict.fromkeys(names, "x")) == {}


def test_every_setting_that_can_hold_a_password_is_kept_from_jobs() -> None:
    secret = (parsers.TOKEN, parsers.DATABASE_URL, parsers.REDIS_URL)
    holding = [entry for entry in table() if entry.rule.parser in secret]
    assert len(holding) == 3
    assert all(entry.rule.secret or entry.rule.kept_from_jobs for entry in holding)


def test_what_a_worker_gave_stands_in_for_what_the_environment_does_not_say() -> None:
    given = Access("http://10.0.0.1:9000", "given-" * 5)
    assert client_target({}, given=given) == (given.url, given.token)
    assert client_target({"API_PORT": "9", "STOKER_TOKEN": TOKEN}, given=given) == (
        "http://127.0.0.1:9",
        TOKEN,
    )
    assert client_target({"API_URL": "http://a"}, token=TOKEN, given=given) == ("http://a", TOKEN)
