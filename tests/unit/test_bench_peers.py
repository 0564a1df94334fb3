"""The pure parts of `make bench-peers`: medians, ratios, verdicts, tables, pictures, pages, and when to stop submitting."""

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from bench.peers import growth, pages, picture, tables
from bench.peers.board import Board
from bench.peers.drivers import kit
from bench.peers.figures import (
    BULK_CPU,
    CPU,
    MEMORY,
    P50,
    P99,
    Figure,
    Goal,
    Turn,
    best_peer,
    figures,
    missing,
    verdicts,
    wrong_jobs,
)
from bench.peers.running import FOUR, Sample
from bench.peers.systems import BY_KEY, HUEY_REDIS, HUEY_SQLITE, PGQUEUER, STOKER, STOKER_ON_POSTGRES, SYSTEMS
from bench.processes import ROOT


def rates(**by_quantity: float) -> dict[str, Figure]:
    return {name: Figure([value]) for name, value in by_quantity.items()}


def sample(jobs: int, seconds: float, **more: object) -> Sample:
    return Sample(jobs, seconds, 100.0, 0, **more)  # type: ignore[arg-type]


def test_a_figure_is_the_median_of_its_rounds_with_half_of_the_range_as_spread() -> None:
    figure = Figure([80.0, 100.0, 140.0])
    assert figure.median == 100.0
    assert figure.spread == pytest.approx(0.3)


def test_a_turn_gives_rates_latencies_cpu_and_memory() -> None:
    turn = Turn(
        {
            kit.IDLE: sample(4, 1.0, waits_ms=[1.0, 2.0, 3.0, 40.0]),
            kit.SEQUENTIAL: sample(500, 2.0),
            kit.BULK: Sample(9_000, 3.0, 12.0, 0),
        },
        150.0,
    )
    found = figures({STOKER.key: [turn]})[STOKER.key]
    assert {name: figure.median for name, figure in found.items()} == {
        P50: 3.0,
        P99: 40.0,
        kit.SEQUENTIAL: 250.0,
        kit.BULK: 3_000.0,
        CPU: 100.0,
        BULK_CPU: 12.0,
        MEMORY: 150.0,
    }


def test_a_round_that_failed_leaves_the_other_rounds() -> None:
    turns = [Turn({kit.SEQUENTIAL: sample(100, 1.0)}), Turn({}), Turn({kit.SEQUENTIAL: sample(300, 1.0)})]
    assert figures({"rq": turns})["rq"][kit.SEQUENTIAL].rounds == [100.0, 300.0]


def test_jobs_that_were_lost_or_ran_twice_are_added_up_by_system() -> None:
    bad = Sample(10, 1.0, 1.0, 2)
    turns = {"rq": [Turn({kit.SEQUENTIAL: bad, FOUR: bad})], "arq": [Turn({FOUR: sample(1, 1.0)})]}
    assert wrong_jobs(turns) == {"rq": 4}


def test_the_best_durable_peer_is_neither_stoker_nor_one_that_forgets() -> None:
    found = {
        STOKER.key: rates(sequential=9_000),
        HUEY_SQLITE.key: rates(sequential=1_700),
        PGQUEUER.key: rates(sequential=850),
        HUEY_REDIS.key: rates(sequential=4_400),
    }
    durable = best_peer(found, Goal(STOKER.key, kit.SEQUENTIAL, "durable", 1, 1))
    anybody = best_peer(found, Goal(STOKER.key, kit.SEQUENTIAL, "any", 1, 1))
    assert durable is not None
    assert anybody is not None
    assert (durable[0], anybody[0]) == (HUEY_SQLITE.key, HUEY_REDIS.key)


def test_the_best_latency_is_the_lowest() -> None:
    found = {HUEY_SQLITE.key: {P50: Figure([3.4])}, HUEY_REDIS.key: {P50: Figure([1.1])}}
    best = best_peer(found, Goal(STOKER.key, P50, "any", 1.5, 1, at_most=True))
    assert best == (HUEY_REDIS.key, Figure([1.1]))


def test_a_peer_with_one_kind_of_client_counts_for_tasks_and_for_threads() -> None:
    found = {
        STOKER.key: rates(asyncio=30_000, threads=9_000),
        "saq": rates(asyncio=2_000),
        "dramatiq": rates(threads=4_000),
    }
    judged = {verdict.goal.quantity: verdict for verdict in verdicts(found)}
    assert judged[kit.ASYNCIO].peer == judged[kit.THREADS].peer == "dramatiq"
    assert judged[kit.ASYNCIO].text == "PASS"
    assert judged[kit.THREADS].text == "FAIL"
    assert judged[kit.ASYNCIO].aim_met


def test_stoker_on_postgres_is_held_against_pgqueuer_alone() -> None:
    found = {
        STOKER_ON_POSTGRES.key: {P50: Figure([3.0, 2.0, 2.5])},
        PGQUEUER.key: {P50: Figure([2.4, 2.5, 2.6])},
        HUEY_REDIS.key: {P50: Figure([0.5])},
    }
    (verdict,) = verdicts(found)
    assert verdict.ratio == 1.0
    assert verdict.rounds == [3.0 / 2.4, 2.0 / 2.5, 2.5 / 2.6]
    assert verdict.met
    assert verdict.aim_met


def test_what_was_not_measured_is_not_judged() -> None:
    assert verdicts({STOKER.key: rates(sequential=1_000)}) == []


def test_a_goal_without_a_figure_is_missing_when_its_peers_were_to_be_measured() -> None:
    found = {STOKER.key: rates(sequential=1_000), HUEY_SQLITE.key: rates(sequential=2_000)}
    judged = verdicts(found)
    lost = {goal.quantity for goal in missing(judged, [STOKER.key, HUEY_SQLITE.key])}
    assert lost == {FOUR, kit.ASYNCIO, kit.THREADS, kit.BULK, P50}
    assert missing([], [STOKER.key, STOKER_ON_POSTGRES.key]) == []


def test_the_table_keeps_what_stoker_loses_and_marks_what_a_system_cannot_do() -> None:
    found = {
        HUEY_SQLITE.key: {kit.SEQUENTIAL: Figure([1_700.0, 1_800.0, 1_715.0])},
        STOKER.key: rates(sequential=648, four=1_294, bulk=21_078, asyncio=900, threads=800),
    }
    lines = tables.figure_table(found).splitlines()
    assert lines[2].startswith("| **Stoker, SQLite** | **yes** | **648** |")
    assert lines[3].startswith(f"| Huey + SQLite | yes | 1,715 ±3% | {tables.NONE} | {tables.NONE} |")
    assert len({line.count("|") for line in lines}) == 1


def test_the_verdicts_name_the_peer_the_limit_and_the_aim() -> None:
    found = {STOKER.key: rates(sequential=1_000), HUEY_SQLITE.key: rates(sequential=2_000)}
    text = tables.verdict_table(verdicts(found))
    assert "best durable peer: Huey + SQLite | 0.50 | ≥ 0.8 | ≥ 1.2 | FAIL" in text


def test_the_settings_of_every_system_are_shown_with_a_reason() -> None:
    shown = tables.settings_table(SYSTEMS)
    assert all(system.title in shown and system.reason for system in SYSTEMS)
    assert "| Celery + Redis | celery 5." in shown
    assert all(system.is_stoker or system.requirements for system in SYSTEMS)


def test_the_picture_of_the_comparison_is_a_document_with_a_bar_for_each_figure() -> None:
    found = {STOKER.key: rates(sequential=648, bulk=21_078), HUEY_SQLITE.key: rates(sequential=1_715)}
    document = ET.fromstring(picture.bars(found, "a < b"))  # noqa: S314 - our own
    fills = [rect.get("fill") for rect in document.iter("{http://www.w3.org/2000/svg}rect")]
    assert fills.count(picture.OWN) == 1 + 2
    assert fills.count(picture.DURABLE) == 1 + 1


def test_growth_compares_the_largest_size_with_the_smallest_round_by_round() -> None:
    curves = {
        growth.BACKLOG: [
            growth.Point(1_000, [100.0, 200.0, 100.0], [1.0], [2.0]),
            growth.Point(1_000_000, [90.0, 150.0, 70.0], [1.0], [2.0]),
        ]
    }
    (judged,) = growth.judged(curves)
    assert judged.rounds == [0.9, 0.75, 0.7]
    assert judged.ratio == 0.75
    assert not judged.met
    assert "≥ 0.8 | FAIL" in growth.verdict_table([judged])
    ET.fromstring(picture.lines(growth.plots(curves), "growth"))  # noqa: S314 - our own


def test_a_page_gets_new_text_between_its_marks_and_keeps_the_rest() -> None:
    page = "a\n<!-- peers: begin -->\nold\n<!-- peers: end -->\nb\n"
    assert pages.replaced(page, "peers", "new") == page.replace("old", "new")
    with pytest.raises(pages.NoPlace, match="growth"):
        pages.replaced(page, "growth", "new")


def test_the_pages_have_places_for_what_is_measured() -> None:
    benchmarks = (ROOT / "docs" / "benchmarks.md").read_text()
    for name in ("peers", "growth"):
        pages.replaced(benchmarks, name, "x")
    settings = pages.replaced(benchmarks, "peer settings", tables.settings_table(SYSTEMS))
    assert settings == benchmarks, "run: python -m bench.peers.documents"
    pages.replaced((ROOT / "README.md").read_text(), "peers", "x")


@pytest.mark.parametrize(
    ("elapsed", "done", "queued", "stop"),
    [
        (0.05, 1, 10_000, False),  # the very first look says nothing
        (0.2, 10, 100, False),  # it would take 2.2 s by a rate that is not trusted yet
        (0.2, 10, 1_000, True),  # but this is hopeless
        (1.0, 1_000, 400, False),
        (1.0, 1_000, 1_000, True),
        (1.9, 0, 5, False),
        (2.0, 1_000, 0, True),
    ],
)
def test_submitting_ends_when_what_is_queued_takes_the_rest_of_the_time(
    elapsed: float, done: int, queued: int, stop: bool
) -> None:
    assert kit.enough(elapsed, done, queued, seconds=2.0) is stop


def test_a_backlog_that_is_mostly_there_is_kept_as_it_is() -> None:
    assert kit.kept_level(1_000_000, queued=950_000) == 950_000
    assert kit.kept_level(1_000, queued=-200) == 1_000


def test_a_pacer_hands_out_each_number_once_and_knows_how_many(tmp_path: Path) -> None:
    board = Board.create(tmp_path / "board")
    pacer = kit.Pacer(board, producer=1, first=100, limit=25, seconds=60.0, size=10)
    taken = []
    while (number := pacer.take()) is not None:
        taken.append(number)
    assert taken == [100, 110]
    assert pacer.finish() == 20
    assert board.submitted() == 20


def test_the_board_counts_jobs_and_knows_when_each_started(tmp_path: Path) -> None:
    board = Board.create(tmp_path / "board")
    other = Board(tmp_path / "board")
    board.mark(7)
    other.mark(8)
    other.mark(-1)
    assert board.done() == other.done() == 3
    assert 0 < board.started_ns(7) <= board.started_ns(8)
    assert board.starts(6, 4) == [0, board.started_ns(7), board.started_ns(8), 0]


def test_keys_of_systems_are_unique() -> None:
    assert len(BY_KEY) == len(SYSTEMS)
