"""Copies of a policy to a hub: asked for on a page, done by a worker that looks again whether it may, watched and cancelled from the page."""

from __future__ import annotations

import logging
import re
from datetime import timedelta
from time import monotonic

import redis
from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import Q
from django.utils import timezone
from kombu.exceptions import OperationalError

from lab.accounts.models import Team, User
from lab.audit.recording import record
from lab.celery import app
from lab.lib.sealed import Unreadable
from lab.policies import card, hub, hub_token, vetting
from lab.policies.download import Part, parts_of
from lab.policies.models import HubToken, Push, PushState, Removal
from lab.policies.places import Missing, label
from lab.policies.promotion import Refused, checked, must
from lab.runs.models import Checkpoint
from lab.workers.models import ANALYSIS

log = logging.getLogger(__name__)
TASK = "push-policy"
PART = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9])?", re.ASCII)
SILENT = timedelta(minutes=10)  # without a sign of life the worker is gone
OVERDUE = timedelta(seconds=10)  # a message is looked for when a push has waited this long
TELL_SECONDS = 1.0  # between two rows written while uploading
AT_ONCE = 20


def repository_of(text: str) -> str:
    """As the hub takes it. Raises Refused."""
    name = text.strip()
    parts = name.split("/")
    if len(parts) != 2 or not all(PART.fullmatch(part) for part in parts) or "--" in name or ".." in name or name.endswith((".git", ".ipynb")):
        raise Refused("A repository is owner/name: letters, digits, dots, dashes and underscores, like “our-team/math-grpo”.")
    return name


def ask(team: Team, user: User, checkpoint: Checkpoint, repository: str, private: bool) -> Push:
    """Raises Refused."""
    must(team, user, "policies.promote")
    repository = repository_of(repository)
    if not HubToken.objects.filter(team=team).exists():
        raise Refused("The team has no hub token; store one first.")
    with transaction.atomic():
        held = checked(team, checkpoint)
        if Removal.objects.filter(checkpoint=held, kept_at=None).exists():
            raise Refused("It was deleted, or is about to be.")
        size = hub.total(vetted(held))
        try:
            with transaction.atomic():
                push = Push.objects.create(team=team, checkpoint=held, repository=repository, private=private, total=size, by=user)
        except IntegrityError:
            raise Refused(f"It is on its way to {repository} already.") from None
        record("policy.push", held, team=team, actor=user, label=label(held), repository=repository, private=private)
        transaction.on_commit(lambda: send(push.pk))
    return push


def vetted(checkpoint: Checkpoint) -> list[Part]:
    """What will be sent. Raises Refused."""
    try:
        found = vetting.problems(checkpoint)
        parts = parts_of(checkpoint)
    except Missing as error:
        raise Refused(str(error)) from None
    if found:
        raise Refused(f"It is not pushed: {'; '.join(found[:5])}.")
    return parts


def cancel(team: Team, user: User, push: Push) -> bool:
    """Whether there was something to cancel. Raises Refused."""
    must(team, user, "policies.promote")
    own = Push.objects.filter(pk=push.pk, team=team)
    if own.filter(state=PushState.QUEUED).update(state=PushState.CANCELLED, cancel=True, ended_at=timezone.now()):
        return True
    return bool(own.filter(state=PushState.RUNNING).update(cancel=True))


def send(push_id: int) -> None:
    try:
        app.send_task(TASK, args=[push_id], queue=ANALYSIS)
    except OperationalError as error:
        log.warning("push %s waits in the database, Redis cannot be told: %s", push_id, error)


def run(push_id: int) -> None:
    """In a worker. A message delivered twice, or late, finds the push claimed and does nothing."""
    if not Push.objects.filter(pk=push_id, state=PushState.QUEUED, cancel=False).update(state=PushState.RUNNING, beat_at=timezone.now()):
        return
    push = Push.objects.select_related("team", "checkpoint__run__team", "by").get(pk=push_id)
    secret = ""
    try:
        checkpoint = allowed(push)
        secret = hub_token.secret_of(push.team)
        url = hub.upload(checkpoint, push.repository, push.private, secret, settings.HUB_URL, card.of(checkpoint), Watch(push))
    except hub.Cancelled:
        end(push, PushState.CANCELLED, "Cancelled before anything was committed; the repository may have been made.")
    except (Refused, Missing, Unreadable, hub.Failed) as error:
        end(push, PushState.FAILED, hub_token.redacted(str(error), secret))
    except Exception as error:
        # No traceback: its frames hold the secret.
        log.error("push %s failed: %s", push.pk, type(error).__name__)
        end(push, PushState.FAILED, f"It failed unexpectedly ({type(error).__name__}). Push again; if it fails again, tell the operator.")
    else:
        end(push, PushState.FINISHED, "", url)


def allowed(push: Push) -> Checkpoint:
    """What was asked for may have been taken away since. Raises Refused."""
    if push.by is None:
        raise Refused("Who asked for it is gone.")
    must(push.team, push.by, "policies.promote")
    if push.checkpoint.run.team_id != push.team_id:
        raise Refused("The checkpoint is another team's.")
    vetted(push.checkpoint)
    return push.checkpoint


class Watch:
    """Writes how far it is, and looks whether somebody cancelled, every second."""

    def __init__(self, push: Push) -> None:
        self.push, self.said, self.doing = push, 0.0, ""

    def __call__(self, done: int, doing: str) -> None:
        if doing == self.doing and monotonic() - self.said < TELL_SECONDS:
            return
        self.said, self.doing = monotonic(), doing
        mine = Push.objects.filter(pk=self.push.pk, state=PushState.RUNNING)
        if not mine.filter(cancel=False).update(done=min(done, self.push.total), doing=doing[:200], beat_at=timezone.now()):
            raise hub.Cancelled


def end(push: Push, state: PushState, problem: str, url: str = "") -> None:
    fields = {"state": state, "problem": problem[:500], "url": url[:300], "ended_at": timezone.now(), "doing": ""}
    if state == PushState.FINISHED:
        fields["done"] = push.total
    with transaction.atomic():
        if not Push.objects.filter(pk=push.pk, state=PushState.RUNNING).update(**fields):
            return
        said = {"repository": push.repository, "outcome": str(state)}
        record("policy.push", push.checkpoint, team=push.team, actor=push.by, label=label(push.checkpoint), **said)


def revive() -> None:
    """Fails pushes whose worker is gone; sends the waiting ones again whose message is lost."""
    now = timezone.now()
    gone = Q(state=PushState.RUNNING, beat_at__lt=now - SILENT)
    Push.objects.filter(gone).update(
        state=PushState.FAILED, ended_at=now, doing="", problem="Its worker was lost. Nothing was committed; push again."
    )
    waiting = list(Push.objects.filter(state=PushState.QUEUED, asked_at__lt=now - OVERDUE).values_list("pk", flat=True)[:AT_ONCE])
    if not waiting:
        return
    try:
        length = int(redis.Redis.from_url(settings.REDIS_URL).llen(ANALYSIS))  # type: ignore[arg-type]
    except redis.RedisError as error:
        log.warning("Redis is away, %d pushes cannot be sent (%s)", len(waiting), error)
        return
    if not length:
        for push in waiting:
            send(push)
