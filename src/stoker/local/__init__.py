"""A whole Stoker for a script or a notebook: `with Stoker.local() as app:`. See `docs/howto/local.md`.

The coordinator is a child process (`coordinator`, `serving`), with SQLite in a folder that is removed at the end unless it
was given. The worker is the real supervisor on a thread of this process (`worker`), and its children are threads too
(`children`), so tasks need not be importable by another process.

Every part ends with the block. If this process is killed, the coordinator notices, ends, and removes the folder.
"""
