"""``manage.py launch``: queues the runs of a recipe, as the browser's form does."""

from __future__ import annotations

import re
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.checks import Tags
from django.core.management.base import BaseCommand, CommandError
from rich.console import Console

from lab.teams.accounts.models import Membership, Team, User
from lab.teams.audit.recording import from_command
from lab.training.catalog.catalog import join_sorted_names, load_catalog
from lab.training.runs.launch import launch_recipe, plan_recipe
from lab.training.runs.models import Run, Status
from lab.training.runs.placement import QUEUE
from lab.training.runs.preflight import PreflightError, run_preflight
from lab.training.runs.progress import follow_runs
from lab.training.runs.stages import Spec, from_argument, from_assignments, merge_spec_changes
from trainers.contract.spec import FINAL, Problem, RunSpec, SpecError

REFUSED = 2
FROM_RUN = re.compile(r"run:(\d+)(?:@(\d+))?")


class Command(BaseCommand):
    requires_system_checks = (Tags.models,)  # the check of addresses imports all pages and the API: half of a start
    help = (
        "Queues the runs of a recipe. Exit codes: 0 queued (with --wait: finished), 1 failed, 2 refused, one problem a line, 3 stopped and saved. "
        "Example: launch grpo --set training.max_steps=20 --set task.difficulty=medium --wait"
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("recipe", metavar="RECIPE", help=f"one of: {recipe_names()}")
        parser.add_argument(
            "--set", action="append", default=[], metavar="KEY=VALUE", dest="assignments", help="change a value, for example training.max_steps=20"
        )
        parser.add_argument("--base", default="", metavar="NAME[:KEY=VALUE,…]", help="stack on this base instead of the recipe's")
        parser.add_argument(
            "--method",
            action="append",
            default=[],
            metavar="NAME[:KEY=VALUE,…]",
            dest="methods",
            help="stack this method, for example rs-grpo:risk=3; given again, methods act in this order and replace the recipe's. In a recipe"
            " of several stages each goes to the stages whose trainer it works on",
        )
        parser.add_argument("--policy", default="", help="tiny, tiny-untrained, a hub id, a folder, or run:NUMBER[@STEP] for a run's policy")
        parser.add_argument("--name", default="", help="name of the run (default: the recipe's)")
        parser.add_argument("--wait", action="store_true", help="show progress and wait for the end; Ctrl-C does not stop the run")
        parser.add_argument("--user", default="", metavar="EMAIL", help="launch as this person (default: the first owner of the team)")
        parser.add_argument("--team", default="", metavar="SLUG", help="launch for this team (default: the only one)")

    def handle(
        self,
        *args: Any,
        recipe: str,
        assignments: list[str],
        base: str,
        methods: list[str],
        policy: str,
        name: str,
        wait: bool,
        user: str,
        team: str,
        **options: Any,
    ) -> None:
        chosen_team, chosen_user = choose_launch_account(user, team)
        try:
            overrides = from_assignments(assignments)
            if base:
                overrides["base"] = from_argument(base)
            if methods:
                overrides["methods"] = [from_argument(method) for method in methods]
            if policy:
                overrides = merge_spec_changes(overrides, {"policy": policy_from(chosen_team, policy)})
            self.preflight(plan_recipe(chosen_team, recipe, overrides, paths=True))
            with from_command():
                runs = launch_recipe(chosen_team, chosen_user, recipe, overrides, name, paths=True)
        except SpecError as error:
            for problem in error.problems:
                self.stderr.write(str(problem))
            raise SystemExit(REFUSED) from None
        for run in runs:
            after = f" after #{run.parent.number}" if run.parent else ""
            self.stdout.write(f"queued {run}{after}  {run.folder}")
        self.stdout.flush()
        if wait:
            self.wait(runs)

    def preflight(self, specs: list[RunSpec]) -> None:
        """Raises SpecError with what the trainers would refuse; prints their warnings."""
        problems = []
        first = specs[0].policy.model_dump(mode="json")
        for number, spec in enumerate(specs):
            try:
                report = run_preflight(spec.model_dump(mode="json"), policy_pending=number > 0, origin=first, queue=QUEUE)
            except PreflightError as error:
                raise CommandError(str(error)) from None
            stage = f"stages.{number}." if len(specs) > 1 else ""
            problems += [problem_in(stage, problem) for problem in report.get("problems", [])]
            for warning in report.get("warnings", []):
                self.stderr.write(f"warning: {problem_in(stage, warning)}")
        if problems:
            raise SpecError(problems)

    def wait(self, runs: list[Run]) -> None:
        try:
            ended = follow_runs([run.pk for run in runs], Console(soft_wrap=True))
        except KeyboardInterrupt:
            self.stdout.write("No longer following; the run continues.")
            raise SystemExit(130) from None
        for run in ended:
            self.stdout.write(f"{run}: {run.status}{f', {run.reason}' if run.reason else ''}")
        raise SystemExit(exit_code(ended))


def problem_in(stage: str, data: dict[str, Any]) -> Problem:
    known = {key: data[key] for key in ("value", "message", "fix", "given") if key in data}
    return Problem(field=f"{stage}{data['field']}", **known)


def exit_code(runs: list[Run]) -> int:
    """0 when all finished, 1 when one failed, else 3."""
    statuses = {run.status for run in runs}
    if statuses == {Status.FINISHED}:
        return 0
    return 1 if Status.FAILED in statuses else 3


def recipe_names() -> str:
    try:
        return join_sorted_names(recipe["name"] for recipe in load_catalog().recipes)
    except LookupError:
        return "the recipes of the catalogue"


def choose_launch_account(email: str, slug: str) -> tuple[Team, User | None]:
    """The team and the person to launch as. Raises CommandError."""
    teams = Team.objects.filter(slug=slug) if slug else Team.objects.order_by("pk")
    if slug and not teams:
        raise CommandError(
            f"--team {slug}: no such team; teams: {join_sorted_names(Team.objects.values_list('slug', flat=True))}", returncode=REFUSED
        )
    memberships = Membership.objects.filter(team__in=teams).select_related("team", "user").order_by("pk")
    if email:
        memberships = memberships.filter(user__email__iexact=email)
        if not memberships:
            raise CommandError(f"--user {email}: nobody of that address is in {f'the team {slug}' if slug else 'any team'}", returncode=REFUSED)
    elif not memberships:
        raise CommandError("nobody has an account yet: start the lab (make up) and open the set-up link it prints", returncode=REFUSED)
    slugs = {membership.team.slug for membership in memberships}
    if len(slugs) > 1:
        raise CommandError(f"there are several teams, choose one with --team: {join_sorted_names(slugs)}", returncode=REFUSED)
    owners = [membership for membership in memberships if membership.role == "owner"]
    chosen = (owners or list(memberships))[0]
    return chosen.team, chosen.user


def policy_from(team: Team, text: str) -> Spec:
    """The policy part of a spec for what --policy says. Raises SpecError."""
    if text in ("tiny", "tiny-untrained"):
        return {"kind": "tiny", "cold_start": text == "tiny"}
    if match := FROM_RUN.fullmatch(text):
        run = Run.objects.of(team).filter(number=int(match[1])).first()
        if run is None:
            raise SpecError([Problem("policy", text, f"the team {team} has no run #{match[1]}")])
        return {"kind": "run", "run": str(run.pk), "checkpoint": int(match[2]) if match[2] else FINAL}
    path = Path(text).expanduser()
    if path.exists() or text.startswith((".", "/", "~")):
        return {"kind": "folder", "path": str(path)}
    return {"kind": "hub", "name": text}
