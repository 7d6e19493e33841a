"""Deleting checkpoints: asked for by a person or by the team's rules, done by a worker once the time to take it back is over.

A checkpoint that somebody relies on is never deleted. Its folder is renamed first, in one step and with the run's row locked, so that it is whole or
absent to everybody; what was renamed is deleted afterwards, and a worker that dies in between leaves that for the next round.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections import defaultdict
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from django.conf import settings
from django.db import connection, transaction

from lab.data.loop.checkpoints import find_nearest_candidate, list_policy_candidates, updates_before
from lab.data.loop.policy_descent import RunLineage
from lab.lib.clock import database_now
from lab.lib.refusals import Refusal
from lab.models.policies import blind_votes
from lab.models.policies.checkpoint_paths import format_checkpoint_label, has_checkpoint_files
from lab.models.policies.models import UNDER_WAY, UNDO, Alias, Proposal, ProposalState, Push, Removal
from lab.models.policies.promotion import require_team_permission
from lab.teams.accounts.models import Team, User
from lab.teams.audit.recording import record_audit_entry
from lab.training.runs.models import OPEN, RESUMABLE, Checkpoint, Run
from lab.training.runs.store_deletions import request_store_deletions
from lab.training.runs.stored_checkpoints import find_local_folder, name_checkpoint
from trainers.contract.spec import FINAL

log = logging.getLogger(__name__)
AGAIN = timedelta(hours=1)  # until the next look at one that could not be deleted
AT_ONCE = 20

SAMPLED = """
SELECT DISTINCT r.run_id, r.phase, r.step
FROM datasets_dataset AS own JOIN datasets_version AS v ON v.dataset_id = own.id JOIN datasets_row AS d ON d.version_id = v.id
CROSS JOIN LATERAL unnest(d.rollouts) AS answer(id) JOIN trajectories_rollout AS r ON r.id = answer.id
WHERE own.team_id = %s
"""


def request_removal(team: Team, user: User, checkpoint: Checkpoint) -> Removal:
    """The checkpoint will be deleted when UNDO is over. Raises Refusal."""
    require_team_permission(team, user, "policies.promote")
    with transaction.atomic():
        held = Checkpoint.objects.select_for_update(of=("self",)).select_related("run__team").same_row(checkpoint).filter(run__team=team).first()
        if held is None:
            raise Refusal("Your team has no such checkpoint.")
        if reasons := relied_on(team, [held])[held.pk]:
            raise Refusal(f"{format_checkpoint_label(held)} was not deleted: {'; '.join(reasons)}.")
        if not has_checkpoint_files(held):
            raise Refusal("Its files are no longer on disk.")
        removal, created = Removal.objects.get_or_create(checkpoint=held, defaults={"team": team, "by": user, "due_at": database_now() + UNDO})
        if not created:
            if removal.kept_at is None:
                raise Refusal("It is already scheduled for deletion.")
            removal.by, removal.asked_at, removal.due_at = user, database_now(), database_now() + UNDO
            removal.kept_at, removal.problem = None, ""
            removal.save()
        record_audit_entry("policy.delete", held, team=team, actor=user, label=format_checkpoint_label(held), asked=True, bytes=held.bytes)
    return removal


def cancel_removal(team: Team, user: User, checkpoint: Checkpoint) -> None:
    """Takes a deletion back; the team's rules leave the checkpoint alone from then on. Raises Refusal when it is too late."""
    require_team_permission(team, user, "policies.promote")
    with transaction.atomic():
        removal = Removal.objects.select_for_update().filter(checkpoint=checkpoint, team=team).first()
        if removal is None or removal.kept_at is not None:
            raise Refusal("It is not scheduled for deletion.")
        if removal.deleted_at is not None or not has_checkpoint_files(checkpoint):
            raise Refusal("Too late: it was already deleted.")
        removal.kept_at = database_now()
        removal.save(update_fields=["kept_at"])
        record_audit_entry("policy.keep", checkpoint, team=team, actor=user, label=format_checkpoint_label(checkpoint))


def relied_on(team: Team, checkpoints: Sequence[Checkpoint], versions: bool = True) -> dict[int, list[str]]:
    """Checkpoint → why it has to stay. Runs must be loaded. ``versions``: also what dataset versions were sampled with."""
    reasons_by_id: dict[int, list[str]] = {checkpoint.pk: [] for checkpoint in checkpoints}
    for alias in Alias.objects.filter(checkpoint__in=checkpoints):
        reasons_by_id[alias.checkpoint_id].append(f"it has the alias {alias.name}")  # type: ignore[index]
    for pk in Proposal.objects.filter(checkpoint__in=checkpoints, state=ProposalState.OPEN).values_list("checkpoint", flat=True):
        reasons_by_id[pk].append("an alias was requested for it")
    for pk in Push.objects.filter(checkpoint__in=checkpoints, state__in=UNDER_WAY).values_list("checkpoint", flat=True):
        reasons_by_id[pk].append("it is being pushed to a hub")
    children = started_from(team)
    near = near_versions(team, checkpoints) if versions else set[int]()
    voted = blind_votes.collect_match_evidence(checkpoints)
    newest = newest_to_resume(checkpoints)
    for checkpoint in checkpoints:
        reasons = reasons_by_id[checkpoint.pk]
        if checkpoint.run.status in OPEN:
            reasons.append(f"its run is {checkpoint.run.status}")
        elif checkpoint.pk in newest:
            reasons.append(f"its run was {checkpoint.run.status} and is resumed from it")
        if numbers := children.get((checkpoint.run_id, FINAL if checkpoint.final else str(checkpoint.step))):
            reasons.append(f"{', '.join(f'#{number}' for number in numbers[:3])}{' and others' if len(numbers) > 3 else ''} started from it")
        if voted[checkpoint.pk]:
            reasons.append("its answers are used in a match")
        if checkpoint.pk in near:
            reasons.append("it is the nearest policy to answers in a dataset version")
    return reasons_by_id


def started_from(team: Team) -> dict[tuple[object, str], list[int]]:
    """(run, checkpoint as a spec names it) → numbers of the runs that started from it."""
    starts: defaultdict[tuple[object, str], list[int]] = defaultdict(list)
    for run in RunLineage(team).runs.values():
        if run.source is not None:
            starts[run.source, run.checkpoint].append(run.number)
    return starts


def newest_to_resume(checkpoints: Sequence[Checkpoint]) -> set[int]:
    """The newest checkpoint that is there of each run that may be resumed."""
    runs = {checkpoint.run for checkpoint in checkpoints if checkpoint.run.status in RESUMABLE}
    newest: dict[object, Checkpoint] = {}
    for row in Checkpoint.objects.filter(run__in=runs, final=False).order_by("step", "pk"):
        if has_checkpoint_files(row):
            newest[row.run_id] = row
    return {row.pk for row in newest.values()}


def near_versions(team: Team, checkpoints: Sequence[Checkpoint]) -> set[int]:
    """Those that training from a dataset version would offer first: for some answer in one, no policy that is there is nearer."""
    runs = {checkpoint.run_id: checkpoint.run for checkpoint in checkpoints}
    with connection.cursor() as cursor:
        cursor.execute(SAMPLED, [team.pk])
        rows = [row for row in cursor.fetchall() if row[0] in runs]
    versions_near: set[tuple[object, object]] = set()
    for run in {row[0] for row in rows}:
        offered = list_policy_candidates(runs[run])
        versions_near |= {
            (run, find_nearest_candidate(offered, updates_before(phase, step)).checkpoint) for own, phase, step in rows if own == run and offered
        }
    return {checkpoint.pk for checkpoint in checkpoints if (checkpoint.run_id, FINAL if checkpoint.final else checkpoint.step) in versions_near}


# What a worker does


def carry_out() -> int:
    """Deletes what is due; how many folders. Workers that look at once take different ones."""
    now = database_now()
    due = list(Removal.across_teams.filter(due_at__lte=now, deleted_at=None, kept_at=None).order_by("due_at").values_list("pk", flat=True)[:AT_ONCE])
    return sum(execute_removal(pk) for pk in due)


def execute_removal(pk: int) -> bool:
    with transaction.atomic():
        rows = Removal.across_teams.select_for_update(of=("self",), skip_locked=True).select_related("checkpoint__run__team", "by")
        removal = rows.filter(pk=pk, deleted_at=None, kept_at=None, due_at__lte=database_now()).first()
        if removal is None:
            return False
        run = Run.across_teams.select_for_update(of=("self",), no_key=True).get(pk=removal.checkpoint.run_id)  # nobody resumes it meanwhile
        held = Checkpoint.across_teams.select_for_update(of=("self",)).select_related("run__team").get(pk=removal.checkpoint_id)
        held.run = run
        aside = Path(settings.RUNS_ROOT) / str(run.pk) / f".removed-{removal.pk}"
        folder = find_local_folder(held)
        if has_checkpoint_files(held):
            if reasons := relied_on(removal.team, [held])[held.pk]:
                postpone_removal(removal, "; ".join(reasons))
                return False
            forget_stored_files(held)
            if folder is not None:
                os.rename(folder, aside)
    try:
        if aside.is_dir() and not aside.is_symlink():
            shutil.rmtree(aside)  # does not follow links (shutil.rmtree.avoids_symlink_attacks)
    except OSError as error:
        log.warning("checkpoint %s cannot be deleted: %s", held.pk, error)
        postpone_removal(removal, f"disk error: {error.strerror}")
        return False
    with transaction.atomic():
        done = Removal.across_teams.filter(pk=pk, deleted_at=None).update(deleted_at=database_now(), bytes=held.bytes, problem="")
        if done:
            by = str(removal.by) if removal.by else "the team's rules"
            record_audit_entry("policy.delete", held, team=removal.team, label=format_checkpoint_label(held), by=by, bytes=held.bytes)
    return bool(done)


def forget_stored_files(checkpoint: Checkpoint) -> None:
    """In the store, of every attempt that saved there; a worker deletes them. Needs a transaction."""
    rows = checkpoint.run.checkpoints.filter(path=checkpoint.path)
    stored = list(rows.exclude(stored_at=None))
    rows.update(stored_at=None, forgotten=True)
    request_store_deletions(map(name_checkpoint, stored))


def postpone_removal(removal: Removal, why: str) -> None:
    """Rules that no longer apply are forgotten; a person's wish stays, with the reason."""
    if removal.by_id is None and not why.startswith("the disk"):
        removal.delete()
    else:
        Removal.objects.same_row(removal).update(problem=why[:300], due_at=database_now() + AGAIN)


def explain_resume_objection(run: Run) -> str:
    """Why a run cannot be resumed: what it would go on from was deleted here. (lab.training.runs.resumption)"""
    if run.status not in RESUMABLE:
        return ""
    rows = list(Checkpoint.objects.filter(run=run, final=False))
    deleted = (
        Removal.objects.filter(checkpoint__run=run, checkpoint__final=False, kept_at=None).exclude(deleted_at=None).order_by("-deleted_at").first()
    )
    if deleted is None or any(has_checkpoint_files(row) for row in rows):
        return ""
    return f"Its checkpoints were deleted ({deleted.deleted_at:%Y-%m-%d %H:%M} UTC), so the run cannot be resumed. Clone it instead."
