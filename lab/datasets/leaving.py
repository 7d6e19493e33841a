"""A team that is deleted: its frozen versions and uploads go from the disk, once its rows are gone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from django.conf import settings

from lab.accounts.models import Team
from lab.datasets import uploads
from lab.lib.folders import remove
from lab.people import deleting


def register() -> None:
    deleting.CLEARERS.append(folders)


def folders(team: Team) -> Callable[[], None]:
    name = str(team.pk)  # afterwards the team has no key any more

    def clear() -> None:
        for root in (Path(settings.DATASETS_ROOT), uploads.root()):
            remove(root, name)

    return clear
