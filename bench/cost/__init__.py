"""What a job costs each process, now and in another revision: `python -m bench.cost` (docs/benchmarks.md)."""
