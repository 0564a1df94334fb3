"""A Docker engine of a test's own: its own socket, data and processes, and nothing of it left afterwards.

Nothing is pulled. The base image is a Debian made on the spot by `debootstrap`, with this machine's certificates in it,
since its packages and wheels are fetched with those. Once made, it is kept in `build/`, which is not in the repository.
"""

import contextlib
import json
import os
import shutil
import signal
import ssl
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

ROOT: Final = Path(__file__).parents[2]
SUITE: Final = "bookworm"
MIRROR: Final = "http://deb.debian.org/debian"
PACKAGES: Final = ("ca-certificates", "python3", "python3-venv")
BASE_IMAGE: Final = "base"
PASSED_ON: Final = ("PIP_INDEX_URL", "http_proxy", "https_proxy", "no_proxy")
"""Variables of this machine that a build may need to reach its packages. They are given to it, and stay in no image."""
START_SECONDS: Final = 60.0
PROGRAMS: Final = {"dockerd": "docker.io", "docker": "docker.io", "debootstrap": "debootstrap"}


def why_not() -> str | None:
    """Why no engine can be had here; None when one can. In CI, where packages can be had, only root may be missing."""
    if os.geteuid() != 0:
        return "a Docker engine of the test's own, and debootstrap, need root"
    missing = sorted({package for program, package in PROGRAMS.items() if shutil.which(program) is None})
    if missing and os.environ.get("CI") != "true":
        return f"not installed: {', '.join(missing)} (Debian packages)"
    return None


needs_docker = pytest.mark.skipif(why_not() is not None, reason=why_not() or "")


class Engine:
    """The `docker` command line for one engine."""

    def __init__(self, socket: Path) -> None:
        self.socket = socket
        self.host = f"unix://{socket}"

    @property
    def environ(self) -> dict[str, str]:
        # Without a builder of its own: that is a plugin of the command line, which Debian packages apart or not at all.
        return {"PATH": os.environ["PATH"], "DOCKER_HOST": self.host, "DOCKER_BUILDKIT": "0"}

    def __call__(self, *args: object, stdin: Any = subprocess.DEVNULL) -> str:
        """Run a command; its output. It must work."""
        done = subprocess.run(
            ["docker", *map(str, args)],
            env=self.environ,
            stdin=stdin,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, (
            f"docker {' '.join(map(str, args))}:\n{(done.stdout + done.stderr)[-6000:]}"
        )
        return done.stdout.strip()

    def answers(self) -> bool:
        done = subprocess.run(["docker", "version"], env=self.environ, capture_output=True, check=False)
        return done.returncode == 0

    def build(self, tag: str, dockerfile: Path, context: Path, target: str) -> None:
        passed = {name: os.environ[name] for name in PASSED_ON if os.environ.get(name)}
        arguments = [f"--build-arg={name}={value}" for name, value in passed.items()]
        # The build reaches its packages as this machine does; there is no other network.
        options = [
            "--network=host",
            f"--build-arg=BASE_IMAGE={BASE_IMAGE}",
            f"--target={target}",
            "--tag",
            tag,
        ]
        self("build", *arguments, *options, "--file", dockerfile, context)

    def run(self, image: str, *args: object, options: tuple[object, ...] = (), **environ: object) -> str:
        """Start a container; its id."""
        variables = [part for name, value in environ.items() for part in ("--env", f"{name}={value}")]
        return self("run", "--detach", *options, *variables, image, *args)

    def inspect(self, *args: object) -> Any:
        return json.loads(self("inspect", *args))[0]

    def containers(self, **labels: str) -> list[str]:
        """Names of all containers with these labels, also of those that ended."""
        filters = [f"--filter=label={label.replace('_', '.')}={value}" for label, value in labels.items()]
        return self("ps", "--all", *filters, "--format={{.Names}}").split()


# ── the engine ───────────────────────────────────────────────────────────────────────────────────────────────────────


@contextlib.contextmanager
def engine() -> Iterator[Engine]:
    """An engine that answers, with the base image in it."""
    with _scratch("stoker-docker-") as folder:  # a short path, since those of sockets are bounded
        log = folder / "dockerd.log"
        (folder / "daemon.json").write_text("{}")  # not the machine's own
        with log.open("wb") as out:
            daemon = subprocess.Popen(_argv(folder), stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        docker = Engine(folder / "docker.sock")
        try:
            _wait_for(docker, daemon, log)
            with base_tar().open("rb") as tar:
                docker("import", "-", BASE_IMAGE, stdin=tar)
            yield docker
        finally:
            if docker.answers():
                _remove_everything(docker)
            _stop(daemon)
        assert processes(folder) == [], "processes of the engine are left"
        # The engine never lets go of its handle to the machine's own network.
        assert [mount for mount in mounts(folder) if not mount.endswith("/netns/default")] == []


def _argv(folder: Path) -> list[str]:
    """No rules in the machine's firewall and no bridge that nobody asked for; networks are made by those who need one."""
    return [
        "dockerd",
        f"--host=unix://{folder}/docker.sock",
        f"--data-root={folder}/data",
        f"--exec-root={folder}/exec",
        f"--pidfile={folder}/dockerd.pid",
        f"--config-file={folder}/daemon.json",
        "--iptables=false",
        "--ip6tables=false",
        "--bridge=none",
    ]


def _wait_for(docker: Engine, daemon: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not docker.answers():
        assert daemon.poll() is None, f"dockerd ended by itself:\n{log.read_text()[-6000:]}"
        assert time.monotonic() < deadline, f"dockerd does not answer:\n{log.read_text()[-6000:]}"
        time.sleep(0.1)


def _remove_everything(docker: Engine) -> None:
    """Also what a failed test left, so that no interface of a network outlives the engine."""
    for name in docker.containers():
        docker("rm", "--force", "--volumes", name)
    docker("network", "prune", "--force")


def _stop(daemon: subprocess.Popen[bytes]) -> None:
    daemon.send_signal(signal.SIGTERM)
    try:
        daemon.wait(60)
    except subprocess.TimeoutExpired:
        daemon.kill()
        daemon.wait()


def processes(folder: Path) -> list[str]:
    """Command lines of living processes that name this folder: the engine's own, and those that hold its containers."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if str(folder) in line:
                    found.append(line)
    return found


def mounts(folder: Path) -> list[str]:
    lines = Path("/proc/self/mounts").read_text().splitlines()
    return [line.split()[1] for line in lines if line.split()[1].startswith(str(folder))]


# ── the base image ───────────────────────────────────────────────────────────────────────────────────────────────────


def base_tar() -> Path:
    """A small Debian with Python, as a tar."""
    tar = ROOT / "build" / "docker" / f"{SUITE}.tar"
    if not tar.exists():
        tar.parent.mkdir(parents=True, exist_ok=True)
        with _scratch("stoker-base-") as folder:
            root, part = folder / "root", tar.with_suffix(".part")
            _checked(
                "debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", SUITE, root, MIRROR
            )
            _trim(root)
            _checked("tar", "--create", f"--file={part}", f"--directory={root}", ".")
            part.rename(tar)
    return tar


@contextlib.contextmanager
def _scratch(prefix: str) -> Iterator[Path]:
    """A folder outside of those that pytest keeps, since what goes into it is large. Whatever is still mounted in it, by a
    program that was interrupted, is not its content and must not be deleted."""
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    try:
        yield folder
    finally:
        for mount in mounts(folder):
            subprocess.run(["umount", mount], check=True)
        shutil.rmtree(folder)


def _trim(root: Path) -> None:
    """Drop what can be fetched again, and let packages be installed without a sync of the disk for every file."""
    for cached in (*root.glob("var/cache/apt/archives/*.deb"), *root.glob("var/lib/apt/lists/*Packages")):
        cached.unlink()
    (root / "etc/dpkg/dpkg.cfg.d/unsafe-io").write_text("force-unsafe-io\n")
    certificates = os.environ.get("SSL_CERT_FILE") or ssl.get_default_verify_paths().openssl_cafile
    if Path(certificates).exists():
        shutil.copy(certificates, root / "etc/ssl/certs/ca-certificates.crt")


def _checked(*argv: object) -> None:
    done = subprocess.run([str(part) for part in argv], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{argv[0]}:\n{(done.stdout + done.stderr)[-4000:]}"
