"""Which queue a page is about, and whether the person may see it."""

from __future__ import annotations

from django.shortcuts import get_object_or_404

from lab.labelling.labels.models import Queue
from lab.labelling.labels.people import open_to
from lab.teams.accounts.requests import LabRequest
from lab.teams.accounts.roles import has_team_permission


def find_visible_queue(request: LabRequest, queue_id: int) -> Queue:
    """The team's queue, or 404; of those that are not open to an annotator, too."""
    return get_object_or_404(
        open_to(request.team, request.user, has_team_permission(request, "label.lead")).select_related("team", "created_by"), pk=queue_id
    )
