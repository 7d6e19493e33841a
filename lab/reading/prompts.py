"""Pages over prompts: one prompt's history over steps and runs, and the prompts of a run."""

from django.http import Http404, HttpRequest, HttpResponse


def prompt(request: HttpRequest, prompt_id: int) -> HttpResponse:
    raise Http404


def prompts(request: HttpRequest) -> HttpResponse:
    raise Http404
