"""What another method would have done with stored rollouts: asking, waiting, and reading the answer."""

from __future__ import annotations

import secrets
import uuid
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from lab.lib.numbers import parse_ids
from lab.rollouts.replay.forms import QuestionForm
from lab.rollouts.replay.models import Replay
from lab.rollouts.replay.pages import MOST_IDS, ORDERS, MemberListing, groups_of, members_page, recipe_chips, tokens_json
from lab.rollouts.replay.questions import TRAINER, enqueue_replay, lacks_token_ids
from lab.training.catalog.catalog import load_catalog
from lab.training.runs.form_tokens import act_once_per_token
from lab.training.runs.header import build_run_header
from lab.training.runs.models import Run
from lab.training.runs.views.page import find_team_run
from lab.training.workers.models import ANALYSIS, Worker

EARLIER = 20
TOKEN_LENGTH = 64


@require_http_methods(["GET", "HEAD", "POST"])
def what_if(request: HttpRequest, run_id: Any) -> HttpResponse:
    """The form: ``?step=&group=`` and methods to add (``add``), or an earlier question to change (``from``). POST asks."""
    run = find_team_run(request, run_id)
    if request.method == "POST" and run.trainer == TRAINER:
        return submit_replay_question(request, run)
    form = form_of(request, run) if run.trainer == TRAINER else None
    if form is not None and request.GET.get("part") == "groups":
        return render(request, "replay/ask.html#groups", {"form": form, **build_question_choices(form)})
    return show_replay_form(request, run, form)


def form_of(request: HttpRequest, run: Run) -> QuestionForm:
    place = {name: request.GET[name] for name in ("step", "group") if name in request.GET}
    form = QuestionForm(run, load_catalog(), earlier=earlier_of(request, run), place=place)
    for name in request.GET.getlist("add")[:10]:
        form.stack.add_or_refuse(name)
    return form


def earlier_of(request: HttpRequest, run: Run) -> Replay | None:
    try:
        key = uuid.UUID(request.GET.get("from", ""))
    except ValueError:
        return None
    return replays_of(request).filter(run=run, pk=key).first()


def submit_replay_question(request: HttpRequest, run: Run) -> HttpResponse:
    form = QuestionForm(run, load_catalog(), {key: value.replace("\0", "\u2400") for key, value in request.POST.items() if isinstance(value, str)})
    if "act" in request.POST:
        try:
            form.edit(request.POST["act"])
        except ValueError:
            raise Http404("no such button") from None
        return show_replay_form(request, run, form)
    replay = form.question()
    if replay is None:
        return show_replay_form(request, run, form, status=422)

    def store() -> str:
        replay.user = request.user  # type: ignore[assignment]
        replay.save(force_insert=True)
        enqueue_replay(replay)
        return reverse("replay", args=[replay.pk])

    return redirect(act_once_per_token(request, f"replay/{token_of(request)}", store))


def token_of(request: HttpRequest) -> str:
    """What makes sending the form twice the same act."""
    return request.POST.get("token", "")[:TOKEN_LENGTH] or secrets.token_urlsafe(16)


def show_replay_form(request: HttpRequest, run: Run, form: QuestionForm | None, status: int = 200) -> HttpResponse:
    context = {
        **build_run_header(run, "what-if"),
        "form": form,
        "without_tokens": form is not None and lacks_token_ids(run),
        "token": secrets.token_urlsafe(16),
        "earlier": list_earlier_replays(replays_of(request).filter(run=run)),
        "served": is_analysis_served(),
        **(build_question_choices(form) if form else {}),
    }
    return render(request, "replay/ask.html", context, status=status)


def build_question_choices(form: QuestionForm) -> dict[str, Any]:
    steps = form.steps()
    return {"steps": steps, "step": form.values["step"] or steps.step or "", "groups": form.groups(steps.step)}


def list_earlier_replays(replays: Any) -> list[dict[str, Any]]:
    rows = replays.order_by("-created_at").select_related("user").defer("result")[:EARLIER]
    return [{"replay": replay, "chips": recipe_chips(replay.base, replay.methods)} for replay in rows]


def is_analysis_served() -> bool:
    return Worker.objects.serving(ANALYSIS).exists()


def replays_of(request: HttpRequest) -> Any:
    return Replay.objects.of(request.team).filter(run__binned_at=None)  # type: ignore[attr-defined]


def replay_of(request: HttpRequest, replay_id: Any) -> Replay:
    """The team's question, or 404."""
    replays_of(request).filter(pk=replay_id).lose()
    replay: Replay = get_object_or_404(replays_of(request).select_related("run__parent", "run__cloned_from", "run__created_by", "user"), pk=replay_id)
    return replay


@require_safe
def show_replay(request: HttpRequest, replay_id: Any) -> HttpResponse:
    """The answer, or how far it is; ``?part=state`` what changes while one waits."""
    replay = replay_of(request, replay_id)
    if request.GET.get("part") == "state":
        if not replay.is_open:
            return HttpResponse(headers={"HX-Refresh": "true"})
        return render(request, "replay/answer.html#state", build_replay_progress(replay))
    context = {
        **build_run_header(replay.run, "what-if"),
        "run": replay.run,
        **build_replay_progress(replay),
        "chips": recipe_chips(replay.base, replay.methods),
    }
    context["own"] = recipe_chips(replay.run.spec.get("base"), replay.run.spec.get("methods"))
    if replay.readable:
        context |= build_replay_answer(replay, MemberListing.read(request.GET))
    return render(request, "replay/answer.html", context)


def build_replay_progress(replay: Replay) -> dict[str, Any]:
    since = replay.started_at or replay.created_at
    return {"replay": replay, "seconds": (timezone.now() - since).total_seconds(), "served": not replay.is_open or is_analysis_served()}


def build_replay_answer(replay: Replay, listing: MemberListing) -> dict[str, Any]:
    members, count, pages = members_page(replay, listing)
    return {
        "result": replay.result,
        "members": members,
        "listed": count,
        "listing": listing,
        "groups": groups_of(replay, members),
        "orders": [(label, listing.query(order=name), name == listing.order) for name, label in ORDERS.items()],
        "flipped_query": listing.query(only_flipped=not listing.only_flipped),
        "page": min(listing.page, pages),
        "pages": [(number, listing.query(page=number), number == min(listing.page, pages)) for number in range(1, pages + 1)] if pages > 1 else [],
    }


@require_POST
def retry_replay(request: HttpRequest, replay_id: Any) -> HttpResponse:
    """Asks a failed question once more."""
    replay = replay_of(request, replay_id)
    if replay.retry():
        enqueue_replay(replay)
    return redirect("replay", replay_id=replay.pk)


@require_safe
def show_replay_tokens(request: HttpRequest, replay_id: Any) -> HttpResponse:
    """Tokens both ways of members of a finished answer: ``?ids=1,2,3``. Others are left out."""
    replay = replay_of(request, replay_id)
    if not replay.readable:
        raise Http404("no answer yet")
    words = request.GET.get("ids", "").split(",")[:MOST_IDS]
    ids = parse_ids(words)
    return JsonResponse({"rollouts": tokens_json(replay, ids)}, headers={"Cache-Control": "no-store"})
