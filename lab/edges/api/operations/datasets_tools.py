"""Dataset tools: what there is, what one would make of a version's first rows, and the version that it makes. The source never changes."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja import Field, Schema, Status

from lab.data.datasets.models import Dataset, Version
from lab.data.datasets.tool_acts import LONGEST_NAME, apply_tool_to_version
from lab.data.datasets.tool_form import suggest_dataset_name
from lab.data.datasets.tool_plan import ToolPlan, plan_tool
from lab.data.datasets.tool_rows import preview_tool
from lab.edges.api.base import RequestBody, caller_of, make_router, require_permission
from lab.edges.api.idempotency import Key, run_idempotent_action
from lab.edges.api.operations.datasets import VersionOut, find_dataset_version, versions_shown
from lab.edges.api.problems import make_invalid_problem
from lab.lib.costly import under_way
from lab.lib.numbers import MAX_ID
from trainers.contract.dataset_tools.application import MOST_SEED
from trainers.contract.dataset_tools.registry import TOOLS

router = make_router("Datasets")


class DatasetToolOut(Schema):
    name: str
    title: str
    summary: str
    arxiv: str
    departures: list[str] = Field(description="Differences from the paper.")
    forms: dict[str, str] = Field(description="Form of the rows it takes: form of the rows it makes.", examples=[{"completion": "preference"}])
    parameters: dict[str, Any] = Field(description="JSON schema of its settings.")


class DatasetToolIn(RequestBody):
    tool: str = Field(max_length=60, examples=["skyreels-v2"])
    config: dict[str, Any] = Field({}, description="Its settings; those left out have their defaults.", examples=[{"per_answer": 2}])
    seed: int = Field(0, ge=0, le=MOST_SEED, description="The same rows with the same settings and seed become the same rows.")


class ApplyToolIn(DatasetToolIn):
    dataset: int | None = Field(None, ge=1, le=MAX_ID, description="A dataset made by tools whose next version it is; default: a new dataset.")
    name: str = Field("", max_length=LONGEST_NAME, description="Name of a new dataset; default: the source's name and what the tool does.")
    notes: str = Field("", max_length=10_000)


class MadeRowOut(Schema):
    row: dict[str, Any] = Field(description="A row in TRL's format.")
    provenance: dict[str, Any] = Field(description="Where it comes from; under `tool` what was done to which row.")


class ToolPreviewOut(Schema):
    read: int = Field(description="Rows looked at: the first of the version.")
    made: int
    dropped: dict[str, int] = Field(description="Rows of which nothing is made, by reason.")
    total: int = Field(description="Rows of the version.")
    samples: list[MadeRowOut]


def read_tool_plan(source: Version, given: DatasetToolIn) -> ToolPlan:
    return plan_tool(source, given.tool, given.config, given.seed)


@router.get("/dataset-tools", auth=require_permission("datasets.read"), response=list[DatasetToolOut], summary="List dataset tools")
def list_dataset_tools(request: HttpRequest) -> object:
    """What can be applied to the versions of datasets, with the settings of each."""
    names = ("name", "title", "summary", "arxiv")
    return [
        {
            **{name: getattr(kind.card, name) for name in names},
            "departures": list(kind.card.departures),
            "forms": dict(kind.forms),
            "parameters": kind.Config.model_json_schema(),
        }
        for kind in TOOLS.values()
    ]


@router.post(
    "/versions/{int:version_id}/tool/preview", auth=require_permission("datasets.write"), response=ToolPreviewOut, summary="Preview a dataset tool"
)
def preview_dataset_tool(request: HttpRequest, version_id: int, given: DatasetToolIn) -> object:
    """What the tool makes of the first rows. Nothing is stored."""
    source = find_dataset_version(request, version_id)
    with under_way(request):
        preview = preview_tool(source, read_tool_plan(source, given))
    samples = [{"row": row.row, "provenance": row.provenance} for row in preview.samples]
    return {**preview.counts.as_json(), "total": preview.total, "samples": samples}


@router.post(
    "/versions/{int:version_id}/tool",
    auth=require_permission("datasets.write"),
    response={201: VersionOut, 200: VersionOut},
    summary="Apply a dataset tool",
)
def apply_dataset_tool(request: HttpRequest, version_id: int, given: ApplyToolIn, key: Key) -> object:
    """Makes a version of another dataset, which a worker builds; poll until its state is `ready`. `rule.tool` says what was applied to which version,
    `counts` what was left out.
    """
    caller, source = caller_of(request), find_dataset_version(request, version_id)
    plan = read_tool_plan(source, given)
    dataset = find_target_dataset(request, given.dataset)
    name = given.name.strip() or suggest_dataset_name(source, TOOLS[plan.name])

    def act() -> list[Any]:
        return [apply_tool_to_version(source, plan, caller.user, name=name, dataset=dataset, notes=given.notes.strip()).pk]

    [made], fresh = run_idempotent_action(request, caller, key, act)
    return Status(201 if fresh else 200, versions_shown([find_dataset_version(request, int(made))])[0])


def find_target_dataset(request: HttpRequest, dataset_id: int | None) -> Dataset | None:
    if dataset_id is None:
        return None
    dataset: Dataset | None = Dataset.objects.of(caller_of(request).team).filter(pk=dataset_id).select_related("team").first()
    if dataset is None:
        raise make_invalid_problem("dataset", "your team has no such dataset", "give the id of one that tools made, or none")
    return dataset
