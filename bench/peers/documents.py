"""Write what was measured into docs/benchmarks.md, docs/images/benchmarks and README.md; run alone, only the settings."""

from collections.abc import Mapping, Sequence
from typing import Final

from bench.peers import growth, pages, picture, tables
from bench.peers.figures import Figures, Verdict
from bench.peers.systems import SYSTEMS
from bench.processes import ROOT

PAGE: Final = ROOT / "docs" / "benchmarks.md"
README: Final = ROOT / "README.md"
IMAGES: Final = ROOT / "docs" / "images" / "benchmarks"


def write_comparison(
    environment: Mapping[str, str],
    found: Figures,
    judged: Sequence[Verdict],
    failures: Sequence[str],
) -> None:
    IMAGES.mkdir(parents=True, exist_ok=True)
    image = IMAGES / "peers.svg"
    image.write_text(picture.bars(found, "Jobs that do nothing, end to end, 2 cores"), encoding="utf-8")
    shown = [
        "![Stoker beside its peers](images/benchmarks/peers.svg)",
        _facts(environment),
        tables.figure_table(found),
        tables.verdict_table(judged),
        *_failed(failures),
    ]
    pages.write(PAGE, "peers", "\n\n".join(filter(None, shown)))
    write_settings()
    pages.write(
        README,
        "peers",
        "[![Stoker beside its peers](docs/images/benchmarks/peers.svg)](docs/benchmarks.md#beside-its-peers)\n\n"
        + tables.figure_table(found, spreads=False),
    )


def write_settings() -> None:
    pages.write(PAGE, "peer settings", tables.settings_table(SYSTEMS))


def write_growth(
    environment: Mapping[str, str],
    curves: growth.Curves,
    judged: Sequence[growth.Judged],
    failures: Sequence[str],
) -> None:
    IMAGES.mkdir(parents=True, exist_ok=True)
    image = IMAGES / "growth.svg"
    title = "Stoker on SQLite as things grow, through the SDK, 2 cores"
    image.write_text(picture.lines(growth.plots(curves), title), encoding="utf-8")
    shown = [
        "![Growth curves](images/benchmarks/growth.svg)",
        _facts(environment),
        growth.table(curves),
        growth.verdict_table(judged),
        *_failed(failures),
    ]
    pages.write(PAGE, "growth", "\n\n".join(filter(None, shown)))


def _facts(environment: Mapping[str, str]) -> str:
    names = ["python", "cpus", "rounds", "load average at the start", "load average at the end"]
    names += ["sync of one page in the temporary folder", "source"]
    return "; ".join(f"{name}: {environment[name]}" for name in names if name in environment) + "."


def _failed(failures: Sequence[str]) -> list[str]:
    """What went wrong, one line each."""
    return (
        ["Problems of this run:\n\n" + "\n".join(f"- {line.splitlines()[0]}" for line in failures)]
        if failures
        else []
    )


if __name__ == "__main__":
    write_settings()
