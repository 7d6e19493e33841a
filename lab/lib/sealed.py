"""Secrets at rest: what a person entrusts to the lab (a hub token, a webhook's key) is stored encrypted and never shown again.

Fernet (AES-128-CBC with HMAC-SHA256) under a key derived from SECRET_KEY by HKDF; ``purpose`` separates kinds of secrets.
"""

from base64 import urlsafe_b64encode

from cryptography.fernet import Fernet, InvalidToken
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings


class UnsealError(Exception):
    """The secret was sealed under another SECRET_KEY or for another purpose; the person has to enter it again."""


def _make_fernet(purpose: str) -> Fernet:
    key = HKDF(SHA256(), 32, salt=None, info=f"policy-lab/{purpose}".encode()).derive(settings.SECRET_KEY.encode())
    return Fernet(urlsafe_b64encode(key))


def seal_secret(purpose: str, secret: str) -> bytes:
    return _make_fernet(purpose).encrypt(secret.encode())


def unseal_secret(purpose: str, sealed: bytes) -> str:
    """Raises UnsealError."""
    try:
        return _make_fernet(purpose).decrypt(bytes(sealed)).decode()
    except InvalidToken:
        raise UnsealError(f"this {purpose} was stored with a different signing key; enter it again") from None
