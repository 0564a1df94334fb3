"""`python -m bench.peers.drivers NAME [VERB]`: the producer of a system, or a function of its driver (`work`, `install`).

The driver is imported by its full name, so that a task has the same name here and in the workers.
"""

import importlib
import sys

from bench.peers.drivers import kit


def main() -> None:
    driver = importlib.import_module(f"bench.peers.drivers.{sys.argv[1]}")
    if len(sys.argv) > 2:
        getattr(driver, sys.argv[2])()
    else:
        kit.main(driver.producer())


if __name__ == "__main__":
    main()
