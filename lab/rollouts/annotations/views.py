"""The panel of a rollout, what its forms send, and the team's newest comments.

A script asks for JSON and gets {"panel": the panel as HTML, "version", "made", "fresh"} or {"error", "field"}; a form without scripts comes
back to the page it was on.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable

from django.contrib import messages
from django.http import Http404, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.template.loader import render_to_string
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from lab.lib.refusals import Refusal
from lab.rollouts.annotations import verbs
from lab.rollouts.annotations.annotation_panel import AnnotationPanel
from lab.rollouts.annotations.listing import read_comments
from lab.rollouts.annotations.models import Comment, StepVerdict
from lab.rollouts.annotations.verbs import AnnotationChange
from lab.rollouts.trajectories.models import Rollout
from lab.teams.accounts.requests import LabRequest
from lab.teams.accounts.roles import has_team_permission

MARKS = ((StepVerdict.GOOD, "✓", "g"), (StepVerdict.BAD, "✗", "b"), (StepVerdict.NEUTRAL, "–", "x"))  # verdict, glyph, key after m
VERBS: dict[str, Callable[..., AnnotationChange]] = {
    "delete": verbs.delete_comment,
    "restore": verbs.restore_comment,
    "resolve": verbs.resolve_thread,
    "reopen": verbs.reopen_thread,
}


def get_annotated_rollout(request: LabRequest, rollout_id: int) -> Rollout:
    """The team's rollout, or 404."""
    return get_object_or_404(Rollout.objects.of(request.team).select_related("run"), pk=rollout_id)


def comment_of(request: LabRequest, comment_id: int) -> Comment:
    """The team's comment with its rollout, or 404."""
    return get_object_or_404(Comment.objects.of(request.team).select_related("rollout__run", "parent"), pk=comment_id)


@require_safe
def show_annotation_panel(request: LabRequest, rollout_id: int) -> HttpResponse:
    """The panel as JSON for a script (204 when ``?version=`` is what the page has), as a fragment for htmx, else a page of its own."""
    rollout = get_annotated_rollout(request, rollout_id)
    panel = AnnotationPanel(request.team, request.user, rollout)
    if request.GET.get("version") == panel.version:
        return HttpResponse(status=204)
    if wants_json(request):
        return panel_to_json(request, panel)
    template = "annotations/panel.html" if request.htmx else "annotations/page.html"
    return render(request, template, {"room": "rollouts", **context_of(request, panel)})


def context_of(request: LabRequest, panel: AnnotationPanel) -> dict[str, object]:
    return {
        "panel": panel,
        "rollout": panel.rollout,
        "writable": has_team_permission(request, "rollouts.annotate"),
        "choices": MARKS,
        "ratings": range(1, 6),
        "key": str(uuid.uuid4()),
        "comment_length": verbs.COMMENT_LENGTH,
        "tag_length": verbs.TAG_LENGTH,
    }


def wants_json(request: LabRequest) -> bool:
    return "application/json" in request.headers.get("Accept", "")


def panel_to_json(request: LabRequest, panel: AnnotationPanel, done: AnnotationChange | None = None) -> JsonResponse:
    html = render_to_string("annotations/panel.html", context_of(request, panel), request)
    changed = {"made": done.made, "fresh": done.fresh} if done else {}
    return JsonResponse({"panel": html, "version": panel.version, **changed}, headers={"Cache-Control": "no-store"})


def apply_annotation_verb(request: LabRequest, rollout: Rollout | None, verb: Callable[[], AnnotationChange]) -> HttpResponse:
    """Does it and shows the rollout's panel as it is then, or says why not. Without a rollout (it is gone) there is no panel."""
    back = reverse("rollout", args=[rollout.pk]) + "#annotations" if rollout else reverse("comments")
    try:
        done = verb()
    except Refusal as refused:
        if wants_json(request):
            return JsonResponse({"error": refused.message, "field": refused.field}, status=refused.status)
        messages.error(request, refused.message)
        return redirect(back)
    if not wants_json(request):
        return redirect(back)
    if rollout is None:
        return JsonResponse({"panel": "", "version": "", "made": done.made, "fresh": done.fresh})
    return panel_to_json(request, AnnotationPanel(request.team, request.user, rollout), done)


@require_POST
def add_rollout_tag(request: LabRequest, rollout_id: int) -> HttpResponse:
    rollout = get_annotated_rollout(request, rollout_id)
    return apply_annotation_verb(request, rollout, lambda: verbs.tag_rollout(request.team, request.user, rollout, request.POST.get("name", "")))


@require_POST
def remove_rollout_tag(request: LabRequest, rollout_id: int, tag_id: int) -> HttpResponse:
    rollout = get_annotated_rollout(request, rollout_id)
    return apply_annotation_verb(request, rollout, lambda: verbs.untag_rollout(rollout, tag_id))


@require_POST
def save_rollout_rating(request: LabRequest, rollout_id: int) -> HttpResponse:
    rollout = get_annotated_rollout(request, rollout_id)
    return apply_annotation_verb(request, rollout, lambda: verbs.rate_rollout(request.user, rollout, request.POST.get("value", "")))


@require_POST
def save_step_mark(request: LabRequest, rollout_id: int) -> HttpResponse:
    rollout = get_annotated_rollout(request, rollout_id)
    return apply_annotation_verb(
        request, rollout, lambda: verbs.mark_step(request.user, rollout, request.POST.get("start", ""), request.POST.get("mark", ""))
    )


@require_POST
def save_rollout_comment(request: LabRequest, rollout_id: int) -> HttpResponse:
    rollout, sent = get_annotated_rollout(request, rollout_id), request.POST
    text, start, end, key = (sent.get(name, "") for name in ("text", "start", "end", "key"))
    return apply_annotation_verb(request, rollout, lambda: verbs.start_comment_thread(request.team, request.user, rollout, text, start, end, key))


@require_POST
def change_comment(request: LabRequest, comment_id: int, verb: str) -> HttpResponse:
    """Answers, edits, deletes, restores, resolves or reopens a comment."""
    comment, sent = comment_of(request, comment_id), request.POST
    if verb == "answer":
        return apply_annotation_verb(
            request, comment.rollout, lambda: verbs.answer_thread(request.team, request.user, comment, sent.get("text", ""), sent.get("key", ""))
        )
    if verb == "edit":
        return apply_annotation_verb(
            request, comment.rollout, lambda: verbs.edit_comment(request.user, comment, sent.get("text", ""), sent.get("seen", ""))
        )
    if verb not in VERBS:
        raise Http404
    return apply_annotation_verb(request, comment.rollout, lambda: VERBS[verb](request.user, comment))


@require_safe
def list_team_comments(request: LabRequest) -> HttpResponse:
    """The team's newest comments, also those whose rollout is gone."""
    page = read_comments(request.team, request.user, request.GET)
    return render(
        request, "annotations/comments.html", {"room": "comments", "page": page, "writable": has_team_permission(request, "rollouts.annotate")}
    )
