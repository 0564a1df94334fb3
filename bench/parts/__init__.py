"""The parts of the benchmark, one module for each question."""
