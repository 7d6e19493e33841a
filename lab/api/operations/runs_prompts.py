"""The prompts of a run: which were solved, which unlearned, which lost since a step."""

from __future__ import annotations

from typing import Any, Literal
from uuid import UUID

from django.http import HttpRequest
from ninja import Field, Schema

from lab.api.base import Query, needs, noun
from lab.api.operations.rollouts import VisitOut
from lab.api.operations.runs import run_of
from lab.api.paging import After, Limit, Page, page, whole
from lab.browse.selection import MAX_RUN
from lab.reading import history
from lab.reading.prompts import Row, keeps, rows_of
from lab.trajectories.models import Prompt
from lab.trajectories.steps import resolve

router = noun("Rollouts")


class RunPromptOut(Schema):
    prompt: int = Field(description="Its id.")
    text: str = Field(description="The last user message.")
    state: str = Field(description="solved, unlearned or never.")
    asked: int = Field(description="Steps at which it was asked.")
    first: VisitOut
    last: VisitOut
    lost: float | None = Field(description="With `since`: how much of its pass rate was lost after that step.")


@router.get("/runs/{uuid:run_id}/prompts", auth=needs("runs.read"), response=Page[RunPromptOut], summary="Prompts of a run")
def list_run_prompts(
    request: HttpRequest,
    run_id: UUID,
    after: After,
    limit: Limit,
    phase: Literal["", "train", "heldout", "sampled"] = Query("", description="What they were asked for; empty: the run's usual phase."),
    state: Literal["", "solved", "unlearned", "never"] = Query("", description="Only these."),
    since: int | None = Query(None, ge=0, le=MAX_RUN, description="Only prompts that were solved at this step and are not after it."),
) -> object:
    """By id. A prompt is solved when at least half of its answers pass. Of a run with more than 200,000 rollouts the newest steps are read."""
    run = run_of(request, run_id)
    found, steps = resolve(run, phase, None)
    start = whole(after) if after else 0
    rows = rows_of(history.of_run(run, found, history.floor_of(run, steps.last or 0)), since)
    kept = sorted((row for row in rows if row.prompt > start and keeps(row, state, since)), key=lambda row: row.prompt)[: limit + 1]
    texts = Prompt.objects.in_bulk([row.prompt for row in kept])
    return page(kept, limit, lambda row: row.prompt, lambda row: shown(row, texts[row.prompt].text))


def shown(row: Row, text: str) -> dict[str, Any]:
    fields = {name: getattr(row, name) for name in ("prompt", "state", "first", "last")}
    return {**fields, "text": text, "asked": len(row.visits), "lost": row.loss.amount if row.loss else None}
