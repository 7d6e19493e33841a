"""The runs list: one URL, the whole page or only its table."""

import secrets

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django_htmx.http import push_url

from lab.teams.accounts import projects
from lab.teams.accounts.requests import LabRequest, wants_fragment
from lab.teams.accounts.roles import has_team_permission
from lab.training.runs import listing
from lab.training.runs.models import TAG_LENGTH, Run, Status

COLUMNS = (
    ("status", "Status", ""),
    ("name", "Run", ""),
    ("recipe", "Recipe", "c-recipe"),
    ("policy", "Policy", "c-policy"),
    ("task", "Task", "c-task"),
    ("progress", "Progress", ""),
    ("", "Reward curve", "c-spark"),
    ("reward", "Reward", "num"),
    ("entropy", "Entropy", "num c-entropy"),
    ("speed", "Tokens/s", "num c-speed"),
    ("age", "Age", "num"),
    ("who", "Who", "c-who"),
)
STATUSES = (("open", "Open (queued or running)"), ("ended", "Ended"), *((status.value, status.label) for status in Status))


def show_home(request: HttpRequest) -> HttpResponse:
    """The runs; for annotators, who see none, their queues."""
    return redirect("runs" if has_team_permission(request, "runs.read") else "queues")


def list_runs(request: LabRequest) -> HttpResponse:
    query = listing.read_query(request.GET)
    page = listing.page_of(request.team, query)
    fragment = wants_fragment(request)
    people = listing.list_run_filter_choices(request.team, query.chosen.get("project", ""))
    context = {
        "room": "runs",
        "query": query,
        "page": page,
        "rows": listing.build_run_rows(list(page.object_list)),
        "columns": [(key, title, classes, query.toggled(key) if key else "", _format_sort_direction(query, key)) for key, title, classes in COLUMNS],
        "chips": _build_filter_chips(query, people),
        "choices": people,
        "statuses": STATUSES,
        "may_move": has_team_permission(request, "projects.manage") and people.projects,
        "archived": query.chosen.get("archived", ""),
        "archived_count": listing.count_archived_runs(request.team, query),
        "archived_url": query.url(archived=listing.ARCHIVED),
        "tag_length": TAG_LENGTH,
        "any_runs": bool(page.paginator.count) or Run.objects.of(request.team).exists(),
        "newer": query.url(page=str(page.number - 1)),
        "older": query.url(page=str(page.number + 1)),
        "token": secrets.token_urlsafe(16),
        "newest": Run.objects.of(request.team).order_by("-number").values_list("number", flat=True).first() or 0,
    }
    response = TemplateResponse(request, "runs/list.html" + ("#table" if fragment else ""), context)
    if not fragment:
        return response
    page_number = str(page.number) if page.number > 1 else ""
    address = reverse("runs") + query.url(page=page_number).removesuffix("?")
    # Rows that are drawn anew where they stand, after an act on some of them, are no step in the history.
    return response if request.htmx.current_url_abs_path == address else push_url(response, address)


def _format_sort_direction(query: listing.RunQuery, key: str) -> str:
    if not key or key != query.key:
        return ""
    return "descending" if query.descending else "ascending"


def _build_filter_chips(query: listing.RunQuery, choices: listing.RunFilterChoices) -> list[tuple[str, str]]:
    """Each filter that is set: what it says, and the query string without it."""
    names = {str(person.pk): str(person) for person in choices.people}
    named = {str(project.pk): project.name for project in choices.projects}
    archive = {listing.ARCHIVED: "only", listing.EVERYTHING: "included"}
    words = {"status": dict(STATUSES), "who": names, "project": {projects.NONE: "none", **named}, "archived": archive}
    titles = {"status": "Status", "project": "Project", "recipe": "Recipe", "method": "Method", "task": "Task", "tag": "Tag", "who": "Who"}
    titles |= {"archived": "Archived", "q": "Text"}
    return [(f"{titles[name]}: {words.get(name, {}).get(value, value)}", query.url(**{name: ""})) for name, value in query.chosen.items()]
