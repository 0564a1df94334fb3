"""How fast Stoker is on this machine, and whether it stays so as it fills up: `python -m bench` (docs/benchmarks.md)."""
