"""The playground: asking, watching, stopping, and sending what was written to a labelling queue."""

from __future__ import annotations

import secrets
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from lab.browse.address import MAX_ID
from lab.playground import showing, storing
from lab.playground.asking import AskForm, checkpoints
from lab.playground.models import Sampling
from lab.runs.once import once
from lab.runs.views.request import LabRequest
from lab.trajectories.models import Prompt
from lab.workers.models import ANALYSIS, Worker

EARLIER = 20
TOKEN_LENGTH = 64


def playground(request: LabRequest) -> HttpResponse:
    """The form (GET; ``?first=``, ``?second=``, ``?prompt=<id>``, ``?again=<sampling>`` fill it) and asking (POST)."""
    if request.method == "POST":
        form = AskForm(request.team, request.POST)
        if not form.is_valid():
            return show(request, form, status=422)
        token = request.POST.get("token", "")[:TOKEN_LENGTH] or secrets.token_urlsafe(16)
        return redirect(once(request, f"playground/{token}", lambda: reverse("sampling", args=[form.ask(request.user).pk])))
    return show(request, AskForm(request.team, initial=given(request)))


def given(request: LabRequest) -> dict[str, Any]:
    """What the address fills the form with; unknown ids fill nothing."""
    found: dict[str, Any] = {}
    again = request.GET.get("again", "")
    try:
        sampling = Sampling.objects.of(request.team).filter(pk=UUID(again)).first() if again else None
    except ValueError:
        sampling = None
    if sampling is not None:
        found |= {name: getattr(sampling, name) for name in ("count", "temperature", "top_p", "max_tokens", "seed")}
        found |= {"prompt": sampling.asked, "system": sampling.prompt[0]["content"] if len(sampling.prompt) > 1 else ""}
        found |= dict(zip(("first", "second"), sampling.sides.values_list("checkpoint", flat=True), strict=False))
    for field in ("first", "second"):
        if (value := whole(request.GET.get(field, ""))) is not None:
            found[field] = value
    if (key := whole(request.GET.get("prompt", ""))) is not None:
        prompt = Prompt.objects.filter(team=request.team, pk=key).first()
        found |= from_messages(prompt.messages) if prompt else {}
    return found


def from_messages(rows: Any) -> dict[str, str]:
    """A stored prompt in the form's two fields."""
    pairs = [(row[0], row[1]) if isinstance(row, list) else (row.get("role", ""), row.get("content", "")) for row in rows or []]
    system = "\n".join(text for role, text in pairs if role == "system")
    return {"system": system, "prompt": next((text for role, text in reversed(pairs) if role == "user"), "")}


def whole(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 and int(text) <= MAX_ID else None


def show(request: LabRequest, form: AskForm, status: int = 200) -> HttpResponse:
    context = {
        "room": "policies",
        "form": form,
        "offered": checkpoints(request.team),
        "side_fields": [form[name] for name in ("first", "second")],
        "setting_fields": [form[name] for name in ("count", "temperature", "top_p", "max_tokens", "seed")],
        "values": {name: form[name].value() for name in form.fields},
        "token": secrets.token_urlsafe(16),
        "earlier": Sampling.objects.of(request.team).select_related("user").prefetch_related("sides").order_by("-created_at")[:EARLIER],
        "served": Worker.objects.serving(ANALYSIS).exists(),
    }
    return render(request, "playground/ask.html", context, status=status)


def sampling_of(request: LabRequest, sampling_id: UUID) -> Sampling:
    """The team's sampling, or 404."""
    Sampling.objects.filter(pk=sampling_id).lose()
    found: Sampling = get_object_or_404(Sampling.objects.of(request.team).select_related("user", "queue"), pk=sampling_id)
    return found


@require_safe
def sampling(request: LabRequest, sampling_id: UUID) -> HttpResponse:
    found = sampling_of(request, sampling_id)
    context = {
        "room": "policies",
        "sampling": found,
        "sides": found.sides.select_related("checkpoint__run"),
        "state": showing.state(found),
        "served": not found.is_open or Worker.objects.serving(ANALYSIS).exists(),
    }
    return render(request, "playground/sampling.html", context)


@require_safe
def sampling_state(request: LabRequest, sampling_id: UUID) -> JsonResponse:
    """What the page draws, for scripts and for pages without a socket."""
    return JsonResponse(showing.state(sampling_of(request, sampling_id)), headers={"Cache-Control": "no-store"})


@require_POST
def stop(request: LabRequest, sampling_id: UUID) -> HttpResponse:
    found = sampling_of(request, sampling_id)
    if found.stop():
        messages.success(request, "Stopped. What was written stays.")
    return redirect("sampling", found.pk)


@require_POST
def label(request: LabRequest, sampling_id: UUID) -> HttpResponse:
    """Puts what was written into a labelling queue of its own; a second press leads to the same queue."""
    found = sampling_of(request, sampling_id)
    try:
        queue = storing.to_queue(found, request.user)
    except storing.Refused as error:
        messages.error(request, str(error))
        return redirect("sampling", found.pk)
    return redirect("queue", queue.pk)
