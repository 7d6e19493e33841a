"""Secrets in text that is kept or shown: the logs of trainers and of the lab's own processes.

What a secret of this machine is worth is known from the environment; others are known by their form. What is neither cannot be recognised:
nothing here makes it safe to print secrets, it makes an accident smaller.
"""

from __future__ import annotations

import logging
import os
import re
from functools import lru_cache

from lab.lib.secret_names import is_secret_name

HIDDEN = "[secret]"
LEAST = 8  # characters of a value worth hiding: shorter ones occur by chance
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
# Links that let in whoever has them: to set up the lab, to join a team, to reset a password, to verify an address.
LINKS = re.compile(
    r"((?:/|%2F)(?:setup|invitation|password(?:/|%2F)reset(?:/|%2F)key|confirm-email)(?:/|%2F))[A-Za-z0-9_=.~:%-]{16,}", re.IGNORECASE | re.ASCII
)
PARAMETERS = re.compile(
    r"([?&;](?:token|access_token|id_token|refresh_token|secret|client_secret|password|key|api_?key|sig|signature|code|state(?==[^&\s]{16}))=)"
    r"""[^&#\s"'<>]+""",
    re.IGNORECASE,
)


@lru_cache(maxsize=1)
def compile_secret_pattern(environment: tuple[tuple[str, str], ...]) -> re.Pattern[str] | None:
    """The values of secrets in the environment, longest first."""
    values = {value for name, value in environment if is_secret_name(name) and len(value) >= LEAST}
    return re.compile("|".join(map(re.escape, sorted(values, key=len, reverse=True)))) if values else None


def redact_secrets(text: str) -> str:
    values = compile_secret_pattern(tuple(os.environ.items()))
    if values is not None:
        text = values.sub(HIDDEN, text)
    text = LINKS.sub(rf"\1{HIDDEN}", FORMS.sub(HIDDEN, text))
    return PARAMETERS.sub(rf"\1{HIDDEN}", text)


class RedactionFilter(logging.Filter):
    """For handlers: a record's words and its traceback without secrets."""

    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        clean = redact_secrets(message)
        if clean != message:
            record.msg, record.args = clean, None
        if record.exc_info and not record.exc_text:
            record.exc_text = redact_secrets(logging.Formatter().formatException(record.exc_info))
        return True
