"""Folders of the lab: deleted with everything in them, never anything outside the lab's own root; and a file that is in two of them."""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path

log = logging.getLogger(__name__)


def remove_folder(root: Path, name: str) -> None:
    """Deletes ``name`` right below ``root``. A link there, or inside, is taken away itself; what it points to stays. What fails is logged."""
    folder = root.resolve() / name
    if name in ("", ".", "..") or folder.name != name:
        raise ValueError(f"{name!r} is no folder right below {root}")
    try:
        if folder.is_symlink() or folder.is_file():
            folder.unlink()
        elif folder.exists():
            shutil.rmtree(folder)
    except OSError as error:
        log.warning("%s could not be deleted whole: %s", folder, error)


def link_or_copy(source: str, target: str) -> None:
    """A hard link, or a copy where that is another file system, or one without links. Raises OSError."""
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:
        shutil.copy2(source, target)
