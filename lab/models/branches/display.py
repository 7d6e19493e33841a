"""Branches as pages and scripts show them: what stands at the place, how far each continuation is, and its reward beside the group's."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.db.models import Avg, Q, QuerySet, StdDev

from lab.models.branches.models import Branch, Choice, Continuation, TokenAlternatives
from lab.models.branches.offered import describe_distance
from lab.models.playground.display import serialize_written
from lab.rollouts.trajectories.models import Rollout
from lab.rollouts.trajectories.text_pieces import Piece, iterate_text_pieces
from lab.teams.accounts.models import Team

EXCERPT = 280  # characters of a continuation in a list, from the place on


@dataclass(frozen=True)
class GroupRewards:
    """Over the members of the rollout's group: ``mean`` and ``std`` (of the sample) of their total reward; None where there is none."""

    mean: float | None
    std: float | None


@dataclass(frozen=True)
class ContinuationRow:
    continuation: Continuation
    against: float | None  # its reward less the group's mean
    pieces: list[Piece]  # what was written from the place on
    cut: bool


@dataclass(frozen=True)
class BranchRow:
    branch: Branch
    continuations: list[ContinuationRow]
    mean: float | None  # reward over the continuations that have one

    @property
    def place_words(self) -> str:
        return describe_choice(self.branch)

    @property
    def distance(self) -> str:
        return describe_distance(self.branch.behind)


def show_text(text: str) -> str:
    """A token's text so that white space can be seen."""
    return text.replace("\n", "↵").replace("\t", "→").replace(" ", "␣") or "(no text)"


def describe_choice(branch: Branch) -> str:
    """What stands at the place instead of what."""
    sampled = f"“{show_text(branch.sampled_text)}”"
    if branch.choice == Choice.POLICY:
        return f"instead of {sampled}: chosen by the policy"
    if branch.choice == Choice.KEEP:
        return f"{sampled} kept"
    return f"“{show_text(branch.chosen_text)}” instead of {sampled}"


def select_branches(team: Team, condition: Q) -> QuerySet[Branch]:
    """Newest first, with all that lists show."""
    rows: QuerySet[Branch] = Branch.objects.of(team).filter(condition)
    return rows.select_related("rollout__run", "user", "checkpoint").prefetch_related("continuations").order_by("-created_at", "-pk")


def load_group_rewards(rollout: Rollout) -> GroupRewards:
    """Branches are no members: they change neither number."""
    members = Rollout.objects.filter(
        run=rollout.run_id, phase=rollout.phase, step=rollout.step, group=rollout.group, attempt=rollout.attempt, run__team=rollout.run.team_id
    )
    found = members.aggregate(mean=Avg("reward"), std=StdDev("reward", sample=True))
    return GroupRewards(found["mean"], found["std"])


def build_branch_rows(branches: Iterable[Branch], rewards: GroupRewards) -> list[BranchRow]:
    """``branches`` with their continuations prefetched."""
    rows = []
    for branch in branches:
        own = [build_continuation_row(branch, one, rewards) for one in branch.continuations.all()]
        known = [row.continuation.reward for row in own if row.continuation.reward is not None]
        rows.append(BranchRow(branch, own, sum(known) / len(known) if known else None))
    return rows


def build_continuation_row(branch: Branch, continuation: Continuation, rewards: GroupRewards) -> ContinuationRow:
    reward = continuation.reward
    against = None if reward is None or rewards.mean is None else reward - rewards.mean
    text = continuation.text[count_kept_characters(branch, continuation) :]
    return ContinuationRow(continuation, against, list(iterate_text_pieces(text[:EXCERPT])), len(text) > EXCERPT)


def count_kept_characters(branch: Branch, continuation: Continuation) -> int:
    """Code points of the text before the place."""
    units = serialize_written(continuation, branch.special_tokens).get("units", [])
    return sum(len(text) for text, first, _, flags in units if first < branch.place and not flags & 1)


def build_branch_state(branch: Branch) -> dict[str, Any]:
    """What the page of a branch draws and its socket sends; ``sides`` as a sampling of the playground has them, with one side."""
    rewards = load_group_rewards(branch.rollout)
    samples = [serialize_continuation(branch, one, rewards) for one in branch.continuations.all()]
    return {
        "type": "sampling",
        "status": branch.status,
        "open": branch.is_open,
        "error": branch.error,
        "note": branch.note,
        "entropy": branch.entropy,
        "probability": None if branch.logprob is None else math.exp(branch.logprob),
        "chosen": describe_choice(branch),
        "sides": [{"device": branch.device, "samples": samples}],
    }


def serialize_continuation(branch: Branch, continuation: Continuation, rewards: GroupRewards) -> dict[str, Any]:
    reward = continuation.reward
    return {
        **serialize_written(continuation, branch.special_tokens, continuation.turns),
        "place": branch.place,
        "kept": branch.kept,
        "reward": reward,
        "rewards": continuation.rewards,
        "against": None if reward is None or rewards.mean is None else reward - rewards.mean,
        "problem": continuation.problem,
        "rollout": continuation.rollout,
    }


def build_alternatives_state(asked: TokenAlternatives) -> dict[str, Any]:
    """``tokens``: [{"id", "text", "shown", "probability", "end"}], likeliest first; empty until they are there."""
    result = asked.result or {}
    return {
        "id": str(asked.pk),
        "status": asked.status,
        "open": asked.is_open,
        "error": asked.error,
        "entropy": result.get("entropy"),
        "own": serialize_alternative(result["own"]) if result else None,
        "tokens": [serialize_alternative(token) for token in result.get("tokens", [])],
    }


def serialize_alternative(token: dict[str, Any]) -> dict[str, Any]:
    about = {name: token[name] for name in ("id", "text", "end")} | ({"rank": token["rank"]} if "rank" in token else {})
    return {**about, "shown": show_text(token["text"]), "probability": math.exp(token["logprob"])}
