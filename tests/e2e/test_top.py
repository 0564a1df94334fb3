"""`stoker top` against a real system: once for a pipe, and live on a terminal until Ctrl-C."""

import signal

from tests.e2e.system import STOKER, System
from tests.support.terminal import on_a_terminal


def test_off_a_terminal_it_prints_one_screen(system: System) -> None:
    server = system.serve()
    system.worker(server, name="seen-by-top")
    server.ended(server.submit(payload="x")["id"])
    done = system.run("top", "--url", server.url)
    assert done.returncode == 0, done.stderr
    assert "seen-by-top" in done.stdout
    assert "\x1b" not in done.stdout


def test_nobody_to_ask_is_told_with_the_usual_exit_code(system: System) -> None:
    done = system.run("top", "--once", "--url", "http://127.0.0.1:9")
    assert done.returncode == 3
    assert "cannot reach Stoker" in done.stderr


def test_on_a_terminal_it_goes_on_and_survives_a_coordinator_that_is_gone(system: System) -> None:
    server = system.serve()
    argv = [STOKER, "top", "--every", "0.1", "--url", server.url]
    with on_a_terminal(argv, system.environ({}), columns=120) as screen:
        screen.until("stoker top")
        server.submit(queue="new-queue")
        screen.until("new-queue")
        server.kill()
        screen.until("Trying again")
        screen.process.send_signal(signal.SIGINT)
        assert screen.exit_code() == 0


def test_at_80_columns_nothing_is_wrapped_and_q_leaves(system: System) -> None:
    server = system.serve()
    system.worker(server, name="a-worker-with-a-rather-long-name.example.com")
    for queue in ("mail", "a-queue-with-a-rather-long-name-for-a-terminal"):
        server.ended(server.submit(queue=queue)["id"])
    with on_a_terminal([STOKER, "top", "--every", "0.1", "--url", server.url], system.environ({})) as screen:
        screen.until("mail")
        screen.until("a-worker-with")
        screen.press("x")
        screen.press("q")
        assert screen.exit_code() == 0
    assert max(map(len, screen.lines)) <= 80
    rows = [line for line in screen.lines if "a-worker-with" in line]
    assert all("live" in row and "all" in row for row in rows)
    heads = {line.rstrip() for line in screen.lines if line.startswith(("QUEUE ", "WORKER "))}
    assert {head.split()[-1] for head in heads} == {"FAILED", "SEEN"}, "no column is cut off"
