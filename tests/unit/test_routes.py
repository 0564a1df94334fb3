"""Which type of job runs where in a worker."""

from stoker.worker.routes import Routes, routes


def some_routes(**changes: object) -> Routes:
    given: dict[str, object] = {
        "python_types": ["echo", "add_numbers", "mine", "waits"],
        "builtin_types": ["echo", "add_numbers"],
        "async_types": ["waits"],
        "native_types": [],
        "runner_types": [],
        "commands": {},
    }
    return routes(**{**given, **changes})  # type: ignore[arg-type]


def test_without_a_runner_everything_runs_in_python() -> None:
    found = some_routes()
    assert {type: found.executor(type) for type in found.types} == {
        "echo": "python",
        "add_numbers": "python",
        "mine": "python",
        "waits": "async",
    }


def test_a_native_runner_takes_the_built_in_types_that_it_knows() -> None:
    found = some_routes(native_types=["add_numbers", "large_array_sum"])
    assert found.executor("add_numbers") == "native"
    assert found.executor("large_array_sum") == "native"
    assert found.executor("echo") == "python"


def test_a_task_of_the_users_app_goes_before_everything_else() -> None:
    found = some_routes(native_types=["mine"], runner_types=["mine"], commands={"mine": ("true",)})
    assert found.executor("mine") == "python"


def test_a_command_goes_before_the_runners() -> None:
    found = some_routes(native_types=["shrink"], runner_types=["shrink"], commands={"shrink": ("true",)})
    assert found.executor("shrink") == "command"
    assert found.commands == {"shrink": ("true",)}


def test_a_runner_that_lists_no_types_takes_what_nobody_else_has() -> None:
    found = some_routes(any_type=True, commands={"shrink": ("true",)})
    assert (found.types, found.any_type) == (["mine", "shrink", "waits"], True)
    assert [found.executor(type) for type in ("mine", "waits", "shrink")] == ["python", "async", "command"]
    assert [found.executor(type) for type in ("echo", "add_numbers", "unheard_of")] == ["runner"] * 3
    assert not some_routes().any_type


def test_async_types_are_named_apart() -> None:
    assert some_routes().async_types == ["waits"]
