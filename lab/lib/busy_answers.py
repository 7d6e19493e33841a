"""Answers that the lab gives when it cannot do something now: 429 or 503 with Retry-After, in the words and the form of whoever asks."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.template import loader

TITLES = {429: "Too many requests", 503: "The server is busy"}


def build_busy_response(request: HttpRequest, status: int, words: str, seconds: int) -> HttpResponse:
    """A page for a person, plain words for a part of a page, JSON for a script. Reads nothing from the database."""
    headers = {"Retry-After": str(seconds), "Cache-Control": "no-store"}
    if request.headers.get("HX-Request"):
        return HttpResponse(words, status=status, content_type="text/plain; charset=utf-8", headers=headers)
    if "text/html" not in request.headers.get("Accept", "text/html"):
        return JsonResponse({"message": words, "fix": f"Try again in {seconds} s."}, status=status, headers=headers)
    page = loader.get_template("busy.html").render({"status": status, "title": TITLES[status], "words": words, "seconds": seconds})
    return HttpResponse(page, status=status, headers=headers)
