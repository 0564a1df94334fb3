"""A whole Stoker for a script or a notebook: `with Stoker.local() as app:`. See `docs/howto/local.md`.

The coordinator is a child process (`coordinator`, `serving`), with SQLite in a folder that is removed at the end. The worker
is the real supervisor on a thread of this process (`worker`), and its children are threads too (`children`): tasks that no
other process could import run where they were defined.

Every part ends with the block. If this process is killed, the coordinator notices, ends, and removes the folder.
"""
