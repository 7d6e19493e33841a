"""Finding two rollouts to compare: prompts that two runs answered, a pair of one of them, and what else answers a rollout's prompt."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

from django.db.models import Avg, Count, Max

from lab.rollouts.trajectories.models import Prompt, Rollout
from lab.teams.accounts.models import Team
from lab.training.runs.models import Run

PROMPTS = 20
ROWS = 200  # of a run, newest steps first
CANDIDATES = 60  # of a run
SEARCH = 200


@dataclass(frozen=True)
class SharedPrompt:
    """A prompt both runs answered, with their mean rewards over all answers."""

    prompt: Prompt
    counts: tuple[int, int]
    means: tuple[float | None, float | None]

    @property
    def delta(self) -> float | None:
        first, second = self.means
        return None if first is None or second is None else second - first


def shared_prompts(run: Run, other_run: Run, words: str = "") -> tuple[list[SharedPrompt], int]:
    """The prompts on which the runs' mean rewards differ most, and how many they share. Both queries are answered from the listing index."""
    first, second = by_prompt(run), by_prompt(other_run)
    both = first.keys() & second.keys()
    if words:
        both = set(Prompt.objects.filter(team=run.team_id, pk__in=both, text__icontains=words).values_list("pk", flat=True))

    def apart(prompt: int) -> tuple[float, int]:
        mine, theirs = first[prompt].mean, second[prompt].mean
        return (-1.0 if mine is None or theirs is None else abs(mine - theirs), min(first[prompt].last, second[prompt].last))

    chosen = sorted(both, key=apart, reverse=True)[:PROMPTS]
    prompts = Prompt.objects.of(run.team_id).in_bulk(chosen)
    return [
        SharedPrompt(prompts[key], (first[key].number, second[key].number), (first[key].mean, second[key].mean)) for key in chosen if key in prompts
    ], len(both)


class PromptAnswers(NamedTuple):
    """Of one run to one prompt."""

    mean: float | None
    number: int
    last: int  # step


def by_prompt(run: Run) -> dict[int, PromptAnswers]:
    rows = Rollout.objects.filter(run=run, superseded=False).order_by().values_list("prompt_id")
    rows_by_prompt = rows.annotate(Avg("reward"), Count("id"), Max("step"))
    return {prompt: PromptAnswers(mean, count, last) for prompt, mean, count, last in rows_by_prompt}


def pick_rollout_pair(left: Run, right: Run, prompt: int, by: str) -> tuple[int, int] | None:
    """A rollout of each run that answers the prompt: of the same step (the nearest, else), or of the same reward (the nearest). The newest win."""
    mine, theirs = (
        list(
            Rollout.objects.filter(run=run, prompt_id=prompt, superseded=False)
            .order_by("-step", "group", "sample")[:ROWS]
            .values_list("pk", "step", "reward", "sample")
        )
        for run in (left, right)
    )
    if not mine or not theirs:
        return None

    def far(pair: Any) -> tuple[float, float, float]:
        (_, step, reward, sample), (_, their_step, their_reward, their_sample) = pair
        steps, newest = abs(step - their_step), -float(step + their_step)
        if by == "reward":
            return (float("inf") if reward is None or their_reward is None else abs(reward - their_reward), newest, steps)
        return (steps, newest, abs(sample - their_sample))

    nearest = min(product(mine, theirs), key=far)
    return nearest[0][0], nearest[1][0]


@dataclass(frozen=True)
class PairCandidates:
    run: Run
    rollouts: list[Rollout]
    more: int  # that are not listed


def list_pair_candidates(team: Team, rollout: Rollout) -> list[PairCandidates]:
    """Other answers to the rollout's prompt: its own run first, the nearest steps first."""
    mine = Rollout.objects.of(team).filter(prompt_id=rollout.prompt_id, superseded=False).exclude(pk=rollout.pk)
    counts = dict(mine.order_by().values_list("run_id").annotate(Count("id")))
    runs = sorted(Run.objects.of(team).filter(pk__in=counts), key=lambda run: (run.pk != rollout.run_id, -run.number))
    light = mine.defer("completion", "turns", "nodes", "contributions", "shaped")
    return [
        PairCandidates(
            run,
            sort_nearest_rollouts(light.filter(run=run).order_by("-step", "group", "sample")[:ROWS], rollout),
            counts[run.pk] - min(counts[run.pk], CANDIDATES),
        )
        for run in runs
    ]


def sort_nearest_rollouts(rollouts: Iterable[Rollout], to: Rollout) -> list[Rollout]:
    return sorted(rollouts, key=lambda rollout: (abs(rollout.step - to.step), rollout.group != to.group, rollout.sample))[:CANDIDATES]
