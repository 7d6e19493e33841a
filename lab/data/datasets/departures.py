"""A team that is deleted: its frozen versions and uploads go from the disk, once its rows are gone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from django.conf import settings

from lab.data.datasets import uploads
from lab.lib.folders import remove_folder
from lab.teams.accounts.models import Team
from lab.teams.people import team_deletion
from lab.training.runs.store_deletions import request_store_deletions


def register_folder_clearer() -> None:
    team_deletion.CLEARERS.register("dataset folders", make_folder_clearer)


def make_folder_clearer(team: Team) -> Callable[[], None]:
    name = str(team.pk)  # afterwards the team has no key any more

    def clear() -> None:
        for root in (Path(settings.DATASETS_ROOT), uploads.get_upload_root()):
            remove_folder(root, name)
        request_store_deletions([f"datasets/{name}"])

    return clear
