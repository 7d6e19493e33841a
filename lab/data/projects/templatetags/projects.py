"""``{% load projects %}{% project_of run "run" %}``: which project a run, queue or dataset is in, and a small form that moves it."""

from typing import Any

from django import template

from lab.teams.accounts import projects

register = template.Library()


@register.inclusion_tag("projects/of.html", takes_context=True)
def project_of(context: dict[str, Any], thing: Any, kind: str) -> dict[str, Any]:
    may, request = context.get("may"), context.get("request")
    manages = bool(may and request and may["projects"]["manage"])
    choices = projects.list_project_choices(thing.team, thing.project_id) if manages else []
    key = thing.number if kind == "run" else thing.pk
    return {"thing": thing, "kind": kind, "key": key, "choices": choices, "manages": manages, "csrf_token": context.get("csrf_token")}
