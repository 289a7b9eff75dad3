"""Directories for what this package compiles: which of them belong to the user alone.

Later processes run what is compiled. In the temporary directory, where everybody can write, a directory is therefore used only
while it belongs to the user and is closed to everybody else.
"""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path


def own_directory() -> Path | None:
    """A directory for this user alone in the temporary directory; None if there cannot be one."""
    if not hasattr(os, "geteuid"):
        return None
    try:
        directory = Path(tempfile.gettempdir(), f"delta-variant-{os.geteuid()}")
        with suppress(FileExistsError):
            directory.mkdir(mode=0o700)
    except OSError:
        return None
    return directory if is_own(directory) else None


def is_own(directory: Path) -> bool:
    """Whether nobody else can put files into a directory or replace the directory itself."""
    try:
        own, parent = directory.lstat(), directory.parent.stat()
    except OSError:
        return False
    replaceable = parent.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not parent.st_mode & stat.S_ISVTX
    return stat.S_ISDIR(own.st_mode) and own.st_uid == os.geteuid() and not own.st_mode & 0o077 and not replaceable
