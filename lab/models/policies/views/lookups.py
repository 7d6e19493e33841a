"""The team's objects by the ids of an address, or 404: also for an id that no row can have."""

from __future__ import annotations

from django.shortcuts import get_object_or_404

from lab.models.policies.models import Alias, Proposal, Push
from lab.teams.accounts.requests import LabRequest
from lab.training.runs.models import Checkpoint


def checkpoint_of(request: LabRequest, checkpoint_id: int) -> Checkpoint:
    rows = Checkpoint.objects.of(request.team).select_related("run__team", "run__created_by", "run__project")
    return get_object_or_404(rows, pk=checkpoint_id)


def alias_of(request: LabRequest, alias_id: int) -> Alias:
    return get_object_or_404(Alias.objects.filter(team=request.team).select_related("checkpoint__run"), pk=alias_id)


def proposal_of(request: LabRequest, proposal_id: int) -> Proposal:
    rows = Proposal.objects.filter(team=request.team)
    rows = rows.select_related("alias__checkpoint__run", "checkpoint__run__team", "checkpoint__run__created_by", "asked_by", "decided_by")
    return get_object_or_404(rows, pk=proposal_id)


def push_of(request: LabRequest, push_id: int) -> Push:
    return get_object_or_404(Push.objects.filter(team=request.team).select_related("checkpoint__run", "by"), pk=push_id)


def read_post_text(request: LabRequest, name: str, most: int = 1000) -> str:
    return request.POST.get(name, "").replace("\0", "").strip()[:most]
