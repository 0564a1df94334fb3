"""How jobs are run: in child processes, so that nothing a job does can reach the worker that watches it."""
