"""The answers of rows: their texts and where they came from, read once for many rows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from lab.lib.registry import Registry
from lab.rollouts.annotations.token_stretches import ENVIRONMENT, SPECIAL, TokenStretch, cut_into_steps
from lab.rollouts.trajectories.cards import lengths_of
from lab.rollouts.trajectories.models import Rollout, RolloutTokens
from lab.rollouts.trajectories.text_pieces import GIVEN, by_turn
from lab.rollouts.trajectories.tokens import arrays_of, build_token_units
from lab.teams.accounts.models import Team
from lab.training.runs.models import Run
from lab.training.runs.stored_checkpoints import list_steps_there
from trainers.contract.arrays import PackError

Message = dict[str, str]
SAMPLING = (  # of a spec's training part: what decides how answers are sampled
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "repetition_penalty",
    "max_completion_length",
    "generation",
    "use_vllm",  # its name in specs from before 26 November 2026
)


Origins = Callable[[Team, Collection[int]], Mapping[int, Mapping[str, Any]]]
PROVENANCE: Registry[Origins] = Registry("source of provenance")  # rooms further right say more about rollouts they made: id -> parts


@dataclass(frozen=True)
class SourceRollout:
    """One rollout as a row uses it. ``messages``: the answer in TRL's conversational form.

    ``steps``: its reasoning steps, where they were asked for; ``spoken``: the first token that is not the policy's.
    """

    rollout: int
    run: UUID
    step: int
    phase: str
    prompt: int
    prompt_messages: list[Message]
    messages: list[Message]
    reward: float | None
    rewards: Mapping[str, Any]
    provenance: dict[str, Any] = field(hash=False)
    steps: tuple[TokenStretch, ...] = ()
    spoken: int | None = None


def read_sides(team: Team, ids: Iterable[int], steps: bool = False) -> dict[int, SourceRollout]:
    """Rollouts of the team by id; those that are gone are missing. ``steps``: with their reasoning steps."""
    rollouts = list(Rollout.objects.filter(run__team=team, pk__in=set(ids)).select_related("prompt"))
    runs = Run.objects.filter(team=team).in_bulk({rollout.run_id for rollout in rollouts})
    kept = {run.pk: kept_checkpoints(run) for run in runs.values()}
    lengths = lengths_of([rollout for rollout in rollouts if any(turn[0] != "assistant" for turn in rollout.turns)])
    origins = [find(team, [rollout.pk for rollout in rollouts if rollout.phase == "play"]) for find in PROVENANCE.values()]
    sides = {}
    for rollout in rollouts:
        run = runs[rollout.run_id]
        prompt = [{"role": str(role), "content": str(content)} for role, content in rollout.prompt.messages]
        messages = messages_of(rollout, lengths.get(rollout.pk))
        provenance = provenance_of(rollout, run, kept[run.pk])
        for origin in origins:
            provenance |= origin.get(rollout.pk, {})
        sides[rollout.pk] = SourceRollout(
            rollout.pk,
            rollout.run_id,
            rollout.step,
            rollout.phase,
            rollout.prompt_id,
            prompt,
            messages,
            rollout.reward,
            select_numeric_rewards(rollout.rewards),
            provenance,
        )
    return with_steps(sides, rollouts, runs) if steps else sides


def with_steps(sides: Mapping[int, SourceRollout], rollouts: Sequence[Rollout], runs: Mapping[UUID, Run]) -> dict[int, SourceRollout]:
    """An answer whose tokens are not stored, or are damaged, has no steps."""
    packed = {tokens.rollout_id: tokens for tokens in RolloutTokens.objects.filter(rollout__in=list(rollouts))}
    stepped = dict(sides)
    for rollout in rollouts:
        try:
            parts = (
                build_token_units(rollout.completion, arrays_of(packed[rollout.pk]), runs[rollout.run_id].special_tokens, rollout.turns)
                if rollout.pk in packed
                else []
            )
        except PackError:
            continue
        spoken = next((int(part[1]) for part in parts if part[3] & ENVIRONMENT), None)
        stepped[rollout.pk] = replace(sides[rollout.pk], steps=tuple(cut_into_steps(parts)), spoken=spoken)
    return stepped


def read_token_edges(team: Team, ids: Iterable[int]) -> dict[int, list[int]]:
    """Rollout -> where each of its tokens begins in its answer, and where the last one ends, in characters.

    Tokens of one character begin together; special tokens have no text. An answer whose tokens are not stored, or are damaged, is missing.
    """
    edges: dict[int, list[int]] = {}
    rollouts = list(Rollout.objects.filter(run__team=team, pk__in=set(ids)).select_related("run"))
    packed = {tokens.rollout_id: tokens for tokens in RolloutTokens.objects.filter(rollout__in=rollouts)}
    for rollout in rollouts:
        try:
            units = build_token_units(rollout.completion, arrays_of(packed[rollout.pk]), rollout.run.special_tokens, rollout.turns)
        except (KeyError, PackError):
            continue
        edges[rollout.pk] = list_token_edges(units)
    return edges


def list_token_edges(units: Sequence[Sequence[Any]]) -> list[int]:
    at, edges = 0, list[int]()
    for text, _, count, flags in units:
        edges += [at] * count
        at += 0 if flags & SPECIAL else len(text)
    return [*edges, at]


def select_numeric_rewards(rewards: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in rewards.items() if isinstance(value, int | float) and not isinstance(value, bool)}


def messages_of(rollout: Rollout, lengths: Any) -> list[Message]:
    """What the policy wrote as assistant, what the environment answered as tool; what a method gave belongs to the answer it began."""
    messages: list[Message] = []
    for role, text in by_turn(rollout.completion, rollout.turns, lengths):
        role = "assistant" if role in ("assistant", GIVEN) else "tool"
        if messages and messages[-1]["role"] == role:
            messages[-1]["content"] += text
        elif text:
            messages.append({"role": role, "content": text})
    return messages


def kept_checkpoints(run: Run) -> list[int]:
    """Steps of the checkpoints that are still there."""
    return list_steps_there(run, run.checkpoints.filter(final=False))


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
