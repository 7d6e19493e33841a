"""The prompts of a run: which were solved, which unlearned, which lost since a step."""

from __future__ import annotations

from typing import Any, Literal
from uuid import UUID

from django.http import HttpRequest
from ninja import Field, Schema

from lab.edges.api.base import Query, make_router, require_permission
from lab.edges.api.operations.rollouts import VisitOut
from lab.edges.api.operations.runs import find_team_run
from lab.edges.api.page_cursors import After, Limit, Page, paginate_rows, parse_after_id
from lab.lib.numbers import MAX_INTEGER
from lab.rollouts.reading import history
from lab.rollouts.reading.prompts import PromptRow, is_prompt_selected, rows_of
from lab.rollouts.trajectories.models import Prompt
from lab.rollouts.trajectories.steps import resolve_phase_and_step

router = make_router("Rollouts")


class RunPromptOut(Schema):
    prompt: int = Field(description="Id of the prompt.")
    text: str = Field(description="The last user message.")
    state: str = Field(description="solved, unlearned or never.")
    asked: int = Field(description="Number of steps at which it was sampled.")
    first: VisitOut
    last: VisitOut
    lost: float | None = Field(description="With `since`: drop of its pass rate after that step.")


@router.get("/runs/{uuid:run_id}/prompts", auth=require_permission("runs.read"), response=Page[RunPromptOut], summary="Prompts of a run")
def list_run_prompts(
    request: HttpRequest,
    run_id: UUID,
    after: After,
    limit: Limit,
    phase: Literal["", "train", "heldout", "sampled"] = Query("", description="What they were sampled for; empty: the run's default phase."),
    state: Literal["", "solved", "unlearned", "never"] = Query("", description="Filter by state."),
    since: int | None = Query(
        None, ge=0, le=MAX_INTEGER, description="Only prompts that were solved at this step and are no longer solved after it."
    ),
) -> object:
    """Sorted by id. A prompt is solved when at least half of its answers pass. For runs with more than 200,000 rollouts, only the newest steps
    are read."""
    run = find_team_run(request, run_id)
    phase_read, steps = resolve_phase_and_step(run, phase, None)
    start = parse_after_id(after) if after else 0
    rows = rows_of(history.load_run_visits(run, phase_read, history.floor_of(run, steps.last or 0)), since)
    kept = sorted((row for row in rows if row.prompt > start and is_prompt_selected(row, state, since)), key=lambda row: row.prompt)[: limit + 1]
    texts = Prompt.objects.of(run.team_id).in_bulk([row.prompt for row in kept])
    return paginate_rows(kept, limit, lambda row: row.prompt, lambda row: serialize_run_prompt(row, texts[row.prompt].text))


def serialize_run_prompt(row: PromptRow, text: str) -> dict[str, Any]:
    fields = {name: getattr(row, name) for name in ("prompt", "state", "first", "last")}
    return {**fields, "text": text, "asked": len(row.visits), "lost": row.loss.amount if row.loss else None}
