"""Where a rollout that was a continuation comes from: a part of the provenance of dataset rows."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from lab.data.datasets.sides import PROVENANCE
from lab.models.branches.models import Branch, Continuation
from lab.teams.accounts.models import Team


def register_branch_provenance() -> None:
    PROVENANCE.register("branches", find_branch_provenance)


def find_branch_provenance(team: Team, rollouts: Collection[int]) -> dict[int, dict[str, Any]]:
    """Rollout → {"branch": …, "sampler": how it was sampled}."""
    rows = Continuation.objects.filter(branch__team=team, rollout__in=rollouts).select_related("branch__rollout__run", "branch__checkpoint")
    return {row.rollout: {"branch": describe_origin(row), "sampler": describe_sampler(row.branch)} for row in rows if row.rollout is not None}


def describe_origin(continuation: Continuation) -> dict[str, Any]:
    branch = continuation.branch
    return {
        "id": str(branch.pk),
        "continuation": continuation.number,
        "rollout": branch.rollout_id,
        "run": branch.rollout.run.number,
        "step": branch.rollout.step,
        "token": branch.place,
        "choice": branch.choice,
        "chosen": branch.chosen,
        "chosen_text": branch.chosen_text,
        "sampled_text": branch.sampled_text,
        "checkpoint": branch.label,
        "updates_behind": branch.behind,
        "seed": branch.seed,
        "reward_functions_only": continuation.reward,
    }


def describe_sampler(branch: Branch) -> dict[str, Any]:
    return {"temperature": branch.temperature, "max_new_tokens": branch.max_tokens}
