"""Mail of an installation without a mail server: a file each, in a folder that only its owner may read, for they hold links that let people in."""

from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.mail.backends.filebased import EmailBackend as FileBackend

from lab.lib.private_files import make_private_folder, open_private_log

UNDELIVERED = (  # backends whose mails reach nobody's mailbox
    "lab.teams.accounts.mail.PrivateFolder",
    "django.core.mail.backends.filebased.EmailBackend",
    "django.core.mail.backends.console.EmailBackend",
    "django.core.mail.backends.dummy.EmailBackend",
)


def has_mail_server() -> bool:
    """Whether a mail goes to its address, so that a link in it proves that somebody reads that address's mail."""
    return settings.EMAIL_BACKEND not in UNDELIVERED


class PrivateFolder(FileBackend):
    def __init__(self, **kwargs: Any) -> None:
        make_private_folder(Path(kwargs.get("file_path") or settings.EMAIL_FILE_PATH))
        super().__init__(**kwargs)

    def open(self) -> bool:
        if self.stream is not None:
            return False
        self.stream = open_private_log(Path(self._get_filename()))
        return True
