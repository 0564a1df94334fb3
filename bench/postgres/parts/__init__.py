"""The parts of the benchmark on PostgreSQL, each a `run(context)`."""
