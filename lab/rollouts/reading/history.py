"""What became of prompts over the steps of a run: pass rates, rewards, when one was solved and when it was unlearned.

A *visit* is all answers to a prompt at one step of one phase; a *series* is the visits of one run and phase, held-out ones apart from training,
because they are measured otherwise. An answer passes when the task's first reward function, its accuracy, gives more than 0.5; where the task is
not in the catalogue or that function gave nothing, when its total reward is above 0. Steps that a resumed attempt replayed are left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from uuid import UUID

from django.db import connection

from lab.rollouts.trajectories.steps import PHASE_LABELS
from lab.training.catalog.catalog import CatalogError, load_catalog
from lab.training.runs.models import Run

SOLVED = 0.5  # pass rate from which a visit counts as solved
MOST_VISITS = 20_000  # of a prompt that are read
MOST_ROLLOUTS = 200_000  # of a run that its list of prompts is counted from

# The accuracy's name is looked up by run, so that one statement serves runs of several tasks.
PASSED = """
CASE WHEN jsonb_typeof(rewards -> (%(accuracy)s::jsonb ->> run_id::text)) = 'number'
     THEN (rewards ->> (%(accuracy)s::jsonb ->> run_id::text))::float > 0.5
     ELSE coalesce(reward > 0, false) END
"""
OF_PROMPT = f"""
SELECT run_id, phase, step, min(group_index), count(*), avg(({PASSED})::int)::float, avg(reward), min(reward), max(reward), avg(mean_entropy),
       avg(length)::float
FROM trajectories_rollout WHERE prompt_id = %(prompt)s AND run_id = ANY(%(runs)s) AND NOT superseded
GROUP BY run_id, phase, step ORDER BY run_id, phase, step LIMIT %(most)s
"""  # noqa: S608 constants of this file
OF_RUN = f"""
SELECT prompt_id, step, min(group_index), count(*), avg(({PASSED})::int)::float, avg(reward), min(reward), max(reward), avg(mean_entropy),
       avg(length)::float
FROM trajectories_rollout WHERE run_id = %(run)s AND step >= %(floor)s AND phase = %(phase)s AND NOT superseded
GROUP BY prompt_id, step ORDER BY prompt_id, step
"""  # noqa: S608 constants of this file


@dataclass(slots=True)
class PromptVisit:
    step: int
    group: int
    count: int
    passed: float  # share of its answers
    mean: float | None  # of the rewards
    low: float | None
    high: float | None
    entropy: float | None  # nats, mean over its answers' means
    length: float | None  # tokens

    @property
    def solved(self) -> bool:
        return self.passed >= SOLVED


@dataclass(frozen=True)
class OutcomeChange:
    """A change for better or worse. ``confirmed`` when the next visit agreed; only the last visit of a series may be alone."""

    step: int
    solved: bool
    confirmed: bool

    @property
    def words(self) -> str:
        return f"{'solved' if self.solved else 'unlearned'} at {self.step}{'' if self.confirmed else '?'}"


@dataclass
class PromptSeries:
    run: Run
    phase: str
    visits: list[PromptVisit] = field(default_factory=list)

    @property
    def phase_label(self) -> str:
        return PHASE_LABELS.get(self.phase, self.phase)

    @property
    def answers(self) -> int:
        return sum(visit.count for visit in self.visits)

    @cached_property
    def turns(self) -> list[OutcomeChange]:
        return find_turns(self.visits)

    @property
    def state(self) -> str:
        return classify_prompt_state(self.turns)

    @property
    def ever_passed(self) -> bool:
        return any(visit.solved for visit in self.visits)

    @property
    def solved_at(self) -> int | None:
        """Where it was solved first."""
        return next((turn.step for turn in self.turns if turn.solved and turn.confirmed), None)

    @property
    def unlearned_at(self) -> int | None:
        """Where it was lost last, if it has not been solved again."""
        last = next((turn for turn in reversed(self.turns) if turn.confirmed), None)
        return last.step if last and not last.solved else None


def find_turns(visits: Sequence[PromptVisit]) -> list[OutcomeChange]:
    """Solved at the first visit with a pass rate of at least 0.5 whose next visit has that too; unlearned, after that, at the first visit below
    0.5 whose next visit is below too; and so on. One visit that differs from those around it is no turn, except at the end, where nobody knows
    yet: that one is given unconfirmed.
    """
    turns: list[OutcomeChange] = []
    solved = False
    for index, visit in enumerate(visits):
        if visit.solved == solved:
            continue
        is_last = index + 1 == len(visits)
        if is_last or visits[index + 1].solved == visit.solved:
            turns.append(OutcomeChange(visit.step, visit.solved, confirmed=not is_last))
            solved = visit.solved
    return turns


def classify_prompt_state(turns: Sequence[OutcomeChange]) -> str:
    """solved, unlearned or never, by the confirmed turns; once when it passed at its last visit only, as every prompt of a single epoch does."""
    last = next((turn for turn in reversed(turns) if turn.confirmed), None)
    if last is None:
        return "once" if turns else "never"
    return "solved" if last.solved else "unlearned"


@dataclass(frozen=True)
class PromptLoss:
    """What was lost since a step: the pass rate of the last visit at or before it, and the mean over all visits after it."""

    before: float
    since: float

    @property
    def amount(self) -> float:
        return self.before - self.since

    @property
    def is_lost(self) -> bool:
        return self.before >= SOLVED > self.since


def measure_pass_rate_loss(visits: Sequence[PromptVisit], step: int) -> PromptLoss | None:
    """None where one of the two sides has no visit."""
    earlier = [visit.passed for visit in visits if visit.step <= step]
    later = [visit.passed for visit in visits if visit.step > step]
    return PromptLoss(earlier[-1], sum(later) / len(later)) if earlier and later else None


def accuracy_of(run: Run) -> str:
    """Name of the reward function that says whether an answer is right; empty when the catalogue does not know the task."""
    try:
        rewards = load_catalog().task(run.task)["rewards"]
    except CatalogError:
        return "correct"
    return str(rewards[0]["name"]) if rewards else ""


def name_accuracies(runs: Iterable[Run]) -> dict[UUID, str]:
    """``accuracy_of`` by the run's id; the catalogue is asked once for each task."""
    by_task: dict[str, str] = {}
    return {run.pk: by_task[run.task] if run.task in by_task else by_task.setdefault(run.task, accuracy_of(run)) for run in runs}


def encode_accuracy_names(runs: Iterable[Run]) -> str:
    return json.dumps({str(pk): name for pk, name in name_accuracies(runs).items()})


def of_prompt(prompt: int, runs: dict[UUID, Run]) -> list[PromptSeries]:
    """A series for each run and phase that asked the prompt, in the order of the runs' numbers."""
    given: dict[str, Any] = {"prompt": prompt, "runs": list(runs), "accuracy": encode_accuracy_names(runs.values()), "most": MOST_VISITS}
    series_by_key: dict[tuple[UUID, str], PromptSeries] = {}
    with connection.cursor() as cursor:
        cursor.execute(OF_PROMPT, given)
        for run, phase, *rest in cursor.fetchall():
            series_by_key.setdefault((run, phase), PromptSeries(runs[run], phase)).visits.append(PromptVisit(*rest))
    phases = list(PHASE_LABELS)
    return sorted(series_by_key.values(), key=lambda series: (series.run.number, phases.index(series.phase) if series.phase in phases else 9))


def load_run_visits(run: Run, phase: str, floor: int = 0) -> dict[int, list[PromptVisit]]:
    """The visits of every prompt of a run's phase from step ``floor`` on, by the prompt's id."""
    given: dict[str, Any] = {"run": run.pk, "phase": phase, "floor": floor, "accuracy": encode_accuracy_names([run])}
    visits: dict[int, list[PromptVisit]] = {}
    with connection.cursor() as cursor:
        cursor.execute(OF_RUN, given)
        for prompt, *rest in cursor.fetchall():
            visits.setdefault(prompt, []).append(PromptVisit(*rest))
    return visits


def floor_of(run: Run, last: int) -> int:
    """The step from which about MOST_ROLLOUTS rollouts of the run lie; 0 when it has no more."""
    return int(last * (1 - MOST_ROLLOUTS / run.rollouts)) if run.rollouts > MOST_ROLLOUTS else 0
