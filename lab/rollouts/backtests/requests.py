"""Asking for a backtest: what can be chosen, what is refused, and the message to a worker."""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.db.models import Max, Min

from lab.lib.refusals import InputRefusal, Problem
from lab.rollouts.backtests.models import NAME_LENGTH, Backtest
from lab.rollouts.backtests.stored_rows import list_columns
from lab.rollouts.replay.batch_span import select_trained_rollouts
from lab.teams.accounts.models import User
from lab.teams.audit.recording import record_audit_entry
from lab.training.rewards.models import RewardVersion
from lab.training.runs.models import Run
from lab.training.workers.messages import send_task_message

DRAFT = "a draft"


def find_step_span(run: Run) -> tuple[int, int] | None:
    """The first and the last step with training rollouts."""
    span = select_trained_rollouts(run).aggregate(first=Min("step"), last=Max("step"))
    return None if span["first"] is None else (span["first"], span["last"])


def prepare_backtest(
    run: Run, user: User | None, definition: dict[str, Any], version: RewardVersion | None, steps: tuple[int | None, int | None], against: str = ""
) -> Backtest:
    """The backtest, not saved. ``steps``: inclusive, None for the first or last there is. ``definition`` has been checked. Raises InputRefusal."""
    span = find_step_span(run)
    if span is None:
        raise InputRefusal([Problem("run", "This run has no training rollouts.", "Choose another run.")])
    first, last = (given if given is not None else known for given, known in zip(steps, span, strict=True))
    problems = []
    if first > last:
        problems.append(Problem("last", f"The last step is before the first, {first}.", "Swap them."))
    elif not select_trained_rollouts(run).filter(step__range=(first, last)).exists():
        problems.append(Problem("first", f"There are no rollouts in these steps; the run has steps {span[0]} to {span[1]}.", "Choose others."))
    if against and against not in (columns := list_columns(run)):
        problems.append(Problem("against", "The run has no such reward column.", f"Use one of {', '.join(columns)}, or the total."))
    if problems:
        raise InputRefusal(problems)
    name = (str(version) if version else DRAFT)[:NAME_LENGTH]
    about = {"definition": definition, "version": version, "name": name, "first_step": first, "last_step": last, "against": against}
    return Backtest(team=run.team, run=run, user=user, **about)


def start_backtest(backtest: Backtest) -> None:
    with transaction.atomic():
        backtest.save(force_insert=True)
        record_audit_entry("reward.backtest", backtest, name=backtest.name, run=backtest.run.number)
        enqueue_backtest(backtest)


def enqueue_backtest(backtest: Backtest) -> None:
    """Tells the workers once the transaction is committed. A message that cannot be sent now is sent by the next worker's sweep."""
    transaction.on_commit(lambda: send_task_message("backtest", backtest.pk))
