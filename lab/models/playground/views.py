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

from lab.lib.numbers import parse_whole_number
from lab.lib.refusals import Refusal
from lab.models.playground import display, stored_samples
from lab.models.playground.models import Sampling
from lab.models.playground.requests import AskForm, list_sampleable_checkpoints
from lab.rollouts.trajectories.models import Prompt
from lab.teams.accounts.requests import LabRequest
from lab.training.runs.form_tokens import act_once_per_token
from lab.training.workers.models import ANALYSIS, Worker

EARLIER = 20
TOKEN_LENGTH = 64


def show_playground(request: LabRequest) -> HttpResponse:
    """The form (GET; ``?first=``, ``?second=``, ``?prompt=<id>``, ``?again=<sampling>`` fill it) and asking (POST)."""
    if request.method == "POST":
        form = AskForm(request.team, request.POST)
        if not form.is_valid():
            return render_ask_form(request, form, status=422)
        token = request.POST.get("token", "")[:TOKEN_LENGTH] or secrets.token_urlsafe(16)
        return redirect(act_once_per_token(request, f"playground/{token}", lambda: reverse("sampling", args=[form.ask(request.user).pk])))
    return render_ask_form(request, AskForm(request.team, initial=collect_prefill_values(request)))


def collect_prefill_values(request: LabRequest) -> dict[str, Any]:
    """What the address fills the form with; unknown ids fill nothing."""
    values: dict[str, Any] = {}
    again = request.GET.get("again", "")
    try:
        sampling = Sampling.objects.of(request.team).filter(pk=UUID(again)).first() if again else None
    except ValueError:
        sampling = None
    if sampling is not None:
        values |= {name: getattr(sampling, name) for name in ("count", "temperature", "top_p", "max_tokens", "seed")}
        values |= {"prompt": sampling.question, "system": sampling.prompt[0]["content"] if len(sampling.prompt) > 1 else ""}
        values |= dict(zip(("first", "second"), sampling.sides.values_list("checkpoint", flat=True), strict=False))
    for field in ("first", "second"):
        if (value := parse_whole_number(request.GET.get(field, ""))) is not None:
            values[field] = value
    if (key := parse_whole_number(request.GET.get("prompt", ""))) is not None:
        prompt = Prompt.objects.filter(team=request.team, pk=key).first()
        values |= from_messages(prompt.messages) if prompt else {}
    return values


def from_messages(rows: Any) -> dict[str, str]:
    """A stored prompt in the form's two fields."""
    pairs = [(row[0], row[1]) if isinstance(row, list) else (row.get("role", ""), row.get("content", "")) for row in rows or []]
    system = "\n".join(text for role, text in pairs if role == "system")
    return {"system": system, "prompt": next((text for role, text in reversed(pairs) if role == "user"), "")}


def render_ask_form(request: LabRequest, form: AskForm, status: int = 200) -> HttpResponse:
    context = {
        "room": "policies",
        "form": form,
        "offered": list_sampleable_checkpoints(request.team),
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
    Sampling.objects.of(request.team).filter(pk=sampling_id).lose()
    sampling: Sampling = get_object_or_404(Sampling.objects.of(request.team).select_related("user", "queue"), pk=sampling_id)
    return sampling


@require_safe
def show_sampling(request: LabRequest, sampling_id: UUID) -> HttpResponse:
    sampling = sampling_of(request, sampling_id)
    context = {
        "room": "policies",
        "sampling": sampling,
        "sides": sampling.sides.select_related("checkpoint__run"),
        "state": display.build_sampling_state(sampling),
        "served": not sampling.is_open or Worker.objects.serving(ANALYSIS).exists(),
    }
    return render(request, "playground/sampling.html", context)


@require_safe
def sampling_state(request: LabRequest, sampling_id: UUID) -> JsonResponse:
    """What the page draws, for scripts and for pages without a socket."""
    return JsonResponse(display.build_sampling_state(sampling_of(request, sampling_id)), headers={"Cache-Control": "no-store"})


@require_POST
def stop_sampling(request: LabRequest, sampling_id: UUID) -> HttpResponse:
    sampling = sampling_of(request, sampling_id)
    if sampling.stop():
        messages.success(request, "Stopped. Completions so far are kept.")
    return redirect("sampling", sampling.pk)


@require_POST
def queue_sampling_for_labelling(request: LabRequest, sampling_id: UUID) -> HttpResponse:
    """Puts what was written into a labelling queue of its own; a second press leads to the same queue."""
    sampling = sampling_of(request, sampling_id)
    try:
        queue = stored_samples.to_queue(sampling, request.user)
    except Refusal as error:
        messages.error(request, str(error))
        return redirect("sampling", sampling.pk)
    return redirect("queue", queue.pk)
