"""A lab into which a backup is being restored, or was until that was interrupted: nothing may start in it."""

from pathlib import Path

from django.conf import settings

from lab.lib.refusals import Refusal


def get_restore_marker() -> Path:
    """The file that stands while a restore is under way."""
    return Path(settings.HOME) / "restore.partial"


def refuse_half_restored() -> None:
    """Raises Refusal."""
    if get_restore_marker().exists():
        raise Refusal(
            f"A restore into {settings.HOME} is under way or was interrupted.",
            "Run the same manage.py restore again, which goes on where it was, or choose an empty LAB_HOME.",
        )
