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
from lab.models.playground.steering import find_newest_pairs, list_steering_vectors, list_vector_checkpoints
from lab.rollouts.trajectories.models import Prompt
from lab.teams.accounts.requests import LabRequest
from lab.training.runs.form_tokens import act_once_per_token
from lab.training.workers.models import ANALYSIS, Worker
from trainers.contract.steering_file import MOST_ALPHA

EARLIER = 20
TOKEN_LENGTH = 64


def show_playground(request: LabRequest) -> HttpResponse:
    """The form (GET) and asking (POST).

    ``?first=``, ``?second=``, ``?vector=`` and ``?alpha=``, ``?prompt=<id>`` and ``?again=<sampling>`` fill it, ``?steer=<run number>`` with the
    vector of that run.
    """
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
        values |= {**collect_again_values(sampling), **collect_side_values(sampling)}
    for field in ("first", "second", "vector"):
        if (value := parse_whole_number(request.GET.get(field, ""))) is not None:
            values[field] = value
    if (number := parse_whole_number(request.GET.get("steer", ""))) is not None:
        values["vector"] = list_vector_checkpoints(request.team).filter(run__number=number).values_list("pk", flat=True).first()
    if (alpha := parse_alpha(request.GET.get("alpha", ""))) is not None:
        values["alpha"] = alpha
    if (key := parse_whole_number(request.GET.get("prompt", ""))) is not None:
        prompt = Prompt.objects.filter(team=request.team, pk=key).first()
        values |= from_messages(prompt.messages) if prompt else {}
    return values


def collect_again_values(sampling: Sampling) -> dict[str, Any]:
    """What asks the same again, but for the sides."""
    settings = {name: getattr(sampling, name) for name in ("count", "temperature", "top_p", "max_tokens", "seed")}
    return {**settings, "prompt": sampling.question, "system": sampling.prompt[0]["content"] if len(sampling.prompt) > 1 else ""}


def write_value(value: Any) -> Any:
    """A number as a person would type it."""
    return f"{value:g}" if isinstance(value, float) else value


def collect_side_values(sampling: Sampling) -> dict[str, Any]:
    """What of the form a sampling's sides stand for."""
    sides = list(sampling.sides.all())
    values = dict(zip(("first", "second"), [side.checkpoint_id for side in sides if not side.is_steered], strict=False))
    steered = next((side for side in sides if side.vector_id is not None), None)
    return values | ({"vector": steered.vector_id, "alpha": steered.alpha} if steered else {})


def parse_alpha(text: str) -> float | None:
    """A number in the range of the slider's own input; None for anything else."""
    try:
        alpha = float(text[:40])
    except ValueError:
        return None
    return alpha if abs(alpha) <= MOST_ALPHA else None


def from_messages(rows: Any) -> dict[str, str]:
    """A stored prompt in the form's two fields."""
    pairs = [(row[0], row[1]) if isinstance(row, list) else (row.get("role", ""), row.get("content", "")) for row in rows or []]
    system = "\n".join(text for role, text in pairs if role == "system")
    return {"system": system, "prompt": next((text for role, text in reversed(pairs) if role == "user"), "")}


def render_ask_form(request: LabRequest, form: AskForm, status: int = 200) -> HttpResponse:
    vectors = list_steering_vectors(request.team)
    context = {
        "room": "policies",
        "form": form,
        "offered": list_sampleable_checkpoints(request.team),
        "side_fields": [form[name] for name in ("first", "second")],
        "setting_fields": [form[name] for name in ("count", "temperature", "top_p", "max_tokens", "seed")],
        "values": {name: write_value(form[name].value()) for name in form.fields},
        "vectors": vectors,
        "pairs": None if vectors else find_newest_pairs(request.team),
        "most_alpha": MOST_ALPHA,
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
    sides = list(sampling.sides.select_related("checkpoint__run", "vector__run").prefetch_related("samples"))
    context = {
        "room": "policies",
        "sampling": sampling,
        "sides": sides,
        "steered": next((side for side in sides if side.is_steered), None),
        "strength": write_value(next((side.alpha for side in sides if side.is_steered), 0.0)),
        "again": {**collect_again_values(sampling), **collect_side_values(sampling)},
        "most_alpha": MOST_ALPHA,
        "token": secrets.token_urlsafe(16),
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
