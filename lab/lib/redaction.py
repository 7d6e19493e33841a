"""Secrets in text that is kept or shown: the logs of trainers and of the lab's own processes.

What a secret of this machine is worth is known from the environment; others are known by their form. What is neither cannot be recognised:
nothing here makes it safe to print secrets, it makes an accident smaller.
"""

from __future__ import annotations

import logging
import os
import re
from functools import lru_cache

HIDDEN = "[secret]"
LEAST = 8  # characters of a value worth hiding: shorter ones occur by chance
NAMED = re.compile(r"SECRET|PASSW|TOKEN|CREDENTIAL|PRIVATE|(API|ACCESS|AUTH|SIGNING|JUDGE)_?KEY|DATABASE_URL|REDIS_URL|EMAIL_URL")
NOT_SECRET = ("TOKENIZERS_PARALLELISM",)
FORMS = re.compile(
    r"""\bhf_[A-Za-z0-9]{20,}                                   # hubs
    | \blab_[A-Za-z0-9]{8}_[A-Za-z0-9]{40}\b                    # the lab's own access tokens
    | \bsk-[A-Za-z0-9_-]{20,}                                   # endpoints of models
    | \b(?:gh[pousr]_[A-Za-z0-9]{30,}|github_pat_\w{30,})
    | \b(?:AKIA|ASIA)[A-Z0-9]{16}\b
    | (?<=://)[^/\s:@]*:[^/\s@]+(?=@)                           # name and password in an address
    | (?<=earer\ )[\w.~+/-]{12,}=*                              # Authorization: Bearer …
    | -----BEGIN\ [A-Z ]*PRIVATE\ KEY-----.*?-----END\ [A-Z ]*PRIVATE\ KEY-----""",
    re.VERBOSE | re.DOTALL,
)


@lru_cache(maxsize=1)
def known(environment: tuple[tuple[str, str], ...]) -> re.Pattern[str] | None:
    """The values of secrets in the environment, longest first."""
    values = {value for name, value in environment if NAMED.search(name.upper()) and name not in NOT_SECRET and len(value) >= LEAST}
    return re.compile("|".join(map(re.escape, sorted(values, key=len, reverse=True)))) if values else None


def redacted(text: str) -> str:
    values = known(tuple(os.environ.items()))
    if values is not None:
        text = values.sub(HIDDEN, text)
    return FORMS.sub(HIDDEN, text)


class Redacting(logging.Filter):
    """For handlers: a record's words and its traceback without secrets."""

    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        clean = redacted(message)
        if clean != message:
            record.msg, record.args = clean, None
        if record.exc_info and not record.exc_text:
            record.exc_text = redacted(logging.Formatter().formatException(record.exc_info))
        return True
