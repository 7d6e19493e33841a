"""Every act of the list leaves exactly one entry for each object it is done to, and addresses that only look or draft leave none."""

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.utils import timezone

from lab.data.datasets.models import VersionState
from lab.labelling.labels.models import Item, ItemState
from lab.teams.accounts.models import Role, Team, User
from lab.teams.accounts.permissions import ROUTES
from lab.teams.audit.models import Entry
from lab.training.ablations.models import AblationRun
from lab.training.catalog.models import SavedRecipe
from lab.training.edits.models import EditState, RunEdit
from lab.training.runs.models import Run, Status
from lab.training.sweeps.models import Trial
from lab.training.workers.models import Worker
from tests.conftest import make_member
from tests.lab.cast import Address, Cast, addresses, make_cast
from tests.lab.html_forms import send
from tests.lab.labels.test_queues import form

Drive = Callable[[Client, Cast], Any]
WHERE: dict[str, Address] = {address.name: address for address in addresses()}


def post(name: str, data: Any = None, before: Callable[[Cast], Any] | None = None, **more: Any) -> Drive:
    """Sends ``data`` (or what it makes of the cast) to the address, after ``before`` has made the objects ready."""

    def drive(client: Client, cast: Cast) -> Any:
        if before:
            before(cast)
        return client.post(WHERE[name].of(cast), data(cast) if callable(data) else data or {}, **more)

    return drive


def get(name: str, query: str = "") -> Drive:
    return lambda client, cast: b"".join(client.get(WHERE[name].of(cast) + query).streaming_content)  # type: ignore[attr-defined]


def run_is(status: Status) -> Callable[[Cast], Any]:
    return lambda cast: Run.across_teams.filter(pk=cast.run.pk).update(status=status)


def stand_alone(cast: Cast) -> None:
    """A worker, and no other team that it serves."""
    Worker.objects.create(name="box:1", host="h", pid=1, queues=["gpu"])
    assert not Team.objects.exclude(pk=cast.team.pk).exists()


def in_archive(cast: Cast) -> None:
    Run.across_teams.filter(pk=cast.run.pk).update(archived_at=timezone.now())


def spare_run(cast: Cast) -> dict[str, int]:
    """A run that nothing depends on."""
    about = {"name": "spare", "spec": {}, "recipe": "r", "trainer": "sft", "task": "t", "policy": "p", "status": Status.FINISHED}
    return {"run": Run.objects.create(team=cast.team, number=Run.objects.next_number(cast.team), **about).number}


def binned_run(cast: Cast) -> dict[str, int]:
    number = spare_run(cast)
    Run.objects.filter(team=cast.team, number=number["run"]).update(binned_at=timezone.now(), purge_at=timezone.now())
    return number


def in_conflict(cast: Cast) -> None:
    Item.across_teams.filter(pk=cast.item.pk).update(state=ItemState.CONFLICT)


def settled(client: Client, cast: Cast) -> Any:
    in_conflict(cast)
    post("label-adjudicate", json.dumps(DECISION), content_type="application/json")(client, cast)
    return post("label-adjudicate", {"act": "undo"})(client, cast)


def trains_alone(cast: Cast) -> None:
    """A run that may be edited: it trains, and nothing compares it with others."""
    Trial.across_teams.filter(run=cast.run).update(run=None)
    AblationRun.across_teams.filter(run=cast.run).delete()
    run_is(Status.RUNNING)(cast)


def edited(cast: Cast) -> None:
    RunEdit.across_teams.filter(run=cast.run).update(state=EditState.APPLIED, steps={"training.learning_rate": 1})


def gone_recipe(cast: Cast) -> None:
    SavedRecipe.across_teams.get(pk=cast.recipe.pk).delete_softly()


def imported(client: Client, cast: Cast) -> Any:
    rows = json.dumps({"prompt": "a", "chosen": "b", "rejected": "c"}) + "\n"
    there = client.post("/datasets/import/", {"file": SimpleUploadedFile("rows.jsonl", (rows * 3).encode())})
    return client.post("/datasets/import/", {"upload": there["Location"].split("upload=")[1], "act": "make", "name": "Rows", "test_share": "0"})


EDIT = {"training.learning_rate": "1e-5", "training.temperature": "1", "reason": "too fast", "token": "t"}
EDIT |= {"task.rewards.correct": "1"} | {f"task.rewards.{name}": "0" for name in ("format", "brevity", "working")}
EDIT |= {"task.mix.easy": "1", "task.mix.medium": "0", "task.mix.hard": "0"}
DECISION = {"answer": {"choice": "1"}, "order": [0, 1], "comment": ""}
FEED = {"queue": "new", "name": "Live", "kind": "pair", "strategy": "random", "overlap": "1", "share": "20", "most": "200", "token": "t"}
DONE: dict[str, tuple[Drive, dict[str, int]]] = {
    "launch-demo": (post("launch-demo", {"token": "t"}), {"run.launch": 3}),
    "launch-recipe": (lambda client, cast: send(client, "/launch/grpo/"), {"run.launch": 1}),
    "recipe-delete": (post("recipe-delete"), {"recipe.delete": 1}),
    "recipe-restore": (post("recipe-restore", before=gone_recipe), {"recipe.restore": 1}),
    "run-stop": (post("run-stop", before=run_is(Status.RUNNING)), {"run.stop": 1}),
    "run-kill": (post("run-kill", before=run_is(Status.RUNNING)), {"run.kill": 1}),
    "run-resume": (post("run-resume", before=run_is(Status.STOPPED)), {"run.resume": 1}),
    "run-about": (post("run-about", {"name": "n", "notes": "w", "tags": "a, b"}), {"run.rename": 1, "run.notes": 1, "run.tag": 1}),
    "run-archive": (post("run-archive"), {"run.archive": 1}),
    "run-unarchive": (post("run-unarchive", before=in_archive), {"run.unarchive": 1}),
    "bin-put": (post("bin-put", spare_run), {"run.bin": 1}),
    "bin-restore": (post("bin-restore", binned_run), {"run.restore": 1}),
    "bin-delete": (post("bin-delete", binned_run), {"run.purge": 1}),
    "run-edit": (post("run-edit", EDIT, trains_alone), {"run.edit": 1}),
    "edit-withdraw": (post("edit-withdraw"), {"run.edit.withdraw": 1}),
    "edit-fork": (post("edit-fork", before=edited), {"run.launch": 1, "run.fork": 1}),
    "runs-act": (post("runs-act", lambda cast: {"act": "tag", "tag": "a", "run": [cast.run.number]}), {"run.tag": 1}),
    "run-queue-change": (
        post("run-queue-change", lambda cast: {"act": "priority", "priority": "1", "run": cast.run.number}, run_is(Status.QUEUED)),
        {"run.priority": 1},
    ),
    "worker-drain": (post("worker-drain", {"worker": "box:1", "act": "drain"}, stand_alone), {"worker.drain": 1}),
    "ablation-stop": (post("ablation-stop", before=run_is(Status.RUNNING)), {"ablation.stop": 1, "run.stop": 1}),
    "ablation-resume": (post("ablation-resume", before=run_is(Status.STOPPED)), {"ablation.resume": 1, "run.resume": 1}),
    "ablation-csv": (get("ablation-csv"), {"ablation.export": 1}),
    "ablation-delete": (post("ablation-delete"), {"ablation.delete": 1}),
    "sweep-continue": (post("sweep-continue"), {"sweep.continue": 1}),
    "sweep-delete": (post("sweep-delete"), {"sweep.delete": 1}),
    "rollouts-export": (get("rollouts-export"), {"rollouts.export": 1}),
    "run-metrics-csv": (get("run-metrics-csv"), {"metrics.export": 1}),
    "version-export": (get("version-export", "?shape=kto"), {"dataset.export": 1}),
    "audit-export": (get("audit-export"), {"audit.export": 1}),
    "queue-new": (lambda client, cast: client.post("/label/new/", form(selection=f"run={cast.run.number}", kind="single")), {"queue.create": 1}),
    "queue-settings": (post("queue-settings", lambda cast: form(overlap=3)), {"queue.change": 1}),
    "queue-act": (post("queue-act", {"act": "pause"}), {"queue.change": 1}),
    "queue-people": (post("queue-people", lambda cast: {"act": "pause", "user": cast.user.pk}), {"queue.people": 1}),
    "queue-labeller": (post("queue-labeller", lambda cast: {"act": "pause", "user": cast.user.pk}), {"queue.people": 1}),
    "queue-review-return": (post("queue-review-return", {"all": "yes", "newest": "9" * 9, "comment": "c"}), {"queue.change": 1}),
    "label-adjudicate": (post("label-adjudicate", json.dumps(DECISION), in_conflict, content_type="application/json"), {"label.decide": 1}),
    "label-adjudicate, back": (settled, {"label.decide": 1, "label.undecide": 1}),
    "dataset-new": (post("dataset-new", lambda cast: {"name": "D", "form": "preference", "queue": [cast.queue.pk]}), {"dataset.create": 1}),
    "dataset-import": (imported, {"dataset.import": 1, "dataset.freeze": 1}),
    "dataset-freeze": (post("dataset-freeze"), {"dataset.freeze": 1}),
    "version-tool": (post("version-tool", {"tool": "skyreels-v2", "name": "Pairs"}), {"dataset.tool": 1, "dataset.freeze": 1}),
    "recall": (post("recall", lambda cast: {"kind": "labeller", "labeller": cast.user.pk, "reason": "r", "token": "t"}), {"label.recall": 1}),
    "recall-undo": (post("recall-undo"), {"label.restore": 1}),
    "run-feeds": (post("run-feeds", FEED, run_is(Status.RUNNING)), {"feed.start": 1, "queue.create": 1}),
    "feed-stop": (post("feed-stop"), {"feed.stop": 1}),
    "clusters": (post("clusters", {"most": "100", "seed": "0"}), {"clustering.create": 1}),
    "clustering-delete": (post("clustering-delete"), {"clustering.delete": 1}),
    "embedder-delete": (post("embedder-delete"), {"embeddings.delete": 1}),
}
ELSEWHERE = {
    "recipe-save",
    "ablation-new",
    "ablation-more",
    "grid-new",
    "sweep-new",
    "sweep-stop",
    "sweep-again",
    "recall-rebuild",
    "run-match",
    "sampling-label",
    "branch-queue",
}  # recorded by the same verbs; their forms are long
SILENT = {
    *(
        "launch-preflight",
        "launch-compose",
        "guidelines-preview",
        "dataset-preview",
        "version-train",
        "rollouts-columns",
        "runs-columns",
    ),  # only show something
    *("tag", "untag", "rate", "mark", "comment", "comment-change", "rollouts-tag", "rollouts-untag"),  # keep their own history
    *("turn-verdict", "turn-preference", "turn-member-preference"),  # a withdrawn label stays as a row with its time
    *("view-save", "view-restore", "view-update", "view-rename", "view-delete", "what-if", "replay-again", "version-retry"),
    *("label-next", "label-submit", "label-draft", "label-renew", "label-release", "label-undo", "label-revise", "label-mine"),  # judgements are kept
    *("queue-review-accept", "judgement-review", "label-keys"),
    *("similar", "embedding-stop", "embedding-again"),  # only compute something, or stop that
}
ROOMS = ("runs.launch", "runs.edit", "workers.", "runs.replay", "rollouts.", "views.", "label.", "datasets.")  # the other rooms test their own


@pytest.fixture
def cast(team: Team, owner: User) -> Cast:
    return make_cast(team, owner, "acts")


@pytest.fixture
def as_admin(team: Team, client: Client) -> Client:
    """Somebody who has labelled nothing, and so may decide."""
    client.force_login(make_member("admin@example.org", team, Role.ADMIN))
    return client


@pytest.mark.parametrize("name", DONE)
def test_an_act_leaves_one_entry_for_each_object(name: str, as_admin: Client, cast: Cast) -> None:
    drive, leaves = DONE[name]
    newest = Entry.across_teams.latest("pk").pk
    drive(as_admin, cast)
    entries = Entry.across_teams.filter(pk__gt=newest)
    assert Counter(entry.action for entry in entries) == leaves
    assert {(entry.team_id, entry.who, entry.via) for entry in entries} == {(cast.team.pk, "admin@example.org", "browser")}


def test_every_address_that_changes_something_says_what_it_leaves() -> None:
    writing = {name for name, access in ROUTES.items() if access.write.startswith(ROOMS)}
    known = {name.partition(",")[0] for name in DONE} | ELSEWHERE | SILENT
    assert writing - known == set(), "say in DONE, ELSEWHERE or SILENT what the audit log keeps of these"
    assert set(ROUTES) >= SILENT


def test_a_frozen_version_is_ready_in_the_cast(cast: Cast) -> None:
    """Without this the export of a version would prove nothing."""
    assert cast.version.state == VersionState.READY
