"""The file descriptors of a worker: how many it needs, and that a start that fails for want of them leaves none open."""

import os
import resource
from collections.abc import Callable
from pathlib import Path

import pytest

from stoker.executors.command import OneShot, command_argv
from stoker.executors.native import NativeChild
from stoker.executors.pipe import ChildBatch
from stoker.executors.process import Child, PythonChild
from stoker.ids import new_id
from stoker.wire.frames import Assignment
from stoker.worker.descriptors import affordable, needed
from tests.unit.test_python_child import Ear


@pytest.mark.parametrize("kinds", [1, 2, 3])
@pytest.mark.parametrize("limit", [0, 10, 30, 40, 64, 256, 1024])
def test_threads_that_fit_are_as_many_as_possible_and_no_more(limit: int, kinds: int) -> None:
    threads = affordable(100, limit, kinds=kinds)
    assert 0 <= threads <= 100
    assert threads == 0 or needed(threads, kinds=kinds) <= limit
    assert threads == 100 or needed(threads + 1, kinds=kinds) > limit


def open_files() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


def python_child(ear: Ear) -> Child:
    return PythonChild("test", ear.callbacks(), app=None, max_result_bytes=1000)


def native_child(ear: Ear) -> Child:
    return NativeChild("test", ear.callbacks(), binary=Path("/bin/cat"), max_result_bytes=1000)


def command(ear: Ear) -> Child:
    child = OneShot("test", ear.callbacks(), argv=command_argv(["true"]), max_result_bytes=1000)
    child.send([ChildBatch(0, Assignment("", 1, "true", b""), [new_id()], [b"null"])])
    return child


@pytest.mark.parametrize("start", [python_child, native_child, command])
async def test_a_start_that_lacks_descriptors_leaves_none_open(start: Callable[[Ear], Child]) -> None:
    before = open_files()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(map(int, before))
    for free in range(14):
        ear = Ear()
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1 + free, hard))
        try:
            child = start(ear)
        except OSError:
            child = None
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        if child is not None and child.pid:
            child.end()
        elif child is not None:
            await ear.gone.wait()
            assert ear.results == [], "it has not run, so it has not ended"
        assert open_files() == before
