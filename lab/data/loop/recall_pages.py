"""Taking labels back: what hangs on them before one does it, the list of recalls, rebuilding, undoing."""

from __future__ import annotations

from dataclasses import dataclass

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from lab.data.datasets.models import Recall, RecallKind, Version
from lab.data.datasets.rules import RuleError
from lab.data.loop import recall_acts, recall_work
from lab.data.loop.models import Withdrawal
from lab.data.loop.policy_descent import RunLineage
from lab.data.loop.recall_effects import RecallImpact, find_recall_downstream
from lab.data.loop.recall_form import KINDS, RecallForm, describe_recall
from lab.teams.accounts.requests import LabRequest
from lab.training.runs.form_tokens import act_once_per_token
from lab.training.runs.views.launch_form import clean_form_inputs, token_of

SHOWN = 50


@dataclass(frozen=True)
class AffectedVersion:
    """A version with recalled labels. ``since``: the newest version of its dataset that was frozen after the recall."""

    version: Version
    since: Version | None
    rebuilds: bool


@dataclass(frozen=True)
class RecallSummary:
    recall: Recall
    words: str
    reach: RecallImpact
    versions: list[AffectedVersion]
    labels: int  # taken back so far
    going_on: bool


@require_safe
def show_recalls(request: LabRequest) -> HttpResponse:
    rows = Recall.objects.of(request.team).select_related("team", "labeller", "queue", "by", "undone_by").order_by("-at")
    descent = RunLineage(request.team)
    summaries = [shown_of(recall, descent) for recall in rows[:SHOWN]]
    return render(request, "loop/recalls.html", {"room": "datasets", "recalls": summaries, "more": rows.count() - len(summaries)})


def shown_of(recall: Recall, descent: RunLineage) -> RecallSummary:
    reach = find_recall_downstream(recall, descent)
    versions = [describe_touched_version(recall, version) for version in reach.versions]
    taken = Withdrawal.objects.filter(recall=recall)
    going_on = taken.exists() if recall.undone_at else recall_work.has_recall_work_left(recall)
    return RecallSummary(recall, describe_recall(recall), reach, versions, taken.filter(judgement__isnull=False).count(), going_on)


def describe_touched_version(recall: Recall, version: Version) -> AffectedVersion:
    later = Version.objects.filter(dataset=version.dataset, created_at__gt=recall.at) if recall.at else Version.objects.none()
    since = later.select_related("dataset").order_by("-number").first()
    return AffectedVersion(version, since if since != version else None, recall.kind != RecallKind.RULE and version.dataset.is_labelled)


@require_http_methods(["GET", "HEAD", "POST"])
def recall_labels(request: LabRequest) -> HttpResponse:
    """The form; once something is chosen (``?kind=labeller&labeller=3``) all that hangs on it. POST does it."""
    posted = request.method == "POST"
    form = RecallForm(request.team, clean_form_inputs(request.POST if posted else request.GET))
    target = form.target
    if posted and target is not None and form.reason and not form.errors:
        url = act_once_per_token(request, f"recall/{token_of(request)}", lambda: create_recall(request, target, form.reason))
        if target.pk:  # not when the form was sent twice
            take_back_labels(request, target)
        return redirect(url)
    if posted and target is None and form.kind not in form.errors:
        form.errors[form.kind] = "Choose what to recall."
    context = {"room": "datasets", "form": form, "kinds": KINDS.items(), "target": target, "token": token_of(request)}
    if target is not None:
        context |= {
            "words": describe_recall(target),
            "reach": find_recall_downstream(target),
            "labels": recall_work.select_recalled_judgements(target).filter(state__in=recall_work.TAKEN).count(),
        }
    return render(request, "loop/recall.html", context, status=422 if posted else 200)


def create_recall(request: LabRequest, target: Recall, reason: str) -> str:
    recall_acts.begin_recall(target, request.user, reason)
    return f"{reverse('recalls')}#recall-{target.pk}"


def take_back_labels(request: LabRequest, recall: Recall) -> None:
    """Takes back as much as a person waits for; workers do the rest."""
    through = recall_work.carry_out(recall)
    count = Withdrawal.objects.filter(recall=recall, judgement__isnull=False).count()
    rest = "" if through else " Workers are recalling the rest."
    messages.success(request, f"Recalled: {count:,} label{'' if count == 1 else 's'}.{rest} Everything created from them is flagged.")


@require_POST
def undo_recall(request: LabRequest, recall_id: int) -> HttpResponse:
    recall = get_object_or_404(Recall.objects.of(request.team), pk=recall_id)
    if recall_acts.mark_recall_undone(recall, request.user):
        through = recall_work.carry_out(recall)
        rest = "" if through else " Workers are restoring the rest."
        messages.success(request, f"Recall undone: its labels count again and all flags are removed.{rest}")
    else:
        messages.info(request, "It was already undone.")
    return redirect(f"{reverse('recalls')}#recall-{recall.pk}")


@require_POST
def rebuild_recalled_version(request: LabRequest, recall_id: int, version_id: int) -> HttpResponse:
    """Freezes the dataset again under the version's own rule; what is recalled is left out."""
    recall = get_object_or_404(Recall.objects.of(request.team), pk=recall_id)
    version = get_object_or_404(Version.objects.of(request.team).select_related("dataset__team"), pk=version_id)

    def act() -> str:
        return reverse("version", args=[recall_acts.refreeze_version(recall, version, request.user).pk])

    try:
        url = act_once_per_token(request, f"rebuild/{recall.pk}/{version.pk}/{token_of(request)}", act)
    except RuleError as error:
        messages.error(request, f"It cannot be rebuilt with the same rule: {error}")
        return redirect("dataset", dataset_id=version.dataset_id)
    messages.success(request, f"Freezing a new version with the rule of {version}, without the recalled labels.")
    return redirect(url)
