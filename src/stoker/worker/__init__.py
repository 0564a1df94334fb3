"""The worker: a supervisor that never runs user code, and the children that do."""
