"""The secret key beside a backup: in a file of its own, known by a fingerprint, and what cannot be read without it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from allauth.mfa.models import Authenticator
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from lab.lib.private_files import make_private_folder
from lab.lib.refusals import Refusal
from lab.lib.secret_key import LEAST_LENGTH
from lab.models.policies.models import HubToken
from lab.watching.alerts.models import Webhook

KEY_BYTES = 4096
FINGERPRINT_BYTES = 8
SEALED_FACTORS = (Authenticator.Type.TOTP, Authenticator.Type.RECOVERY_CODES)


def fingerprint_secret_key(key: str) -> str:
    """Tells two keys apart and says nothing of either: derived from it as the keys of sealed secrets are, for a purpose of its own."""
    return HKDF(SHA256(), FINGERPRINT_BYTES, salt=None, info=b"policy-lab/fingerprint of a backup").derive(key.encode()).hex()


def write_secret_key(path: Path, key: str) -> None:
    """A new file that only its owner may read. Raises OSError."""
    path = path.expanduser().resolve()
    if not path.parent.exists():
        make_private_folder(path.parent)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(key)
        file.flush()
        os.fsync(file.fileno())


def read_secret_key(path: Path) -> str:
    """Raises Refusal."""
    path = path.expanduser()
    try:
        if not stat.S_ISREG(path.stat().st_mode) or path.stat().st_size > KEY_BYTES:
            raise Refusal(f"{path} is not a file with a secret key.", "Give the file that manage.py backup --key wrote.", field="--key")
        key = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not a text"
        raise Refusal(f"{path} cannot be read: {why}.", "Give the file that manage.py backup --key wrote.", field="--key") from None
    if len(key) < LEAST_LENGTH:
        raise Refusal(f"{path} holds {len(key)} characters, a secret key has {LEAST_LENGTH} or more.", "Give the whole key.", field="--key")
    return key


def replace_secret_key(path: Path, key: str) -> None:
    """The key of an embedded lab, whole or as it was. Raises OSError."""
    part = path.with_name(f"{path.name}.{os.getpid()}")
    part.unlink(missing_ok=True)
    write_secret_key(part, key)
    os.replace(part, path)


def list_unreadable_secrets() -> list[str]:
    """What the database holds sealed under another key than the lab's, in words: to be set up anew by the people it belongs to."""
    counts = {
        "authenticator apps and sets of recovery codes (reset them in /admin/, people set up new ones)": Authenticator.objects.filter(
            type__in=SEALED_FACTORS
        ).count(),
        "webhooks (enter address and secret again)": Webhook.across_teams.count(),
        "hub tokens (enter them again)": HubToken.across_teams.count(),
    }
    return [f"{count} {name}" for name, count in counts.items() if count]
