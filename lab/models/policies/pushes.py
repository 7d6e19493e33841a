"""Copies of a policy to a hub: asked for on a page, done by a worker that looks again whether it may, watched and cancelled from the page."""

from __future__ import annotations

import logging
import re
from datetime import timedelta
from time import monotonic

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import Q
from django.db.models.functions import Now

from lab.lib.refusals import Refusal
from lab.lib.sealed import UnsealError
from lab.models.policies import hub, hub_token, model_card, push_checks
from lab.models.policies.checkpoint_paths import FilesMissing, format_checkpoint_label
from lab.models.policies.download import ArchivePart, parts_of
from lab.models.policies.models import HubToken, Push, PushState, Removal
from lab.models.policies.promotion import lock_team_checkpoint, require_team_permission
from lab.teams.accounts.models import Team, User
from lab.teams.audit.recording import record_audit_entry
from lab.training.runs.models import Checkpoint
from lab.training.workers.messages import resend_overdue, send_task_message

log = logging.getLogger(__name__)
TASK = "push-policy"
PART = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9])?", re.ASCII)
SILENT = timedelta(minutes=10)  # without a heartbeat the worker is gone
TELL_SECONDS = 1.0  # between two rows written while uploading


def repository_of(text: str) -> str:
    """As the hub takes it. Raises Refusal."""
    name = text.strip()
    parts = name.split("/")
    if len(parts) != 2 or not all(PART.fullmatch(part) for part in parts) or "--" in name or ".." in name or name.endswith((".git", ".ipynb")):
        words = "Enter the repository as owner/name: letters, digits, dots, dashes and underscores, like “our-team/math-grpo”."
        raise Refusal(words, field="repository", status=422)
    return name


def request_push(team: Team, user: User, checkpoint: Checkpoint, repository: str, private: bool) -> Push:
    """Raises Refusal."""
    require_team_permission(team, user, "policies.promote")
    repository = repository_of(repository)
    if not HubToken.objects.filter(team=team).exists():
        raise Refusal("The team has no hub token; store one first.")
    with transaction.atomic():
        held = lock_team_checkpoint(team, checkpoint)
        if Removal.objects.filter(checkpoint=held, kept_at=None).exists():
            raise Refusal("It was deleted or is scheduled for deletion.")
        size = hub.count_upload_bytes(vet_push_parts(held))
        try:
            with transaction.atomic():
                push = Push.objects.create(team=team, checkpoint=held, repository=repository, private=private, total=size, by=user)
        except IntegrityError:
            raise Refusal(f"It is already being pushed to {repository}.") from None
        record_audit_entry("policy.push", held, team=team, actor=user, label=format_checkpoint_label(held), repository=repository, private=private)
        transaction.on_commit(lambda: send_task_message(TASK, push.pk))
    return push


def vet_push_parts(checkpoint: Checkpoint) -> list[ArchivePart]:
    """What will be sent. Raises Refusal."""
    try:
        problems = push_checks.find_push_problems(checkpoint)
        parts = parts_of(checkpoint)
    except FilesMissing as error:
        raise Refusal(str(error)) from None
    if problems:
        raise Refusal(f"Not pushed: {'; '.join(problems[:5])}.")
    return parts


def cancel_push(team: Team, user: User, push: Push) -> bool:
    """Whether there was something to cancel. Raises Refusal."""
    require_team_permission(team, user, "policies.promote")
    own = Push.objects.same_row(push).filter(team=team)
    if own.filter(state=PushState.QUEUED).update(state=PushState.CANCELLED, cancel=True, ended_at=Now()):
        return True
    return bool(own.filter(state=PushState.RUNNING).update(cancel=True))


def execute_push(push_id: int) -> None:
    """In a worker. A message delivered twice, or late, finds the push claimed and does nothing."""
    if not Push.across_teams.filter(pk=push_id, state=PushState.QUEUED, cancel=False).update(state=PushState.RUNNING, beat_at=Now()):
        return
    push = Push.across_teams.select_related("team", "checkpoint__run__team", "by").get(pk=push_id)
    secret = ""
    try:
        checkpoint = verify_push_allowed(push)
        secret = hub_token.secret_of(push.team)
        url = hub.upload_policy(
            checkpoint, push.repository, push.private, secret, settings.HUB_URL, model_card.render_policy_card(checkpoint), PushMonitor(push)
        )
    except hub.PushCancelled:
        finish_push(push, PushState.CANCELLED, "Cancelled before anything was committed; the repository may have been created.")
    except (Refusal, UnsealError, hub.HubError) as error:
        finish_push(push, PushState.FAILED, hub_token.redact_secret(str(error), secret))
    except Exception as error:
        # No traceback: its frames hold the secret.
        log.error("push %s failed: %s", push.pk, type(error).__name__)
        finish_push(push, PushState.FAILED, f"Unexpected error ({type(error).__name__}). Push again; if it fails again, tell the operator.")
    else:
        finish_push(push, PushState.FINISHED, "", url)


def verify_push_allowed(push: Push) -> Checkpoint:
    """What was asked for may have been taken away since. Raises Refusal."""
    if push.by is None:
        raise Refusal("The requester no longer has an account.")
    require_team_permission(push.team, push.by, "policies.promote")
    if push.checkpoint.run.team_id != push.team_id:
        raise Refusal("The checkpoint is another team's.")
    vet_push_parts(push.checkpoint)
    return push.checkpoint


class PushMonitor:
    """Writes how far it is, and looks whether somebody cancelled, every second."""

    def __init__(self, push: Push) -> None:
        self.push, self.told_at, self.doing = push, 0.0, ""

    def __call__(self, done: int, doing: str) -> None:
        if doing == self.doing and monotonic() - self.told_at < TELL_SECONDS:
            return
        self.told_at, self.doing = monotonic(), doing
        mine = Push.objects.same_row(self.push).filter(state=PushState.RUNNING)
        if not mine.filter(cancel=False).update(done=min(done, self.push.total), doing=doing[:200], beat_at=Now()):
            raise hub.PushCancelled


def finish_push(push: Push, state: PushState, problem: str, url: str = "") -> None:
    fields = {"state": state, "problem": problem[:500], "url": url[:300], "ended_at": Now(), "doing": ""}
    if state == PushState.FINISHED:
        fields["done"] = push.total
    with transaction.atomic():
        if not Push.objects.same_row(push).filter(state=PushState.RUNNING).update(**fields):
            return
        details = {"repository": push.repository, "outcome": str(state)}
        record_audit_entry("policy.push", push.checkpoint, team=push.team, actor=push.by, label=format_checkpoint_label(push.checkpoint), **details)


def revive_lost_pushes() -> None:
    """Fails pushes whose worker is gone; sends the waiting ones again whose message is lost."""
    now = Now()
    gone = Q(state=PushState.RUNNING, beat_at__lt=now - SILENT)
    Push.across_teams.filter(gone).update(
        state=PushState.FAILED, ended_at=now, doing="", problem="Its worker was lost. Nothing was committed; push again."
    )
    resend_overdue(TASK, Push.across_teams.filter(state=PushState.QUEUED), since="asked_at")
