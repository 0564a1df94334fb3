"""`python -m bench.path`: count the files and functions of the project that one job and one GET pass through."""

import argparse
import tempfile
from collections.abc import Iterable
from pathlib import Path

from bench.path.trace import Called, Function, trace


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--functions", action="store_true", help="name every function")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="stoker-path-") as folder:
        found = trace(Path(folder))
    print(
        "Files and functions of src/stoker that run beyond what an idle system runs (SQLite, one Python job):\n"
    )
    print(f"{'':16}{'process':14}{'files':>7}{'functions':>12}")
    _print("one job", found.job)
    _print("one GET", found.get)
    _print("both", {role: found.job[role] | found.get[role] for role in found.job})
    if options.functions:
        for what, called in (("one job", found.job), ("one GET", found.get)):
            for role, functions in sorted(called.items()):
                print(f"\n{what}, {role}:")
                print("\n".join(f"  {function}" for function in sorted(functions)))


def _print(what: str, called: Called) -> None:
    for role, functions in sorted(called.items()):
        if functions:
            print(f"{what:16}{role:14}{_files(functions):7}{len(functions):12}")
    every = frozenset().union(*called.values())
    print(f"{what:16}{'all':14}{_files(every):7}{len(every):12}\n")


def _files(functions: Iterable[Function]) -> int:
    return len({function.file for function in functions})


if __name__ == "__main__":
    main()
