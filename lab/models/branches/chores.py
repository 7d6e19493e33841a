"""Branches and questions for alternatives whose worker is gone, and waiting ones whose message is. Every worker does it now and then."""

from __future__ import annotations

from functools import partial

from lab.models.branches.models import Branch, TokenAlternatives
from lab.models.playground.chores import sweep_sampler_questions
from lab.models.playground.requests import send_sampler_task


def sweep_branches() -> None:
    """One round. Raises database errors; the caller sweeps again later."""
    sweep_sampler_questions(Branch, partial(send_sampler_task, "branch"))
    sweep_sampler_questions(TokenAlternatives, partial(send_sampler_task, "alternatives"))
