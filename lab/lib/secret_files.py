"""Secrets that are files: what orchestrators mount (``/run/secrets/…``) instead of putting it into the environment, where others can read it."""

from __future__ import annotations

from collections.abc import MutableMapping
from pathlib import Path

from django.core.exceptions import ImproperlyConfigured

# NAME_FILE is read for each of these. Not for every name: AWS_WEB_IDENTITY_TOKEN_FILE and others mean something else.
NAMES = (
    *("SECRET_KEY", "DATABASE_URL", "REDIS_URL"),
    *("LAB_EMAIL_URL", "LAB_OIDC_SECRET", "LAB_METRICS_TOKEN", "LAB_JUDGE_KEY"),
    *("HF_TOKEN", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"),
)


def read_secret_files(environment: MutableMapping[str, str]) -> None:
    """Sets each NAME to what the file in NAME_FILE holds, without the newline at its end. Raises ImproperlyConfigured."""
    for name in NAMES:
        path = environment.get(f"{name}_FILE", "")
        if not path:
            continue
        try:
            secret = Path(path).read_text().rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "is no text"
            raise ImproperlyConfigured(f"{name}_FILE: {path} cannot be read ({reason}); it must be readable by the user that runs the lab") from None
        if not secret or "\0" in secret:
            raise ImproperlyConfigured(f"{name}_FILE: {path} must hold the secret and nothing else")
        if environment.get(name, secret) != secret:
            raise ImproperlyConfigured(f"{name} and {name}_FILE are both set, and differ; leave {name} out")
        environment[name] = secret
