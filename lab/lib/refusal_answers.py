"""A refusal as whoever asked reads it: beside the input of a form, as a message on the next page, as JSON, or as a page of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.shortcuts import redirect, render
from django.urls import get_resolver

from lab.lib.refusals import Refusal

TITLES = {409: "Not possible right now", 410: "No longer available", 422: "Check your input"}


class RefusalMiddleware:
    """Answers for every view that let a refusal through."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponseBase | None:
        if not isinstance(exception, Refusal):
            return None
        return build_json_refusal(exception) if wants_json(request) else render_refusal_page(request, exception)


def wants_json(request: HttpRequest) -> bool:
    return (request.content_type or "").startswith("application/json")


def build_json_refusal(refusal: Refusal) -> JsonResponse:
    if refusal.problems:
        body: dict[str, Any] = {"problems": [asdict(problem) for problem in refusal.problems]}
    else:
        body = {"message": refusal.message, "fix": refusal.fix, **({"error": refusal.code} if refusal.code else {})}
    return JsonResponse(body, status=refusal.status, headers={"Cache-Control": "no-store"})


def render_refusal_page(request: HttpRequest, refusal: Refusal) -> HttpResponseBase:
    """The page that Django shows for 403 and 404; the words alone for every other status."""
    plain: dict[int, Exception] = {403: PermissionDenied(str(refusal)), 404: Http404(str(refusal))}
    if refusal.status in plain:
        answer: Callable[..., HttpResponseBase] = get_resolver().resolve_error_handler(refusal.status)
        return answer(request, exception=plain[refusal.status])
    context = {"status": refusal.status, "title": TITLES.get(refusal.status, "Not possible"), "words": str(refusal)}
    return render(request, "busy.html", context, status=refusal.status)


@contextmanager
def note_refusal(form: forms.Form) -> Iterator[None]:
    """What is refused inside stands beside the input it names, or on top of the form."""
    try:
        yield
    except Refusal as refusal:
        form.add_error(refusal.field if refusal.field in form.fields else None, str(refusal))


def run_act_and_redirect(request: HttpRequest, act: Callable[[], str], *back: Any) -> HttpResponse:
    """Does what was asked; says what was done, or why not; and goes to ``back``, what ``redirect`` takes."""
    try:
        messages.success(request, act())
    except Refusal as refusal:
        messages.error(request, str(refusal))
    return redirect(*back)
