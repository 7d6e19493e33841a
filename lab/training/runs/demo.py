"""The demo: a chain of a supervised cold start, GRPO and DPO trained for real by a worker of its own, measured before and after.

Everything goes the way a person's run goes: launched by ``launch_recipe``, trained by the Celery worker, read back from the database and from the
web process over HTTP. The installation is that of ``make up``, in a team of the demo's own; where the environment names servers, ``<LAB_HOME>/demo``.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

from django.conf import settings
from django.urls import reverse
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from lab.teams.accounts import setup_link
from lab.teams.accounts.addresses import team_path
from lab.teams.accounts.demo_team import ensure_demo_account, find_demo_team, list_people
from lab.teams.accounts.models import Team, User
from lab.teams.accounts.sessions import begin_session
from lab.teams.audit.recording import from_command
from lab.training.runs import metrics
from lab.training.runs.launch import launch_recipe
from lab.training.runs.local_lab import LabError, LocalLab, free_port, prepare_database
from lab.training.runs.models import Run, Status
from lab.training.runs.progress import follow_runs
from lab.training.runs.stages import Spec

RECIPE = "demo"
THRESHOLD = 0.15  # by how much GRPO must raise the held-out reward, absolute
MEASURED = {"accuracy": "heldout/accuracy", "reward": "heldout/reward", "entropy": "heldout/entropy"}


class DemoError(RuntimeError):
    """The demo did not show what it promises; the message says what was missing."""


def run_demo(console: Console, overrides: Spec | None = None) -> int:
    """Runs the demo, with changes to its recipe if any, and returns the exit code: 0 when every stage finished and GRPO raised the held-out
    reward by THRESHOLD, else 1.
    """
    began = time.monotonic()
    try:
        console.print("Preparing the database …", highlight=False)
        prepare_database()
        user = ensure_demo_account()
        stop_leftovers(user)
        console.print("Starting the web process and the workers …", highlight=False)
        with LocalLab(free_port()) as lab:
            say_where_to_watch(console, lab)
            runs = train_demo_stages(user, lab, console, overrides)
            fetch_pages(user, lab, runs)
        console.print(table_of(runs))
        check_demo_result(runs)
    except (DemoError, LabError) as error:
        console.print(f"The demo failed: {error}", markup=False, highlight=False, soft_wrap=True)
        if find_demo_team():
            say_how_to_open(console)
        return 1
    rise = rise_of(grpo_of(runs))
    console.print(
        f"GRPO raised the held-out reward by {rise:+.3f} (at least {THRESHOLD:+.2f} was required). {time.monotonic() - began:.0f} seconds in all.",
        highlight=False,
        soft_wrap=True,
    )
    say_how_to_open(console)
    return 0


def say_where_to_watch(console: Console, lab: LocalLab) -> None:
    path = setup_link.create_setup_link() or team_path(find_team(), "runs")
    how = "sign in" if list_people().exists() else "the link makes the first account of this lab, which is that of make up"
    console.print(f"Watch it train: {lab.url}{path}  ({how})", markup=False, highlight=False, soft_wrap=True)


def say_how_to_open(console: Console) -> None:
    where = f"open http://127.0.0.1:8000{team_path(find_team(), 'runs')}" if list_people().exists() else "follow the link it prints"
    console.print(f"The demo's runs stay in the lab: start it with make up and {where}.", markup=False, highlight=False, soft_wrap=True)


def find_team() -> Team:
    team = find_demo_team()
    assert team is not None  # made with the demo's account
    return team


def stop_leftovers(user: User) -> None:
    """An earlier demo that was interrupted must not be trained before this one."""
    for run in Run.across_teams.filter(created_by=user):
        if run.is_open and run.request_stop() and run.is_active and run.folder.is_dir():
            (run.folder / "stop").touch()  # its supervisor is gone; the trainer may not be


def train_demo_stages(user: User, lab: LocalLab, console: Console, overrides: Spec | None) -> list[Run]:
    """The stages' runs, once they have ended. Raises LabError when a process of the lab ends."""
    with from_command():
        runs = launch_recipe(find_team(), user, RECIPE, overrides, name="Demo")

    def watch() -> None:
        for service in lab.check():
            console.print(f"{service} had exited and was restarted.")

    try:
        return follow_runs([run.pk for run in runs], console, watch)
    except BaseException:
        for run in runs:
            run.refresh_from_db()
            run.request_stop()
        raise


def fetch_pages(user: User, lab: LocalLab, runs: Sequence[Run]) -> None:
    """Reads every run's page from the web process, signed in as the demo's user. Raises DemoError."""
    cookie = f"{settings.SESSION_COOKIE_NAME}={begin_session(user, settings.AUTHENTICATION_BACKENDS[0])}"
    for run in runs:
        path = reverse("run", args=[run.pk])
        try:
            status, page = lab.get(path, cookie)
        except OSError as error:
            raise DemoError(f"the page of {run} cannot be read: {error}; see {lab.logs / 'web.log'}") from None
        if status != 200 or f"#{run.number}" not in page:
            raise DemoError(f"{lab.url}{path} answers {status}, not the page of {run}; see {lab.logs / 'web.log'}")


def before_and_after(run: Run, metric: str) -> tuple[float, float]:
    """The first and the last measurement of a metric, NaN where there is none."""
    series = metrics.read_metric_series(run.pk, [metric]).get(metric)
    if series is None or not len(series):
        return math.nan, math.nan
    return float(series.values[0]), float(series.values[-1])


def rise_of(run: Run) -> float:
    before, after = before_and_after(run, MEASURED["reward"])
    return after - before


def grpo_of(runs: Sequence[Run]) -> Run:
    return next(run for run in runs if run.trainer == "grpo")


def stored_rollouts(run: Run) -> int:
    return int(run.samples.count())


def table_of(runs: Sequence[Run]) -> Table:
    table = Table(title="Held-out problems, before → after each stage", box=SIMPLE, padding=(0, 1, 0, 0))
    table.add_column("stage", no_wrap=True)
    for heading in ("accuracy", "mean reward", "entropy (nats)", "rollouts stored", "seconds"):
        table.add_column(heading, justify="right")
    for run in runs:
        numbers = ["{:.3f}→{:.3f}".format(*before_and_after(run, metric)) for metric in MEASURED.values()]
        seconds = (run.finished_at - run.started_at).total_seconds() if run.finished_at and run.started_at else math.nan
        table.add_row(run.name.partition(": ")[2] or run.name, *numbers, f"{stored_rollouts(run):,}", f"{seconds:.0f}")
    return table


def check_demo_result(runs: Sequence[Run]) -> None:
    """Raises DemoError unless every stage finished, stored all its rollouts, and GRPO learnt."""
    for run in runs:
        if run.status != Status.FINISHED:
            raise DemoError(f"{run} is {run.status}: {run.reason or 'the stage before it did not finish'}; its files are in {run.folder}")
        if not run.rollouts or stored_rollouts(run) != run.rollouts:
            raise DemoError(f"{run} counted {run.rollouts} rollouts, {stored_rollouts(run)} are stored")
    rise = rise_of(grpo_of(runs))
    if not rise >= THRESHOLD:
        raise DemoError(f"GRPO changed the held-out reward by {rise:+.3f}; a rise of at least {THRESHOLD:+.2f} was expected")
