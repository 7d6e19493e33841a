"""The launch form as what an ablation starts from: its button sends the form here instead of launching it."""

from __future__ import annotations

from typing import Any

from lab.teams.accounts.requests import LabRequest
from lab.training.catalog.catalog import load_catalog
from lab.training.runs.forms import LaunchForm
from lab.training.runs.views.launch_form import clean_form_inputs, draft_of

Spec = dict[str, Any]


def is_form(request: LabRequest) -> bool:
    return "recipe" in request.POST and not {"spec", "from_run"} & set(request.POST)


def spec_of(request: LabRequest) -> Spec | None:
    """The spec that the form stands for, as it was filled in; None for a chain, whose stages start from each other."""
    filled = LaunchForm(request.team, load_catalog(), draft_of(request, request.POST["recipe"], request.POST), clean_form_inputs(request.POST))
    return None if filled.draft.is_chain else filled.specs()[0]
