"""The websocket of a branch: the whole of it whenever something was written."""

from __future__ import annotations

from typing import Any

from lab.models.branches.display import build_branch_state
from lab.models.branches.models import Branch
from lab.models.playground.consumers import SamplerQuestionConsumer


class BranchConsumer(SamplerQuestionConsumer):
    model, parameter = Branch, "branch_id"

    def build_state(self) -> dict[str, Any]:
        return build_branch_state(Branch.across_teams.select_related("rollout__run").get(pk=self.question_id))
