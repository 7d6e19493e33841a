"""The answers of rows: their texts and where they came from, read once for many rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from lab.rollouts.annotations.token_stretches import ENVIRONMENT, Stretch, cut_into_steps
from lab.rollouts.trajectories.feed import lengths_of
from lab.rollouts.trajectories.models import Rollout, RolloutTokens
from lab.rollouts.trajectories.text_pieces import GIVEN, by_turn
from lab.rollouts.trajectories.tokens import arrays_of, build_token_units
from lab.teams.accounts.models import Team
from lab.training.runs.models import Run
from trainers.contract.arrays import PackError

Message = dict[str, str]
SAMPLING = (  # of a spec's training part: what decides how answers are sampled
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "repetition_penalty",
    "max_completion_length",
    "use_vllm",
)


@dataclass(frozen=True)
class Side:
    """One rollout as a row uses it. ``messages``: the answer in TRL's conversational form.

    ``steps``: its reasoning steps, where they were asked for; ``spoken``: the first token that is not the policy's.
    """

    rollout: int
    run: UUID
    step: int
    phase: str
    prompt: int
    asked: list[Message]
    messages: list[Message]
    reward: float | None
    rewards: Mapping[str, Any]
    provenance: dict[str, Any] = field(hash=False)
    steps: tuple[Stretch, ...] = ()
    spoken: int | None = None


def read_sides(team: Team, ids: Iterable[int], steps: bool = False) -> dict[int, Side]:
    """Rollouts of the team by id; those that are gone are missing. ``steps``: with their reasoning steps."""
    rollouts = list(Rollout.objects.of(team).filter(pk__in=set(ids)).select_related("prompt"))
    runs = Run.objects.of(team).in_bulk({one.run_id for one in rollouts})
    kept = {run.pk: kept_checkpoints(run) for run in runs.values()}
    lengths = lengths_of([one for one in rollouts if any(turn[0] != "assistant" for turn in one.turns)])
    found = {}
    for one in rollouts:
        run = runs[one.run_id]
        asked = [{"role": str(role), "content": str(content)} for role, content in one.prompt.messages]
        messages = messages_of(one, lengths.get(one.pk))
        provenance = provenance_of(one, run, kept[run.pk])
        found[one.pk] = Side(
            one.pk, one.run_id, one.step, one.phase, one.prompt_id, asked, messages, one.reward, select_numeric_rewards(one.rewards), provenance
        )
    return with_steps(found, rollouts, runs) if steps else found


def with_steps(found: Mapping[int, Side], rollouts: Sequence[Rollout], runs: Mapping[UUID, Run]) -> dict[int, Side]:
    """An answer whose tokens are not stored, or are damaged, has no steps."""
    packed = {one.rollout_id: one for one in RolloutTokens.objects.filter(rollout__in=list(rollouts))}
    made = dict(found)
    for one in rollouts:
        try:
            parts = (
                build_token_units(one.completion, arrays_of(packed[one.pk]), runs[one.run_id].special_tokens, one.turns) if one.pk in packed else []
            )
        except PackError:
            continue
        spoken = next((int(part[1]) for part in parts if part[3] & ENVIRONMENT), None)
        made[one.pk] = replace(found[one.pk], steps=tuple(cut_into_steps(parts)), spoken=spoken)
    return made


def select_numeric_rewards(rewards: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in rewards.items() if isinstance(value, int | float) and not isinstance(value, bool)}


def messages_of(rollout: Rollout, lengths: Any) -> list[Message]:
    """What the policy wrote as assistant, what the environment answered as tool; what a method gave belongs to the answer it began."""
    found: list[Message] = []
    for role, text in by_turn(rollout.completion, rollout.turns, lengths):
        role = "assistant" if role in ("assistant", GIVEN) else "tool"
        if found and found[-1]["role"] == role:
            found[-1]["content"] += text
        elif text:
            found.append({"role": role, "content": text})
    return found


def kept_checkpoints(run: Run) -> list[int]:
    """Steps of the checkpoints that are still on the disk."""
    rows = run.checkpoints.filter(final=False).values_list("step", "path")
    return sorted({step for step, path in rows if (run.folder / path).is_dir()})


def provenance_of(rollout: Rollout, run: Run, kept: Sequence[int]) -> dict[str, Any]:
    before = [step for step in kept if step <= rollout.step]
    checkpoint = {"step": before[-1], "exact": before[-1] == rollout.step} if before else None
    training = run.spec.get("training") or {}
    return {
        "rollout": rollout.pk,
        "run": run.number,
        "run_id": str(run.pk),
        "name": run.name,
        "step": rollout.step,
        "phase": rollout.phase,
        "group": rollout.group,
        "sample": rollout.sample,
        "attempt": rollout.attempt,
        "superseded": rollout.superseded,
        "checkpoint": checkpoint,
        "sampler": {name: training[name] for name in SAMPLING if training.get(name) not in (None, False)},
        "policy": run.policy,
        "reward": rollout.reward,
    }
