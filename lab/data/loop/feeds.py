"""A run's groups into queues as they arrive: what goes where, starting and stopping it, and what the trainer itself asks people."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.db import transaction
from django.db.models import Count, Q
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST

from lab.data.loop import human_reward
from lab.data.loop.feed_form import FeedForm
from lab.data.loop.models import Ask, Feed
from lab.labelling.labels.models import QueueStatus
from lab.labelling.labels.people import open_to
from lab.labelling.labels.progress import QueueProgress, count_queue_progress
from lab.teams.accounts.requests import LabRequest
from lab.teams.accounts.roles import has_team_permission
from lab.teams.audit.recording import record_audit_entry
from lab.training.runs.form_tokens import act_once_per_token
from lab.training.runs.header import build_run_header
from lab.training.runs.models import Run
from lab.training.runs.views.page import find_team_run
from trainers.contract.hyperparameters import GROUP_TRAINERS

MOST_FEEDS = 50


@dataclass(frozen=True)
class FeedSummary:
    feed: Feed
    progress: QueueProgress
    seen: bool  # whether the person may open the queue

    @property
    def state(self) -> str:
        feed = self.feed
        if feed.stopped_at is None:
            return "running"
        return "full" if feed.routed >= feed.most else "stopped"

    @property
    def may_label(self) -> bool:
        return self.seen and self.progress.open > 0 and self.feed.queue.status == QueueStatus.OPEN


@require_http_methods(["GET", "HEAD", "POST"])
def run_feeds(request: LabRequest, run_id: UUID) -> HttpResponse:
    """The page; POST starts a feed."""
    run = find_team_run(request, run_id)
    return start_feed(request, run) if request.method == "POST" else render_feeds_page(request, run, FeedForm(None, run))


def start_feed(request: LabRequest, run: Run) -> HttpResponse:
    form = FeedForm(request.POST, run)
    if refused := no_feed(run):
        form.add_error(None, refused)
    if not form.is_valid():
        return render_feeds_page(request, run, form, 422)

    def act() -> str:
        feed = form.save(request.user)
        messages.success(request, f"Groups of #{run.number} are now routed into “{feed.queue.name}”.")
        return reverse("run-feeds", args=[run.pk])

    return redirect(act_once_per_token(request, f"feed/{request.POST.get('token', '')[:64]}", act))


def render_feeds_page(request: LabRequest, run: Run, form: FeedForm, status: int = 200) -> HttpResponse:
    leads = has_team_permission(request, "label.lead")
    feeds = Feed.objects.filter(run=run, team=request.team).select_related("queue", "created_by").order_by("-pk")[:MOST_FEEDS]
    visible = set(open_to(request.team, request.user, leads).filter(feeds__run=run).values_list("pk", flat=True))
    context: dict[str, Any] = {
        **build_run_header(run, "feeds"),
        "feeds": [FeedSummary(feed, count_queue_progress(feed.queue), feed.queue_id in visible) for feed in feeds],
        "form": form,
        "leads": leads,
        "annotates": has_team_permission(request, "label.work"),
        "refused": no_feed(run),
        "token": secrets.token_urlsafe(12),
        "human": run.spec.get("human"),
    }
    if context["human"]:
        context["asks"] = count_reward_questions(run)
        context["reward_queue"] = human_reward.find_reward_queue(run)
    return render(request, "loop/feeds.html", context, status=status)


def no_feed(run: Run) -> str:
    """Why groups of the run cannot be routed now; empty when they can."""
    if run.trainer not in GROUP_TRAINERS:
        return f"A {run.trainer.upper()} run samples no groups during training. Create a queue from its rollouts instead."
    if not run.is_open:
        return f"This run is {run.status}: no more groups arrive. Create a queue from its rollouts, or resume it first."
    return ""


def count_reward_questions(run: Run) -> dict[str, int]:
    """Questions of the trainer: how many, answered with a ranking, still waiting."""
    now = timezone.now()
    return Ask.objects.filter(run=run).aggregate(
        asked=Count("pk"),
        answered=Count("pk", filter=Q(rewards__isnull=False)),
        waiting=Count("pk", filter=Q(answered_at=None, deadline__gt=now)),
    )


@require_POST
def stop_feed(request: LabRequest, feed_id: int) -> HttpResponse:
    feed = get_object_or_404(Feed.objects.filter(team=request.team).select_related("queue"), pk=feed_id)
    with transaction.atomic():
        stopped = Feed.objects.same_row(feed).filter(stopped_at=None).update(stopped_at=timezone.now())
        if stopped:
            record_audit_entry("feed.stop", feed, routed=feed.routed)
    if stopped:
        messages.success(request, f"Stopped routing groups into “{feed.queue.name}”. Its items are kept.")
    return redirect("run-feeds", feed.run_id)
