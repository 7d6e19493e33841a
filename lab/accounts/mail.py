"""Mail of an installation without a mail server: a file each, in a folder that only its owner may read, for they hold links that let people in."""

from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.mail.backends.filebased import EmailBackend as FileBackend


class PrivateFolder(FileBackend):
    def __init__(self, **kwargs: Any) -> None:
        Path(kwargs.get("file_path") or settings.EMAIL_FILE_PATH).mkdir(mode=0o700, parents=True, exist_ok=True)
        super().__init__(**kwargs)
