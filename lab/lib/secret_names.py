"""Which environment variables hold a secret: the one list, for what children inherit and for what logs must not show."""

import re

CALLED_SECRET = re.compile(
    r"SECRET|PASSW|TOKEN(?!IZERS)|CREDENTIAL|PRIVATE|(API|ACCESS|AUTH|SIGNING|JUDGE)_?KEY"
    r"|(DATABASE|REDIS|EMAIL)_URL"  # addresses with a password in them
)


def is_secret_name(name: str) -> bool:
    return CALLED_SECRET.search(name.upper()) is not None
