"""The embedded store: one SQLite file, one coordinator."""
