"""``{% load recalls %}``: what a run's header says when labels it rests on were taken back."""

from typing import Any

from django import template

from lab.data.loop.recall_effects import flags_of_run
from lab.training.runs.models import Run

register = template.Library()


@register.inclusion_tag("loop/run_flags.html")
def recall_flags(run: Run) -> dict[str, Any]:
    return {"flags": flags_of_run(run), "run": run}
