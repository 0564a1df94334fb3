"""Stoker on PostgreSQL, and other queues on PostgreSQL beside it: `python -m bench.postgres` (docs/benchmarks.md)."""
