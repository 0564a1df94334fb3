"""Files that only their owner may read: a database holds what people submit, a log what their jobs write.

New files are made with mode 0600 and new folders with 0700. Files that an earlier release made readable for others are
mended when they are opened. SQLite gives the files beside a database (`-wal`, `-shm`) the mode of the database itself.
"""

import os
from pathlib import Path
from typing import Final

from stoker.system import SYSTEM

PRIVATE_FOLDER: Final = 0o700
OWN_FOLDER: Final = ".stoker"
BESIDE: Final = ("-wal", "-shm")


def make_folder(folder: Path) -> None:
    """Make a folder for a database, readable by its owner only. One that exists is mended only if it is `.stoker`, which
    Stoker makes for itself: any other may hold things that are meant for others."""
    folder.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
    if folder.name == OWN_FOLDER:
        mend(folder)


def make_file(path: Path) -> None:
    """Make sure that a file exists, readable by its owner only, without opening one that is there: closing it again would
    drop the locks that SQLite holds on it in this process."""
    try:
        os.close(SYSTEM.open_private(path, os.O_RDWR | os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        mend(path)


def mend(path: Path) -> None:
    """Take away what others may do with it. What belongs to another user stays as that user made it."""
    SYSTEM.hide_from_others(path)


def mend_database(path: Path) -> None:
    """Mend a database and the files that SQLite keeps beside it."""
    for name in (path.name, *(path.name + ending for ending in BESIDE)):
        mend(path.with_name(name))
