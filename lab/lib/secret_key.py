"""The key that signs sessions: made once for an embedded installation, readable by its owner only; one that could be guessed is refused."""

import os
import secrets
from pathlib import Path

from django.core.exceptions import ImproperlyConfigured

LEAST_LENGTH = 50
LEAST_DIFFERENT = 10  # characters: openssl rand -base64 gives about 40, a key held down gives one
WRITTEN_SOMEWHERE = ("django-insecure", "change", "secret", "example", "password", "your")  # beginnings of keys that stand in instructions


def read_or_create(path: Path) -> str:
    """The key in ``path``; created with mode 0600 when absent. Raises ValueError on a key too short to sign with."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        key = path.read_text().strip()
        if len(key) < LEAST_LENGTH:
            raise ValueError(f"{path} holds {len(key)} characters, a secret key needs {LEAST_LENGTH}: delete the file to get a new one") from None
        return key
    key = secrets.token_urlsafe(64)
    with os.fdopen(file, "w") as out:
        out.write(key)
    return key


def refuse_weak(key: str) -> None:
    """Called by the web process and by workers. Raises ImproperlyConfigured with the fix; the key itself is not in the message."""
    problem = ""
    if len(key) < LEAST_LENGTH:
        problem = f"has {len(key)} characters, it needs {LEAST_LENGTH} or more"
    elif len(set(key)) < LEAST_DIFFERENT:
        problem = f"is made of {len(set(key))} different characters, which is guessable"
    elif key.lower().startswith(WRITTEN_SOMEWHERE):
        problem = "is a placeholder from instructions"
    if problem:
        raise ImproperlyConfigured(f"SECRET_KEY {problem}. Anyone who knows it can sign in as any user. Create one: openssl rand -base64 48")
