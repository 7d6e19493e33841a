"""The policy that a run on a version starts from: of one of the team's runs, the built-in one, a folder beside the lab, or a model of the hub."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.conf import settings

from lab.data.loop import checkpoints
from lab.data.loop.checkpoints import PolicyCandidate
from lab.lib.numbers import parse_whole_number
from lab.lib.refusals import Refusal
from lab.teams.accounts.models import Team
from lab.training.runs.form_parts import names_in
from lab.training.runs.models import Run
from trainers.contract.spec import FINAL, HUB_ID

ELSEWHERE, TINY, FOLDER, HUB = "elsewhere", "tiny", "folder", "hub"  # texts of the input ``policy``, besides ``<run>:<checkpoint>``


@dataclass(frozen=True)
class StartPolicy:
    """``policy``: as a spec names it (lab.training.runs.references); ``candidate``: where it is a policy of a run."""

    policy: dict[str, Any]
    candidate: PolicyCandidate | None = None

    @property
    def kind(self) -> str:
        return str(self.policy["kind"]) if self.candidate is None else "run"

    @property
    def is_built_in(self) -> bool:
        """Whether it is the built-in policy, or comes from it by training."""
        return self.kind == TINY if self.candidate is None else descends_from_tiny(self.candidate.run)


def list_policy_folders() -> list[str]:
    """The folders that hold policies, as the launch form offers them."""
    return names_in(Path(settings.POLICIES_ROOT), folders=True)


def read_start(team: Team, values: Mapping[str, str]) -> StartPolicy:
    """What the inputs name: ``policy``, and with it ``elsewhere``, ``folder``, or ``hub`` and ``revision``. Raises Refusal."""
    kind = values.get("policy", "")
    if kind == TINY:
        return StartPolicy({"kind": TINY, "cold_start": True})
    if kind == FOLDER:
        return StartPolicy({"kind": FOLDER, "folder": folder_named(values.get("folder", "").strip())})
    if kind == HUB:
        name, revision = values.get("hub", "").strip(), values.get("revision", "").strip() or "main"
        if not re.fullmatch(HUB_ID, name):
            words = f"“{name[:80]}” is not the id of a model on the hub" if name else "No model entered"
            raise Refusal(f"{words}: enter it as owner/name, for example Qwen/Qwen2.5-0.5B-Instruct.", field="hub", status=422)
        return StartPolicy({"kind": HUB, "name": name, "revision": revision})
    candidate = candidate_of(team, values.get(ELSEWHERE, "") if kind == ELSEWHERE else kind)
    if candidate is None:
        raise Refusal("Choose a policy to start from.", field="policy", status=422)
    return StartPolicy(candidate.policy, candidate)


def folder_named(name: str) -> str:
    """Raises Refusal for one that is not offered."""
    folders = list_policy_folders()
    if name in folders:
        return name
    fix = f"Available: {', '.join(folders)}." if folders else "None found: copy a model folder into the lab's policies folder."
    raise Refusal(f"{f'There is no folder “{name[:80]}”.' if name else 'Choose a folder.'} {fix}", field="folder", status=422)


def candidate_of(team: Team, value: str) -> PolicyCandidate | None:
    """The policy of a choice ``<run>:<checkpoint>``; None where the team has no such run or the checkpoint is none."""
    run, checkpoint = find_chosen_run(team, value), value.partition(":")[2]
    if run is None:
        return None
    if (step := parse_whole_number(checkpoint, 999_999_999)) is not None:
        return PolicyCandidate(run, step, step)
    known = {FINAL: run.step, checkpoints.START: 0}
    return PolicyCandidate(run, checkpoint, known[checkpoint]) if checkpoint in known else None


def find_chosen_run(team: Team, value: str) -> Run | None:
    """The team's run of a choice ``<run>:<checkpoint>``."""
    try:
        key = uuid.UUID(value.partition(":")[0])
    except ValueError:
        return None
    return Run.objects.of(team).select_related("team").filter(pk=key).first()


def descends_from_tiny(run: Run) -> bool:
    """Whether the first policy of its chain of runs is the built-in one."""
    seen = {run.pk}
    while (before := run.parent) is not None and before.pk not in seen:
        seen.add(before.pk)
        run = before
    return (run.spec.get("policy") or {}).get("kind") == TINY
