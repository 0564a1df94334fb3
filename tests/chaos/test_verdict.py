"""The judge of the chaos runs can say no, and what it draws and prints is about the run that it was given."""

from collections.abc import Iterable
from xml.etree import ElementTree

import msgspec
import pytest

from tests.chaos.judge import Verdict, judge, recoveries, table, together
from tests.chaos.picture import draw
from tests.chaos.watching import with_kills
from tests.checkers.history import (
    Ack,
    Change,
    Death,
    Effect,
    Fault,
    History,
    Item,
    Op,
    Rules,
    StoredJob,
    Violation,
)

LEASE = 5.0


def history(freed: float, faults: tuple[Fault, ...] = ()) -> History:
    """One job, whose worker died at 10; it was taken back at `freed` and ran on another."""
    return History(
        rules=Rules(lease=LEASE, backoff_base=1.0),
        ops=[Op("submit", "c", 1.0, 2.0, "ok", [Item("m0", "m0")], ["j"])],
        effects=[
            Effect(9.0, "start", "j", 1, 1, "w0", "100"),
            Effect(freed + 1, "start", "j", 2, 2, "w1", "200"),
            Effect(freed + 1, "end", "j", 2, 2, "w1", "200", "completed", "m0"),
        ],
        journal=[
            Change(2.0, "j", None, "queued"),
            Change(9.0, "j", "queued", "running", 1, 1, "s0"),
            Change(freed, "j", "running", "queued", 1, 1),
            Change(freed, "j", "queued", "running", 2, 2, "s1"),
            Change(freed + 1, "j", "running", "completed", 2, 2, "s1"),
        ],
        jobs=[StoredJob("j", "m0", "completed", 2, 2, value="m0")],
        faults=[Fault("worker killed", "w0", 10.0, 10.5), *faults],
        deaths=[Death("s0", 10.0)],
        quiet_from=12.0,
        ended=60.0,
    )


def judged(of: History, *, kinds: Iterable[str] = (), coordinators: int = 3) -> Verdict:
    return judge(
        of,
        store="s",
        seconds=60,
        kinds=kinds,
        played=of.faults,
        requests_failed=2,
        skipped=[],
        coordinators=coordinators,
    )


def verdict(of: History) -> list[str]:
    return sorted({violation.invariant for violation in judged(of).violations})


def killed(of: History) -> History:
    return msgspec.structs.replace(of, effects=with_kills(of.effects, {"100": 10.0}))


def test_a_recovery_within_the_bound_is_fine_and_one_beyond_it_is_not() -> None:
    assert verdict(killed(history(freed=15.2))) == []
    assert "recovery_in_time" in verdict(killed(history(freed=20.2)))


def test_a_recovery_counts_from_the_end_of_the_last_fault_that_covers_it() -> None:
    (plain,) = recoveries(history(freed=20.0), coordinators=3)
    assert plain.seconds == pytest.approx(10.0)
    away = Fault("store: killed", "*", 11.0, 14.0)
    (covered,) = recoveries(history(20.0, (away,)), coordinators=3)
    assert covered.seconds == pytest.approx(6.0)
    earlier = Fault("store: killed", "*", 7.0, 9.5)
    (uncovered,) = recoveries(history(20.0, (earlier,)), coordinators=3)
    assert uncovered.seconds == pytest.approx(10.0)


def test_the_death_of_one_of_several_coordinators_excuses_nothing() -> None:
    dead = Fault("coordinator killed", "*", 11.0, 14.0)
    (several,) = recoveries(history(20.0, (dead,)), coordinators=3)
    (only,) = recoveries(history(20.0, (dead,)), coordinators=1)
    assert several.seconds == pytest.approx(10.0)
    assert only.seconds == pytest.approx(6.0)


def test_a_run_without_an_end_of_its_own_ends_with_its_process() -> None:
    effects = history(freed=15.0).effects
    assert [e.at for e in with_kills(effects, {"100": 10.02}) if e.what == "killed"] == [10.02]
    # A watcher that looked up late does not make two runs overlap.
    assert [e.at for e in with_kills(effects, {"100": 16.3}) if e.what == "killed"] == [16.0]


def test_the_picture_shows_every_fault_and_the_table_adds_rounds_up() -> None:
    run = killed(history(freed=15.2))
    root = ElementTree.fromstring(draw(run, run.faults, 0.0, "a <run>"))  # noqa: S314 - our own
    words = [element.text or "" for element in root.iter() if element.tag.endswith("text")]
    assert "a <run>" in words
    assert any("worker killed (1)" in word for word in words)
    once = judged(run, kinds=["worker killed"])
    twice = together([once, once])
    assert (twice.jobs, twice.requests_failed, twice.faults) == (2, 4, {"worker killed": 2})
    assert "| **jobs**" in table([twice])


def test_a_kind_of_fault_that_was_never_played_is_named_however_many_rounds_there_were() -> None:
    run = killed(history(freed=15.2))
    once = judged(run, kinds=["worker killed", "disk full"])
    assert "disk full" in together([once, once]).untried
    assert "disk full" in together([once, judged(run, kinds=["worker killed"])]).untried
    assert "worker killed" not in once.untried


def test_a_run_must_have_heard_acknowledgements_lost_answers_and_seen_crashes() -> None:
    run = killed(history(freed=15.2))
    assert len(judged(run).untried) == 3
    lost = Op("submit", "c", 1.0, 2.0, "unknown", [Item("m1")])
    letter = StoredJob("l", "m2", "failed", 3, 3, crashes=3)
    whole = msgspec.structs.replace(
        run,
        ops=[*run.ops, lost],
        acks=[Ack(16.3, "w1", "j", 2, "completed")],
        jobs=[*run.jobs, letter],
    )
    assert judged(whole).untried == []


def test_findings_of_the_run_itself_and_too_much_memory_are_violations() -> None:
    run = killed(history(freed=15.2))
    wrong = judge(
        run,
        store="s",
        seconds=60,
        kinds=(),
        played=run.faults,
        requests_failed=0,
        skipped=[],
        coordinators=3,
        findings=[Violation("one_coordinator_per_file", "-", "a second coordinator served")],
        peak_rss_kb=2_000_000,
    )
    names = {violation.invariant for violation in wrong.violations}
    assert names == {"one_coordinator_per_file", "memory_is_bounded"}
