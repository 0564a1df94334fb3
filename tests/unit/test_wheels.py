"""The markers of our dependencies, for each system that the docs promise; `make wheels` asks PyPI for the wheels."""

import pytest
from packaging.requirements import Requirement

from stoker.cli.doctor import asked_for
from tests import wheels

POSIX_ONLY = {"psutil", "uvloop"}


@pytest.mark.parametrize("target", wheels.TARGETS, ids=lambda target: target.name)
def test_what_windows_cannot_install_is_not_asked_for_there(target: wheels.Target) -> None:
    found = {one.name for one in wheels.wanted(wheels.requirements(), target.environment((3, 12)))}
    everything = {one.name for one in wheels.requirements()}
    assert found == (everything - POSIX_ONLY if target.sys_platform == "win32" else everything)
    assert everything >= POSIX_ONLY


@pytest.mark.parametrize("target", wheels.TARGETS, ids=lambda target: target.name)
def test_doctor_misses_only_what_was_asked_for_on_the_system(target: wheels.Target) -> None:
    found = {one.name for one in wheels.requirements() if asked_for(str(one), target.sys_platform)}
    assert found == {one.name for one in wheels.wanted(wheels.requirements(), target.environment((3, 12)))}
    assert not asked_for('aiodocker>=0.24; extra == "docker"', target.sys_platform)


def test_a_package_without_a_wheel_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    files = {
        "good": ["good-1.0-py3-none-any.whl"],
        "bad": ["bad-1.0-cp312-cp312-win_amd64.whl", "bad-2.0-cp312-cp312-manylinux_2_17_x86_64.whl"],
    }
    listed = {name: [{"filename": file} for file in names] for name, names in files.items()}
    monkeypatch.setattr(wheels, "requirements", lambda: [Requirement("good>=1")])
    monkeypatch.setattr(wheels, "_files", listed.__getitem__)
    needs = [Requirement("bad; sys_platform == 'win32'")]
    monkeypatch.setattr(wheels, "_dependencies", lambda name, version: needs)
    mac, _, windows, *_ = wheels.TARGETS
    assert wheels.missing(mac, (3, 12)) == ([], 1)
    assert wheels.missing(windows, (3, 12))[0] == ['bad; sys_platform == "win32"'], "its newest has none"
