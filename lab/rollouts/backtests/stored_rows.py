"""Stored rollouts as rows that a reward function scores. What else a row's task knew (``data``) is not stored with rollouts."""

from __future__ import annotations

import uuid
from itertools import zip_longest
from typing import Any

from lab.rollouts.backtests.models import MOST_ROLLOUTS, Backtest
from lab.rollouts.replay.batch_span import select_trained_rollouts
from lab.rollouts.trajectories.models import Rollout
from lab.teams.accounts.models import Team
from lab.training.rewards.try_box import SOURCES
from lab.training.runs.models import Run

MOST_SEEN = 256  # rollouts of the newest step among which those to try are chosen


def load_rollouts(backtest: Backtest) -> list[Rollout]:
    """The newest MOST_ROLLOUTS of the steps, in whole groups."""
    rows = select_trained_rollouts(backtest.run).filter(step__range=(backtest.first_step, backtest.last_step))
    found = list(rows.select_related("prompt").order_by("-step", "group", "sample")[: MOST_ROLLOUTS + 1])
    if len(found) <= MOST_ROLLOUTS:
        return found
    last = (found[-1].step, found[-1].group)
    return [rollout for rollout in found if (rollout.step, rollout.group) != last] or found[:MOST_ROLLOUTS]


def build_row(rollout: Rollout) -> dict[str, Any]:
    """As ``python -m trainers score`` takes it."""
    prompt = [{"role": role, "content": content} for role, content in rollout.prompt.messages]
    return {"completion": rollout.completion, "reference": rollout.prompt.reference, "prompt": prompt}


def find_stored_reward(rollout: Rollout, against: str) -> float | None:
    """What the rollout had in training: a column's score, or the total."""
    value = rollout.rewards.get(against) if against else rollout.reward
    return float(value) if isinstance(value, int | float) else None


def list_columns(run: Run) -> list[str]:
    """The reward columns that the run's newest rollout has."""
    newest = select_trained_rollouts(run).order_by("-step").only("rewards").first()
    return list(newest.rewards) if newest else []


def find_try_rows(team: Team, run_id: str, most: int) -> list[dict[str, str]]:
    """Rollouts of the newest step of the team's run, one of each group in turn, equal ones once; none for what is no run."""
    try:
        run = Run.objects.of(team).filter(pk=uuid.UUID(run_id)).first()
    except ValueError:
        return []
    if run is None:
        return []
    newest = list(select_trained_rollouts(run).select_related("prompt").order_by("-step", "group", "sample")[:MOST_SEEN])
    groups: dict[int, dict[str, Rollout]] = {}
    for rollout in newest:
        if rollout.step == newest[0].step:
            groups.setdefault(rollout.group, {}).setdefault(rollout.completion, rollout)
    turns = zip_longest(*(list(group.values()) for group in groups.values()))
    rows = [row for turn in turns for row in turn if row is not None][:most]
    return [{"completion": row.completion, "reference": row.prompt.reference, "prompt": row.prompt.text} for row in rows]


def register_try_rows() -> None:
    SOURCES.register("rollouts", find_try_rows)
