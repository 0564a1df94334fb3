"""`stoker top`: what one screen shows, and that nothing a client named can paint on it."""

from typing import Any

from rich.console import Console, RenderableType

from stoker.cli.top import SystemView, bar, ended_per_second, screen

URL = "http://127.0.0.1:8080"


def look(at: float = 0.0, completed: int = 5, **more: Any) -> SystemView:
    stats = {
        "queue_depth": 7,
        "workers": 1,
        "threads": 4,
        "threads_used": 3,
        "jobs_by_status": {"queued": 7, "running": 3, "completed": completed, "failed": 1},
        "success_rate": 0.5,
        "uptime_sec": 120.0,
        **more.pop("stats", {}),
    }
    queues = more.pop("queues", [{"name": "default", "queued": 7, "running": 3}])
    workers = more.pop("workers", [worker("worker-1")])
    assert not more
    return SystemView(at, stats, queues, workers)


def worker(name: str, status: str = "live", used: int = 3) -> dict[str, Any]:
    return {"name": name, "status": status, "threads": 4, "threads_used": used, "queues": None}


def shown(renderable: RenderableType) -> list[str]:
    console = Console(width=200, markup=False, highlight=False, emoji=False)
    with console.capture() as capture:
        console.print(renderable)
    return [line.rstrip() for line in capture.get().splitlines()]


def test_a_screen_has_the_numbers_the_queues_and_the_workers() -> None:
    lines = shown(screen(look(), None, URL, None))
    assert lines[0] == f"stoker top  {URL}  up 2m"
    assert lines[1] == "7 queued  3 running  0 scheduled  1 failed  success 50.0%  -/s done"
    assert lines[2].startswith("1 worker  threads ██████████████████░░░░░░ 3/4")
    (queue,) = [line.split() for line in lines if line.startswith("default")]
    assert queue[1:] == ["7", "3", "0", "0", "0", "0"]
    (row,) = [line.split() for line in lines if line.startswith("worker-1")]
    assert row[1:3] == ["live", "3/4"]


def test_the_rate_is_the_difference_between_two_looks() -> None:
    before, now = look(10.0, completed=100), look(12.0, completed=350)
    assert ended_per_second(now, before) == "125/s"
    assert ended_per_second(before, None) == "-/s"
    assert ended_per_second(look(12.0, completed=1), before) == "0/s", "old jobs were deleted"


def test_the_autoscaler_says_why() -> None:
    decision = {"action": "up", "workers": 1, "wanted": 2, "queue_depth": 50, "reason": "50 jobs wait"}
    state = {"mode": "recommend", "min_workers": 1, "max_workers": 4, "decision": decision}
    lines = shown(screen(look(stats={"autoscaler": state}), None, URL, None))
    assert "autoscaler (recommend): up, 1 of 1 to 4 workers; 50 jobs wait" in lines
    assert not [line for line in shown(screen(look(), None, URL, None)) if line.startswith("autoscaler")]


def test_a_small_terminal_shows_the_fullest_queues_and_says_what_is_hidden() -> None:
    queues = [{"name": f"queue-{n:02}", "queued": n} for n in range(50)]
    workers = [worker(f"worker-{n:02}") for n in range(50)]
    lines = shown(screen(look(queues=queues, workers=workers), None, URL, 24))
    assert len(lines) <= 24
    assert any(line.startswith("queue-49") for line in lines)
    assert not any(line.startswith("queue-00") for line in lines)
    assert sum("more" in line for line in lines) == 2


def test_names_are_text_not_markup_and_cannot_steer_the_terminal() -> None:
    lines = shown(
        screen(look(workers=[worker("[red]x[/red]\x1b[2J")], queues=[{"name": "[bold]q"}]), None, URL, None)
    )
    assert any(line.startswith("[red]x[/red]\\x1b[2J") for line in lines)
    assert any(line.startswith("[bold]q") for line in lines)


def test_live_workers_stand_above_those_that_leave_and_those_that_are_lost() -> None:
    rows = [worker("a", "lost"), worker("b", "draining"), worker("c", "live")]
    lines = shown(screen(look(workers=rows), None, URL, None))
    assert [line[0] for line in lines if line[:2] in ("a ", "b ", "c ")] == ["c", "b", "a"]


def test_a_bar_is_full_when_all_is_used_and_empty_without_anything() -> None:
    assert set(bar(4, 4)) == {"█"}
    assert set(bar(9, 4)) == {"█"}
    assert set(bar(0, 4)) == set(bar(0, 0)) == {"░"}
