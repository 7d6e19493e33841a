"""The inbox: what a person was told in the team, newest first."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.dateparse import parse_datetime
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_POST, require_safe

from lab.teams.accounts.requests import LabRequest
from lab.watching.alerts import read_marks
from lab.watching.alerts.kinds import KINDS
from lab.watching.alerts.models import Notice, NoticeQuerySet

PAGE = 50


def list_own_notices(request: LabRequest) -> NoticeQuerySet:
    return Notice.objects.of(request.team, request.user)


@require_safe
def show_inbox(request: LabRequest) -> HttpResponse:
    mine = list_own_notices(request)
    show, kind = request.GET.get("show", ""), request.GET.get("kind", "")
    notices = mine.unread() if show == "unread" else mine
    told = set(mine.values_list("kind", flat=True).distinct())
    kinds = {name: KINDS[name].words for name in KINDS if name in told}
    if kind in kinds:
        notices = notices.filter(kind=kind)
    page = Paginator(notices.order_by("-created_at", "pk"), PAGE).get_page(request.GET.get("page"))
    context = {"room": "inbox", "page": page, "unread": mine.unread().count(), "show": show, "kind": kind, "kinds": kinds, "any": mine.exists()}
    return render(request, "alerts/inbox.html", {**context, "undo": parse_read_moment(request.GET.get("undo", ""))})


@require_safe
def open_notice(request: LabRequest, notice_id: UUID) -> HttpResponse:
    """Opens what the notice is about, and marks it read: the address of a notice in a mail or a toast."""
    notice = get_object_or_404(list_own_notices(request), pk=notice_id)
    if request.method == "GET" and notice.read_at is None:
        read_marks.set_notice_read(list_own_notices(request), notice, read=True)
    safe = notice.url and url_has_allowed_host_and_scheme(notice.url, allowed_hosts=None)
    return redirect(notice.url if safe else reverse("inbox"))


@require_POST
def mark_notice_read(request: LabRequest, notice_id: UUID) -> HttpResponse:
    """Marks one notice read, or with ``unread`` unread again."""
    notice = get_object_or_404(list_own_notices(request), pk=notice_id)
    read_marks.set_notice_read(list_own_notices(request), notice, read=not request.POST.get("unread"))
    return redirect(build_inbox_url(request))


@require_POST
def read_all(request: LabRequest) -> HttpResponse:
    """All that are unread; ``undo_mark_all_read`` takes it back."""
    count, now = read_marks.mark_all(list_own_notices(request))
    if not count:
        messages.info(request, "Nothing was unread.")
        return redirect("inbox")
    return redirect(f"{reverse('inbox')}?undo={now:%Y-%m-%dT%H:%M:%S.%fZ}")


@require_POST
def undo_mark_all_read(request: LabRequest) -> HttpResponse:
    when = parse_read_moment(request.POST.get("at", ""))
    count = read_marks.unmark_read_batch(list_own_notices(request), when) if when else 0
    messages.success(request, f"{count} unread again." if count else "Nothing was changed: these notifications were read at another time.")
    return redirect("inbox")


def parse_read_moment(text: str) -> datetime | None:
    """A moment as ``read_all`` writes it; None for anything else."""
    try:
        moment = parse_datetime(text)
    except ValueError:
        return None
    return moment if moment is not None and moment.tzinfo is not None else None


def build_inbox_url(request: LabRequest) -> str:
    """The list as it was filtered."""
    kept = request.POST.get("back", "")
    query = kept if kept.startswith("?") and len(kept) < 200 and kept.isprintable() else ""
    return reverse("inbox") + query
