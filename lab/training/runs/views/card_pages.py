"""A page of cards with search and facets: one address, the whole page or only its results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.http import HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django_htmx.http import push_url

from lab.teams.accounts.requests import LabRequest, wants_fragment
from lab.training.catalog.facets import C, FacetQuery, Facets, build_facet_choices


def render_card_page(
    request: LabRequest, route: str, everything: Sequence[C], facets: Facets[C], query: FacetQuery, shown: list[Any]
) -> HttpResponse:
    """``route``: of the page, whose template is called like it. ``shown``: the cards that match, as the template wants them."""
    fragment = wants_fragment(request)
    context = {
        "room": "methods",
        "query": query,
        "shown": shown,
        "all_count": len(everything),
        "facets": build_facet_choices(everything, facets, query),
    }
    response = TemplateResponse(request, f"catalog/{route}.html" + ("#results" if fragment else ""), context)
    return push_url(response, reverse(route) + query.url().removesuffix("?")) if fragment else response
