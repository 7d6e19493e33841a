"""Tasks of the team's own: their rows are uploaded or fetched first, then a version is made of them; previews; versions compared."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from django.http import Http404, HttpRequest
from ninja import Field, Schema, Status
from pydantic import ValidationError

from lab.data.datasets import import_acts, uploads
from lab.data.datasets.raw import UnreadableFile
from lab.data.tasks import building, fetching, preview, sources, verbs, version_words
from lab.data.tasks.building import TaskWish
from lab.data.tasks.definition_check import refuse_wrong_definition
from lab.data.tasks.models import NAME_LENGTH, NOTE_LENGTH, Fetch, Task, TaskVersion
from lab.data.tasks.rows import COLUMN, SHARE, RowPlan
from lab.data.tasks.usage import find_version_runs
from lab.edges.api.base import Query, RequestBody, caller_of, make_router, one_of, require_permission
from lab.edges.api.idempotency import Key, run_idempotent_action
from lab.edges.api.operations.datasets_import import BODY, PIECE, find_project
from lab.edges.api.page_cursors import After, Limit, Page, paginate_rows, parse_after_id
from lab.edges.api.problems import INVALID, FieldProblem, make_invalid_problem, make_validation_problem
from lab.lib.costly import under_way
from lab.lib.numbers import MAX_ID
from lab.lib.refusals import Problem as RoomProblem
from lab.lib.refusals import Refusal
from lab.teams.accounts.addresses import build_absolute_url, team_path
from trainers.contract.task_files import LONGEST_PROMPT, MOST_EXAMPLES, MOST_REWARDS, TaskDefinition

router = make_router("Tasks")
PLACES = {  # inputs of the page that stand elsewhere in the body
    "column_prompt": "columns.prompt",
    "split_column": "split.column",
    "share": "split.share",
    "preview_policy": "policy",
}


class TaskVersionOut(Schema):
    id: int = Field(description="In a spec: `task: {version: …}`.")
    task: int
    number: int
    url: str
    sha256: str = Field(description="SHA-256 of its file.")
    size: int = Field(description="Bytes of its file.")
    definition: dict[str, Any] = Field(description="Name, system prompt, few-shot examples and reward columns.")
    plan: dict[str, Any] = Field(description="What the columns of the source became.")
    source: dict[str, Any]
    counts: dict[str, Any] = Field(description="Rows to train on, held out, skipped, repeated, with a reference or a demonstration.")
    note: str
    created_at: datetime


class TaskOut(Schema):
    id: int
    name: str
    url: str
    project: int | None
    versions: int
    newest: TaskVersionOut
    created_at: datetime


class TaskDetail(TaskOut):
    history: list[TaskVersionOut] = Field(description="All versions, newest first.")
    runs: list[UUID] = Field(description="Runs on any version, without those in the bin.")


class UploadOut(Schema):
    upload: str = Field(description="Names these rows in a task's source, for a day.")
    columns: list[str]
    suggested: dict[str, Any] = Field(description="Columns by what they probably are.")


class FetchIn(RequestBody):
    kind: Literal["hub", "gym"] = Field(description="A dataset of the hub, or a generator of reasoning-gym.")
    name: str = Field(max_length=200, examples=["openai/gsm8k"], description="Hub id, or name of the generator.")
    config: str = Field("", max_length=100)
    split: str = Field("train", max_length=100)
    revision: str = Field("main", max_length=100)
    seed: int = Field(0, ge=0, lt=2**31, description="Of a generator.")
    rows: int = Field(1000, ge=1, le=100_000, description="At most so many.")


class FetchOut(Schema):
    id: UUID = Field(description="Names these rows in a task's source once the state is `ready`.")
    state: str = Field(description="queued, fetching, ready or failed.")
    done: int = Field(description="Rows so far.")
    error: str
    about: dict[str, Any] = Field(description="What exactly was fetched: the commit, the version of the package.")


class SourceIn(RequestBody):
    upload: str | None = Field(None, max_length=32)
    dataset: int | None = Field(None, ge=1, le=MAX_ID, description="Id of a frozen dataset version.")
    fetch: UUID | None = None


class ColumnsIn(RequestBody):
    prompt: str = Field(max_length=1000, examples=["question"])
    reference: str = Field("", max_length=1000, examples=["answer"])
    after: str = Field("", max_length=100, description="Of the reference only what follows the last of these characters.", examples=["####"])
    demonstration: str = Field("", max_length=1000)
    data: list[str] = Field([], max_length=1000, description="Extra fields for reward functions.")


class SplitIn(RequestBody):
    share: float = Field(0.1, ge=0, le=0.9, description="Share of the prompts held out, by their hash.")
    column: str = Field("", max_length=1000, description="In place of a share: a column.")
    heldout: list[str] = Field([], max_length=100, description="Its values whose rows are held out.")


class TaskIn(RequestBody):
    name: str = Field(max_length=NAME_LENGTH, examples=["Sums"])
    note: str = Field("", max_length=NOTE_LENGTH)
    project: int | None = Field(None, ge=1, le=MAX_ID)
    source: SourceIn = Field(
        default_factory=SourceIn.model_construct, description="One of upload, dataset and fetch; of a new version none keeps the rows."
    )
    columns: ColumnsIn
    split: SplitIn = Field(default_factory=SplitIn.model_construct)
    skip: bool = Field(False, description="Leave out invalid rows instead of refusing the file.")
    system: str = Field("", max_length=LONGEST_PROMPT)
    examples: list[dict[str, Any]] = Field([], max_length=MOST_EXAMPLES, description="Few-shot exchanges: user, assistant.")
    rewards: list[dict[str, Any]] = Field(
        max_length=MOST_REWARDS,
        description="Reward columns; the first is the accuracy.",
        examples=[[{"name": "accuracy", "definition": {"kind": "library", "function": "exact-match"}, "weight": 1.0}]],
    )


class PreviewIn(TaskIn):
    policy: dict[str, Any] = Field({"kind": "tiny"}, description="As in a spec, by id or name.")
    completion: int = Field(40, ge=1, le=1_000_000, description="Longest completion in tokens.")
    pasted: list[str] = Field([], max_length=preview.MOST_PASTED, description="Answers to score too.")


class ChangeOut(Schema):
    title: str
    text: str


def serialize_version(version: TaskVersion) -> dict[str, Any]:
    fields = ("number", "sha256", "size", "definition", "plan", "source", "counts", "note", "created_at")
    url = f"{build_absolute_url(team_path(version.task.team, 'task', version.task_id))}?v={version.number}"
    return {**{name: getattr(version, name) for name in fields}, "id": version.pk, "task": version.task_id, "url": url}


def serialize_task(task: Task) -> dict[str, Any]:
    versions = list(task.versions.all())
    return {
        "id": task.pk,
        "name": task.name,
        "url": build_absolute_url(team_path(task.team, "task", task.pk)),
        "project": task.project_id,
        "versions": len(versions),
        "newest": serialize_version(versions[0]),
        "created_at": task.created_at,
    }


def find_team_task(request: HttpRequest, task_id: int) -> Task:
    task: Task = one_of(Task.objects.of(caller_of(request).team).select_related("team").prefetch_related("versions__task__team"), task_id)
    return task


def find_task_version(request: HttpRequest, version_id: int) -> TaskVersion:
    version: TaskVersion = one_of(TaskVersion.objects.of(caller_of(request).team).select_related("task__team"), version_id)
    return version


@router.get("/tasks", auth=require_permission("tasks.read"), response=Page[TaskOut], summary="List tasks")
def list_tasks(request: HttpRequest, after: After, limit: Limit) -> object:
    """Newest first, without those in the bin."""
    rows = (
        Task.objects.of(caller_of(request).team).filter(pk__lt=parse_after_id(after)).select_related("team").prefetch_related("versions__task__team")
    )
    return paginate_rows(list(rows.order_by("-pk")[: limit + 1]), limit, lambda row: row.pk, serialize_task)


@router.get("/tasks/{int:task_id}", auth=require_permission("tasks.read"), response=TaskDetail, summary="One task")
def get_task(request: HttpRequest, task_id: int) -> object:
    """With its versions and the runs on them."""
    task = find_team_task(request, task_id)
    versions = list(task.versions.all())
    runs = [run.pk for found in find_version_runs(versions).values() for run in found]
    return {**serialize_task(task), "history": [serialize_version(version) for version in versions], "runs": runs}


@router.get("/tasks/versions/{int:task_version_id}", auth=require_permission("tasks.read"), response=TaskVersionOut, summary="One version of a task")
def get_task_version(request: HttpRequest, task_version_id: int) -> object:
    """Its definition, columns, counts and hash."""
    return serialize_version(find_task_version(request, task_version_id))


@router.post("/tasks/uploads", auth=require_permission("tasks.write"), response={201: UploadOut}, summary="Upload rows", openapi_extra=BODY)
def upload_rows(request: HttpRequest, file: str = Query("file", max_length=200, description="What the file is called, for people.")) -> object:
    """CSV, JSON, JSON lines or Parquet, at most 50 MB. Make a task of it within a day."""
    team = caller_of(request).team
    with under_way(request):
        announced = int(request.META.get("CONTENT_LENGTH") or 0)
        try:
            upload = import_acts.keep_file(team, file, iter(lambda: request.read(PIECE), b""), announced)
        except Refusal as refused:
            raise make_invalid_problem("the body", refused.message.rstrip("."), refused.fix.rstrip(".")) from None
        try:
            columns = sources.read_columns(sources.find_uploaded(team, upload.token))
        except UnreadableFile as error:
            uploads.delete_upload(team, upload.token)
            raise make_invalid_problem("the body", error.message, error.fix) from None
    suggested = {name: value for name, value in sources.guess_plan(columns).items() if value}
    return Status(201, {"upload": upload.token, "columns": columns.names, "suggested": suggested})


@router.post("/tasks/fetches", auth=require_permission("tasks.write"), response={201: FetchOut}, summary="Fetch rows")
def fetch_rows(request: HttpRequest, given: FetchIn) -> object:
    """A worker gets rows of a dataset of the hub, with the token of its own environment, or of a generator. Poll until the state is `ready`."""
    caller, prefix = caller_of(request), f"{given.kind}_"
    inputs = {f"{prefix}{name}": value for name, value in given.model_dump().items() if name != "kind"}
    try:
        fetch = fetching.request_fetch(caller.team, caller.user, {"kind": given.kind, **inputs})
    except Refusal as refusal:
        if not refusal.problems:
            raise
        problems = refusal.problems
        raise make_validation_problem(
            FieldProblem(field=problem.field.removeprefix(prefix), message=problem.message, fix=problem.fix) for problem in problems
        ) from None
    return Status(201, serialize_fetch(fetch))


@router.get("/tasks/fetches/{uuid:fetch_id}", auth=require_permission("tasks.read"), response=FetchOut, summary="A fetch of rows")
def get_fetch(request: HttpRequest, fetch_id: UUID) -> object:
    """How far it is."""
    fetch = sources.find_fetch(caller_of(request).team, str(fetch_id))
    if fetch is None:
        raise Http404
    return serialize_fetch(fetch)


def serialize_fetch(fetch: Fetch) -> dict[str, Any]:
    return {"id": fetch.pk, **{name: getattr(fetch, name) for name in ("state", "done", "error", "about")}}


@router.post("/tasks", auth=require_permission("tasks.write"), response={201: TaskVersionOut, 200: TaskVersionOut}, summary="Create a task")
def make_task(request: HttpRequest, given: TaskIn, key: Key) -> object:
    """Version 1 of a new task. Its rows are those of an upload, a dataset version or a fetch."""
    return make_version(request, given, None, key)


@router.post(
    "/tasks/{int:task_id}/versions",
    auth=require_permission("tasks.write"),
    response={201: TaskVersionOut, 200: TaskVersionOut},
    summary="Make a new version of a task",
)
def make_task_version(request: HttpRequest, task_id: int, given: TaskIn, key: Key) -> object:
    """The whole task as it is to be; without a source its rows are those of the newest version."""
    return make_version(request, given, find_team_task(request, task_id), key)


def make_version(request: HttpRequest, given: TaskIn, task: Task | None, key: Any) -> object:
    caller = caller_of(request)

    def act() -> list[Any]:
        source, wish = read_source(request, given.source, task), read_wish(request, given)
        refuse_wrong_definition(caller.team, wish.definition)
        with under_way(request), move_problems_to_body():
            return [building.create_version(caller.team, caller.user, wish, source, task).pk]

    [pk], fresh = run_idempotent_action(request, caller, key, act)
    return Status(201 if fresh else 200, serialize_version(find_task_version(request, int(pk))))


@contextmanager
def move_problems_to_body() -> Iterator[None]:
    """What is wrong with rows, or a model, stands where the body has it."""
    try:
        yield
    except Refusal as refusal:
        if refusal.status not in INVALID:
            raise
        problems = refusal.problems or [RoomProblem(refusal.field, refusal.message, refusal.fix)]
        raise make_validation_problem(
            FieldProblem(field=PLACES.get(problem.field, problem.field), message=problem.message, fix=problem.fix) for problem in problems
        ) from None


def read_source(request: HttpRequest, given: SourceIn, task: Task | None) -> sources.Source:
    named = {name: str(value) for name, value in given.model_dump().items() if value is not None}
    if len(named) > 1:
        raise make_invalid_problem("source", "names more than one source", "give one of upload, dataset and fetch")
    try:
        source = sources.find_source(caller_of(request).team, named, task)
    except Refusal as refusal:
        raise make_invalid_problem("source", refusal.message, refusal.fix) from None
    if source is None:
        raise make_invalid_problem("source", "is missing", "give an upload, a dataset or a fetch")
    return source


def read_wish(request: HttpRequest, given: TaskIn) -> TaskWish:
    split = COLUMN if given.split.column else SHARE
    plan = RowPlan(
        **given.columns.model_dump(),
        split=split,
        share=given.split.share,
        split_column=given.split.column,
        heldout=[value.strip() for value in given.split.heldout],
        skip=given.skip,
    )
    name = given.name.replace("\0", "").strip()
    if not name:
        raise make_invalid_problem("name", "is empty", "give a name")
    parts = {"name": name, "system": given.system.replace("\0", ""), "examples": given.examples, "rewards": given.rewards}
    try:
        definition = TaskDefinition.model_validate(parts)
    except ValidationError as error:
        raise make_validation_problem(
            FieldProblem(field=".".join(map(str, one["loc"])) or "rewards", message=str(one["msg"])) for one in error.errors()[:20]
        ) from None
    return TaskWish(
        name, definition.model_dump(mode="json"), plan, given.note.replace("\0", ""), find_project(caller_of(request).team, given.project)
    )


@router.post("/tasks/preview", auth=require_permission("tasks.write"), response=dict[str, Any], summary="Preview a task")
def preview_task(request: HttpRequest, given: PreviewIn) -> object:
    """The first rows as a model reads them, token by token, and what each reward function says of the reference answer, of none and of pasted ones.
    Nothing is stored.
    """
    team = caller_of(request).team
    source, wish = read_source(request, given.source, None), read_wish(request, given)
    refuse_wrong_definition(team, wish.definition)
    ask = preview.PreviewAsk(spec_policy=given.policy, completion=given.completion, pasted=tuple(given.pasted))
    with under_way(request), move_problems_to_body():
        found = preview.preview_task(team, wish, source, ask)
    return {**found, "summary": preview.summarize_preview(found, ask)}


@router.get("/tasks/{int:task_id}/diff", auth=require_permission("tasks.read"), response=list[ChangeOut], summary="Compare versions of a task")
def diff_task_versions(
    request: HttpRequest,
    task_id: int,
    old: int = Query(..., ge=1, le=MAX_ID, description="Number of the earlier version.", examples=[1]),
    new: int = Query(..., ge=1, le=MAX_ID, description="Number of the later version.", examples=[2]),
) -> object:
    """What changed, in words."""
    versions = {version.number: version for version in find_team_task(request, task_id).versions.all()}
    for name, number in (("old", old), ("new", new)):
        if number not in versions:
            raise make_invalid_problem(name, f"there is no version {number}", f"give one of {', '.join(map(str, sorted(versions)))}")
    if old == new:
        return []
    return [{"title": change.title, "text": change.text} for change in version_words.describe_changes(versions[old], versions[new])]


@router.delete("/tasks/{int:task_id}", auth=require_permission("tasks.write"), response={204: None}, summary="Delete a task")
def delete_task(request: HttpRequest, task_id: int) -> object:
    """Puts it into the bin, unless a run is on a version of it (409)."""
    verbs.delete_task(find_team_task(request, task_id), caller_of(request).user)
    return Status(204, None)


@router.post("/tasks/{int:task_id}/restore", auth=require_permission("tasks.write"), response=TaskOut, summary="Restore a deleted task")
def restore_task(request: HttpRequest, task_id: int) -> object:
    """Out of the bin."""
    verbs.restore_task(one_of(Task.objects.filter(team=caller_of(request).team), task_id))
    return serialize_task(find_team_task(request, task_id))
