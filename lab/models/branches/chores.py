"""Branches and questions for alternatives whose worker is gone, and waiting ones whose message is. Every worker does it now and then."""

from __future__ import annotations

from lab.models.branches.models import Branch, TokenAlternatives
from lab.models.playground.chores import sweep_sampler_questions


def sweep_branches() -> None:
    """One round. Raises database errors; the caller sweeps again later."""
    sweep_sampler_questions(Branch, "branch")
    sweep_sampler_questions(TokenAlternatives, "alternatives")
