"""One module for each system that is compared, run in the system's own environment: standard library and its packages only.

A driver has a task that does nothing but mark the board, and `producer()`, which returns a `kit.Producer`. It reads
`BENCH_BOARD` (the shared board) and `BENCH_URL` (the broker, database or server). Peers are imported by name, because
the environment in which types are checked does not have them.
"""
