"""What a run has measured."""

from __future__ import annotations

from uuid import UUID

from django.http import HttpRequest
from ninja import Field, Schema

from lab.edges.api.base import Query, make_router, require_permission
from lab.edges.api.operations.runs import find_team_run
from lab.edges.api.problems import make_invalid_problem
from lab.lib.numbers import MAX_ID
from lab.lib.snapshots import open_read_snapshot
from lab.training.runs import metrics

router = make_router("Metrics")
MOST_NAMES = 50
BUCKETS = 5000


class SeriesOut(Schema):
    name: str = Field(examples=["reward"])
    steps: list[int]
    values: list[float | None] = Field(description="One per step; null for NaN and infinity.")


class Metrics(Schema):
    series: list[SeriesOut] = Field(description="The requested metrics that exist, sorted by name.")
    cursor: int = Field(description="Send it back as `since` to get only what was stored after these points.")


@router.get("/runs/{uuid:run_id}/metrics", auth=require_permission("runs.read"), response=list[str], summary="List metrics of a run")
def list_metrics(request: HttpRequest, run_id: UUID) -> object:
    """`@time` (seconds since 1970) and `@tokens` are also available: other x-axes of the same steps."""
    return metrics.list_metric_names(find_team_run(request, run_id).pk)


@router.get("/runs/{uuid:run_id}/series", auth=require_permission("runs.read"), response=Metrics, summary="Values of metrics")
def get_series(
    request: HttpRequest,
    run_id: UUID,
    name: list[str] = Query(
        [],
        max_length=MOST_NAMES,
        description="A metric; repeat it for several. Required, except with `since`, where none means all metrics.",
        examples=[["reward"]],
    ),
    points: int = Query(
        1000, ge=0, le=BUCKETS, description="Number of step ranges; each returns its smallest and largest value, so no spike is lost. 0: every point."
    ),
    since: int | None = Query(None, ge=0, le=MAX_ID, description="`cursor` of an earlier response: only points that were stored after it."),
) -> object:
    """Points that a resumed attempt has replaced are left out. To follow a run, repeat the request with the cursor of the last response."""
    if not name and since is None:
        raise make_invalid_problem("name", "is required without since", "name at least one metric, such as name=reward")
    if any(len(metric) > metrics.NAME_LENGTH for metric in name):
        raise make_invalid_problem("name", f"a metric's name has at most {metrics.NAME_LENGTH} characters", "use a name from the list of metrics")
    with open_read_snapshot():
        run = find_team_run(request, run_id)
        series = metrics.read_metric_series(run.pk, name or None, points, -1 if since is None else since)
    curves = [{"name": curve.name, "steps": curve.steps.tolist(), "values": curve.values.tolist()} for _, curve in sorted(series.items())]
    return {"series": curves, "cursor": run.ingested}
