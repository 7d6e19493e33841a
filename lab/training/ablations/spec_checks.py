"""What is wrong with the spec of one variant, before anything is queued: the spec's own rules, and which methods go together."""

from __future__ import annotations

from typing import Any

from lab.teams.accounts.models import Team
from lab.training.catalog.catalog import load_catalog
from lab.training.runs.launch import PENDING, check_launch_spec
from trainers.contract import stacking
from trainers.contract.spec import Problem, SpecError

Spec = dict[str, Any]


def problems_of(team: Team, spec: Spec) -> list[Problem]:
    try:
        checked = check_launch_spec(team, {**spec, "output": PENDING})
    except SpecError as error:
        return list(error.problems)
    known = load_catalog().methods_by_name
    if not all(choice.name in known for choice in (stacking.base_choice(checked), *checked.methods)):
        return []
    return list(stacking.check_stack(checked, known).problems)
