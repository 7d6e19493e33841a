"""What can be launched and who trains it: recipes, methods, workers."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.http import HttpRequest
from ninja import Field, Schema

from lab.edges.api.base import caller_of, make_router, require_permission
from lab.edges.api.launch_bodies import known_recipe
from lab.edges.api.problems import ApiProblem
from lab.training.catalog.catalog import CatalogError, load_catalog
from lab.training.catalog.effects import load_method_effects
from lab.training.catalog.models import RecipeVersion
from lab.training.catalog.system_map import MappedSystem, build_system_map
from lab.training.catalog.systems import load_systems
from lab.training.runs.models import ACTIVE, Run
from lab.training.workers import listing

router = make_router("Catalogue and workers")


class RecipeHead(Schema):
    name: str = Field(examples=["grpo"])
    title: str
    summary: str
    minutes: float | None = Field(description="Approximate duration on two CPU cores; null if not measured.")
    needs: str = Field(description="cpu or gpu.")
    family: str = Field("", description="Recipes of one family differ in model and GPU only; empty if it stands alone.")
    model: str = Field("", description="The model that it trains, within a family.")
    gpu: int = Field(0, description="Memory of the GPU that it fits, in GB, within a family.")


class RecipeOut(RecipeHead):
    stages: list[dict[str, Any]] = Field(description="Title and spec of each stage.")


class SavedOut(Schema):
    """The newest version of a recipe that the team saved."""

    id: int
    name: str
    version: int
    note: str
    recipe: str = Field(description="The built-in recipe it is based on.")
    stages: list[dict[str, Any]] = Field(description="Title and spec of each stage; a spec can be launched.")


class MethodHead(Schema):
    name: str = Field(examples=["rs-grpo"])
    title: str
    group: str = Field(description="Group in the catalogue; methods are stacked on one of the group `bases`.")
    summary: str


class MethodOut(MethodHead):
    details: dict[str, Any] = Field(description="The complete catalogue entry: parameters with their schema, formula, paper, compatibility.")


class SearchTagsOut(Schema):
    """The axes of the survey of agentic search, arXiv 2510.16724."""

    role: str = Field(description="What RL does for it.")
    how: list[str] = Field(description="How it is trained.")
    scope: str = Field(description="Which part is trained.")


class SystemOut(Schema):
    """A published system, with what the lab has of it."""

    id: str = Field(examples=["search-r2"])
    paper: str = Field(description="Title of the paper.")
    arxiv: str
    about: str
    kind: str = Field(description="method, base, procedure, analysis, dataset-tool, option or listed.")
    state: str = Field(description="here, planned, or listed (there is nothing to run).")
    reason: str = Field(description="Why it is listed only; else empty.")
    outside: bool = Field(description="The paper is not about language models.")
    ideas: list[str]
    changes: list[str] = Field(description="Parts of training that it changes.")
    methods: list[str] = Field(description="Methods of the catalogue that have its name or cite its paper.")
    trainers: list[str]
    worlds: list[str] = Field(description="Tasks that it can train on; `any` if it is not bound to some.")
    effect: str = Field(description="Verdict of its measured effect, `stale` or `unmeasured`; empty where there is nothing to measure.")
    search: SearchTagsOut | None = Field(description="Of search agents only.")


class WorkerRun(Schema):
    number: int
    name: str
    status: str


WORKER_FIELDS = ("name", "host", "queues", "gpu", "cpus", "memory", "packages", "draining", "takes_runs", "seen_at")  # as the model has them


class WorkerOut(Schema):
    name: str
    host: str
    queues: list[str]
    gpu: str
    cpus: int
    memory: int = Field(description="Bytes.")
    packages: list[str] | None = Field(description="Of bitsandbytes, flash_attn, liger_kernel and vllm those that it has; null if it did not say.")
    alive: bool
    draining: bool = Field(description="It finishes its run or returns it to the queue, then exits.")
    takes_runs: bool = Field(description="false: somebody drains it; it finishes its run and takes no more.")
    seen_at: datetime
    run: WorkerRun | None = Field(description="The run of your team that it is training.")
    busy: bool = Field(description="It is training a run, of your team or another.")


@router.get("/recipes", auth=require_permission("runs.read"), response=list[RecipeHead], summary="List recipes")
def list_recipes(request: HttpRequest) -> object:
    """Recipes that can be launched."""
    return load_catalog().recipes


@router.get("/recipes/saved", auth=require_permission("runs.read"), response=list[SavedOut], summary="List the team's recipes")
def list_saved(request: HttpRequest) -> object:
    """Recipes saved by members. To launch one, send the spec of its stage."""
    rows = RecipeVersion.objects.of(caller_of(request).team).newest()
    return [
        {
            "id": version.pk,
            "name": version.recipe.name,
            "version": version.number,
            "note": version.note,
            "recipe": version.origin,
            "stages": version.stages,
        }
        for version in rows
    ]


@router.get("/recipes/{name}", auth=require_permission("runs.read"), response=RecipeOut, summary="One recipe")
def get_recipe(request: HttpRequest, name: str) -> object:
    """Includes the specs of its stages, which a launch can change with `overrides`."""
    return known_recipe(name)


@router.get("/methods", auth=require_permission("runs.read"), response=list[MethodHead], summary="List methods")
def list_methods(request: HttpRequest) -> object:
    """Bases and the methods that can be stacked on them."""
    return [serialize_method_head(method) for method in load_catalog().methods]


@router.get("/methods/{name}", auth=require_permission("runs.read"), response=MethodOut, summary="One method")
def get_method(request: HttpRequest, name: str) -> object:
    try:
        method = load_catalog().method(name)
    except CatalogError as error:
        raise ApiProblem("missing", str(error)) from None
    return {**serialize_method_head(method), "details": method}


def serialize_method_head(method: dict[str, Any]) -> dict[str, Any]:
    return {"name": method["name"], "title": method.get("title") or method["name"], "group": method["group"], "summary": method.get("summary") or ""}


@router.get("/systems", auth=require_permission("runs.read"), response=list[SystemOut], summary="List published systems")
def list_systems(request: HttpRequest) -> object:
    """The map of systems: all that the methods come from, those that are not here yet included."""
    return [serialize_system(one) for one in build_system_map(load_systems().values(), load_catalog(), load_method_effects())]


def serialize_system(one: MappedSystem) -> dict[str, Any]:
    system = one.system
    tags = {"role": system.search.role, "how": list(system.search.how), "scope": system.search.scope} if system.search else None
    return {
        **{name: getattr(system, name) for name in ("id", "paper", "arxiv", "reason", "outside", "ideas")},
        **{name: getattr(one, name) for name in ("about", "kind", "state", "changes", "trainers", "worlds")},
        "methods": [method.name for method in one.methods],
        "effect": one.evidence,
        "search": tags,
    }


@router.get("/workers", auth=require_permission("runs.read"), response=list[WorkerOut], summary="List workers")
def list_workers(request: HttpRequest) -> object:
    """Live workers, and those that left within the last hour."""
    team = caller_of(request).team
    busy = {run.owner.split("/")[0]: run for run in Run.across_teams.filter(status__in=ACTIVE).only("owner", "number", "name", "status", "team_id")}
    workers = []
    for worker in listing.list_recent_workers():
        run = busy.get(worker.name)
        fields = {name: getattr(worker, name) for name in WORKER_FIELDS}
        own = run if run is not None and run.team_id == team.pk else None
        workers.append({**fields, "alive": worker.is_alive, "run": own, "busy": run is not None})
    return workers
