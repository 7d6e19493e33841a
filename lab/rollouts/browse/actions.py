"""What is done with the rollouts of a selection at once: put a tag on them or take it off, and take them along as a file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from django.contrib import messages
from django.db import transaction
from django.http import Http404, HttpResponse, HttpResponseBase, QueryDict
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from lab.lib.costly import limit_costly_requests
from lab.lib.downloads import stream_attachment
from lab.lib.numbers import parse_ids
from lab.rollouts.annotations.models import RolloutTag
from lab.rollouts.annotations.verbs import TAG_LENGTH, new_tag, normalize_typed_text, tag_named
from lab.rollouts.browse.address import Address
from lab.rollouts.browse.exports import FORMATS, MOST, MOST_WITH_TOKENS, Format
from lab.rollouts.browse.filter_bar import components_of, runs_to_choose
from lab.rollouts.browse.pages import filter_matching_rollouts, stream_rollouts
from lab.rollouts.browse.records import build_export_batches
from lab.rollouts.browse.regex import TooSlow
from lab.rollouts.browse.selection import Selection
from lab.rollouts.trajectories.models import Rollout
from lab.teams.accounts.requests import LabRequest
from lab.teams.audit.recording import record_audit_entry

MOST_TAGGED = 10_000  # rollouts by one press of the button
INSERTED = 1000  # rows of one statement
TAGGED_KEY = "tagged_rollouts"  # in the session: what the last press of the button put on


@require_POST
@limit_costly_requests(lambda request: request.POST.get("scope") == "all")
def tag_selection(request: LabRequest) -> HttpResponse:
    """Puts a tag on the rollouts that are ticked, or on the whole selection (``scope=all``); ``act=remove`` takes it off."""
    address = Address.read(QueryDict(request.POST.get("query", "").removeprefix("?")))
    problem, words = apply_selection_tag(request, address.selection)
    (messages.error if problem else messages.success)(request, words)
    return redirect(reverse("rollouts") + address.url(after=address.selection.after).removesuffix("?"))


def apply_selection_tag(request: LabRequest, selection: Selection) -> tuple[bool, str]:
    """Whether something was wrong, and what to say."""
    name = " ".join(normalize_typed_text(request.POST.get("tag", "")).split())
    if not name:
        return True, "Type a tag first."
    if len(name) > TAG_LENGTH:
        return True, f"A tag has at most {TAG_LENGTH} characters, this one has {len(name):,}. Shorten it."
    try:
        ids = find_selected_ids(request, selection)
    except TooSlow:
        return True, "The regular expression is too slow for the whole selection. Narrow the selection first; nothing was changed."
    if not ids:
        return True, "No rollouts selected. Select some with x, or choose all results."
    if len(ids) > MOST_TAGGED:
        return True, f"The selection has more than {MOST_TAGGED:,} rollouts. Narrow it first; nothing was changed."
    label = f"{len(ids):,} rollout{'' if len(ids) == 1 else 's'}"
    if request.POST.get("act") == "remove":
        gone = take_off(request, ids, name)
        return False, f"Removed “{name}” from {gone:,} of {label}."
    began = timezone.now()
    added = put_on(request, ids, name)
    if added:
        request.session[TAGGED_KEY] = {"tag": name, "count": added, "from": began.isoformat(), "to": timezone.now().isoformat()}
    return False, f"Tagged {label} “{name}”." + (f" {len(ids) - added:,} already had it." if added < len(ids) else "")


def find_selected_ids(request: LabRequest, selection: Selection) -> list[int]:
    """Ids of the team's rollouts that are meant; one more than allowed when there are too many."""
    if request.POST.get("scope") == "all":
        if selection.pattern:
            return [rollout.pk for rollout in stream_rollouts(request.team, selection, limit=MOST_TAGGED + 1)]
        return list(filter_matching_rollouts(request.team, selection).values_list("pk", flat=True)[: MOST_TAGGED + 1])
    return list(Rollout.objects.of(request.team).filter(pk__in=parse_ticked_ids(request.POST)).values_list("pk", flat=True)[: MOST_TAGGED + 1])


def parse_ticked_ids(query: QueryDict) -> list[int]:
    """The ids a form or an address names, in its order; what can be no id is left out."""
    return parse_ids(query.getlist("id"))


@require_POST
def undo_tag(request: LabRequest) -> HttpResponse:
    """Takes off what the person's last press of the button put on, and leaves what had the tag before."""
    done = request.session.pop(TAGGED_KEY, None)
    wanted = tag_named(request.team, done["tag"]) if done else None
    if wanted is None:
        messages.error(request, "Nothing left to undo.")
    else:
        mine = RolloutTag.objects.filter(tag=wanted, user=request.user, created_at__range=(done["from"], done["to"]))
        messages.success(request, f"Undone: removed “{wanted}” from {mine.delete()[0]:,} rollouts.")
    address = Address.read(QueryDict(request.POST.get("query", "").removeprefix("?")))
    return redirect(reverse("rollouts") + address.url(after=address.selection.after).removesuffix("?"))


def put_on(request: LabRequest, ids: list[int], name: str) -> int:
    with transaction.atomic():
        wanted = tag_named(request.team, name) or new_tag(request.team, request.user, name)
        have = set(RolloutTag.objects.filter(tag=wanted, rollout__in=ids).values_list("rollout_id", flat=True))
        rows = [RolloutTag(rollout_id=pk, tag=wanted, user=request.user) for pk in ids if pk not in have]
        RolloutTag.objects.bulk_create(rows, batch_size=INSERTED, ignore_conflicts=True)
    return len(rows)


def take_off(request: LabRequest, ids: Iterable[int], name: str) -> int:
    wanted = tag_named(request.team, name)
    return RolloutTag.objects.filter(tag=wanted, rollout__in=ids).delete()[0] if wanted else 0


@require_safe
@limit_costly_requests()
def export_rollouts(request: LabRequest, form: str) -> HttpResponseBase:
    """The selection as a file, or the rollouts that ``id`` names. More than a file holds is refused with words; ``first=1`` takes what it holds."""
    if form not in FORMATS:
        raise Http404
    kind = FORMATS[form]
    address = Address.read(request.GET)
    tokens = kind.tokens and request.GET.get("tokens") == "1"
    most = MOST_WITH_TOKENS if tokens else MOST
    ids = parse_ticked_ids(request.GET)
    if not ids and "first" not in request.GET and filter_matching_rollouts(request.team, address.selection).order_by()[: most + 1].count() > most:
        first = address.url_with("first") + ("&tokens=1" if tokens else "")
        context = {"room": "rollouts", "most": most, "kind": kind, "tokens": tokens, "first": first, "back": reverse("rollouts") + address.url()}
        return render(request, "browse/too_many.html", context, status=400)
    runs = runs_to_choose(request.team, address.selection.runs)
    components = components_of([run for run in runs if run.number in address.selection.runs] or runs, ())
    if request.method == "GET":
        what = {"rollouts": len(ids)} if ids else {"selection": address.url()[:500]}
        record_audit_entry(
            "rollouts.export",
            team=request.team,
            label=", ".join(f"#{number}" for number in address.selection.runs),
            format=form,
            tokens=tokens,
            **what,
        )
    rollouts = fetch_ordered_rollouts(request, ids) if ids else stream_rollouts(request.team, address.selection, limit=most)
    body = kind.write(build_export_batches(rollouts, tokens), components, tokens)
    return stream_attachment(request, body, file_name(address.selection, kind), kind.media_type)


def fetch_ordered_rollouts(request: LabRequest, ids: list[int]) -> Iterator[Rollout]:
    rollouts = Rollout.objects.of(request.team).select_related("prompt", "run").in_bulk(ids)
    yield from (rollouts[pk] for pk in dict.fromkeys(ids) if pk in rollouts)


def file_name(selection: Selection, kind: Format) -> str:
    """Made by the lab alone: nothing of it comes from a person or a model."""
    runs = "-".join(str(number) for number in selection.runs[:5]) or "all"
    return f"rollouts-run-{runs}-{timezone.now():%Y%m%d-%H%M%S}.{kind.name}"
