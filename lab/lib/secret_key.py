"""The signing key of an embedded installation: made once, readable by its owner only."""

import os
import secrets
from pathlib import Path


def read_or_create(path: Path) -> str:
    """The key in ``path``; created with mode 0600 when absent. Raises ValueError on a key too short to sign with."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        key = path.read_text().strip()
        if len(key) < 50:
            raise ValueError(f"{path} holds {len(key)} characters, a secret key needs 50: delete the file to get a new one") from None
        return key
    key = secrets.token_urlsafe(64)
    with os.fdopen(file, "w") as out:
        out.write(key)
    return key
