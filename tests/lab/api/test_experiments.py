"""Experiments over the API: training on a frozen version, ablations, projects, usage, lineage, what the doctor found."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from lab.data.datasets.models import Version
from lab.data.loop.models import Match
from lab.edges.api import tokens
from lab.rollouts.doctor.rules import RULES
from lab.teams.accounts.models import Team, User
from lab.teams.audit.models import Entry
from lab.training.ablations.models import Ablation
from lab.training.runs.launch import launch_run
from lab.training.runs.models import Attempt, Run, Status
from lab.watching.usage.models import Lease, Quota
from tests.lab.api.conftest import ApiClient, client_of
from tests.lab.loop.making import finished_run, frozen, labelled_queue, sampled
from tests.lab.supervisor.spools import rollout
from tests.lab.test_ablations import STACKED, finish
from trainers.contract.events import Message


@pytest.fixture
def version(team: Team, owner: User, settings: Any, tmp_path: Any) -> Version:
    settings.DATASETS_ROOT = tmp_path / "datasets"
    run = finished_run(team, owner, *sampled(50, 52), kept=(50, 90))
    return frozen(team, owner, labelled_queue(team, owner, run))


def fields(response: Any) -> list[str]:
    assert response.status_code == 422, response.content
    return [one["field"] for one in response.json()["errors"]]


def test_training_on_a_version_starts_from_what_sampled_its_rows(api: ApiClient, version: Version) -> None:
    source = Run.across_teams.get()
    found = api.ask(f"versions/{version.pk}/training").json()
    assert (found["trainer"], found["policy"]["run"], found["policy"]["checkpoint"]) == ("dpo", str(source.pk), 50)
    assert {one["checkpoint"] for one in found["policies"]} == {"start", 50, 90, "final"}
    assert [one["trainer"] for one in found["goals"] if not one["refusal"]] == ["dpo", "orpo", "cpo", "reward", "procedure"]
    assert found["spec"]["policy"] == {"kind": "run", "run": str(source.pk), "checkpoint": 50}
    assert found["spec"]["dataset"]["file"] == version.train_file
    response = api.send(f"versions/{version.pk}/train", {"max_steps": 7, "overrides": {"training": {"beta": 0.2}}, "check": False})
    assert response.status_code == 201, response.content
    [made] = response.json()["runs"]
    run = Run.across_teams.get(pk=made["id"])
    assert (made["trainer"], made["total_steps"], run.spec["training"]["beta"]) == ("dpo", 7, 0.2)
    assert run.spec["policy"] == {"kind": "run", "folder": str(source.folder), "checkpoint": 50}
    assert run.spec["dataset"] == {"path": str(version.path()), "sha256": version.counts["sha256"]["train"]}
    assert not Match.across_teams.exists()
    assert Entry.across_teams.filter(action="run.launch", via="api", object_id=str(run.pk)).exists()


def test_a_match_is_asked_for_with_the_run_and_both_are_made_once(api: ApiClient, version: Version, owner: User) -> None:
    source = Run.across_teams.get()
    policy = {"run": str(source.pk), "checkpoint": "final"}
    body = {"policy": policy, "evaluation": 64, "match": {"prompts": 40, "labellers": [owner.pk]}, "check": False}
    answers = [api.send(f"versions/{version.pk}/train", body, **{"Idempotency-Key": "taught"}) for _ in range(2)]
    assert [one.status_code for one in answers] == [201, 200]
    match = Match.across_teams.get()
    assert (match.child.parent, match.version, match.prompts, match.overlap, match.labellers) == (source, version, 40, 1, [owner.pk])


def test_what_training_cannot_use_names_its_field_and_launches_nothing(api: ApiClient, version: Version) -> None:
    at, source = f"versions/{version.pk}/train", Run.across_teams.get()
    for body, wrong in (
        ({"trainer": "kto"}, ["trainer"]),
        ({"trainer": "ppo"}, ["trainer"]),
        ({"policy": {"run": str(uuid.uuid4())}}, ["policy"]),
        ({"policy": {"run": str(source.pk), "checkpoint": 77}}, ["policy"]),
        ({"policy": {"run": str(source.pk), "checkpoint": "best"}}, ["policy.checkpoint"]),
        ({"learning_rate": 7, "max_steps": 0, "batch": 10**18}, ["batch", "learning_rate", "max_steps"]),
        ({"batch": 10**30}, ["batch"]),  # more than 64 bits is refused before anything else is looked at
        ({"evaluation": 0, "match": {}}, ["evaluation"]),
        ({"overrides": {"evaluation": {"prompts": 0}}, "match": {}}, ["overrides.evaluation.prompts"]),
        ({"match": {"labellers": [10**9]}}, ["match.labellers"]),
        ({"trainer": "reward", "match": {}}, ["match"]),
        ({"overrides": {"policy": {"kind": "tiny"}, "training": {"trainer": "kto"}}}, ["overrides.policy", "overrides.training.trainer"]),
        ({"overrides": {"training": {"beta": -1}}}, ["overrides.training.beta"]),
        ({"odd": 1}, ["odd"]),
    ):
        assert sorted(fields(api.send(at, {"check": False, **body}))) == sorted(wrong), body
    assert Run.across_teams.count() == 1
    assert not Match.across_teams.exists()


def test_a_version_that_is_not_ready_trains_nothing(api: ApiClient, version: Version) -> None:
    Version.across_teams.update(state="building")
    response = api.send(f"versions/{version.pk}/train", {"check": False})
    assert (response.status_code, api.ask(f"versions/{version.pk}/training").status_code) == (409, 404)
    assert "is building" in response.json()["detail"]


def test_a_match_wants_a_person_and_the_scope_for_queues(team: Team, owner: User, version: Version) -> None:
    launching = client_of(team, owner, "runs.launch", "runs.read")
    refused = launching.send(f"versions/{version.pk}/train", {"match": {}, "check": False})
    assert (refused.status_code, "label.lead" in refused.json()["detail"]) == (403, True)
    _, secret = tokens.create_access_token(team, None, "nightly", ["runs.launch", "label.lead"], None, role="researcher", by=owner)
    service = ApiClient(secret)
    assert service.send(f"versions/{version.pk}/train", {"match": {}, "check": False}).status_code == 403
    assert service.send(f"versions/{version.pk}/train", {"check": False}).status_code == 201
    assert Run.across_teams.get(trainer="dpo").created_by is None


def test_an_ablation_is_checked_launched_and_read(api: ApiClient, team: Team, owner: User) -> None:
    source = launch_run(team, owner, STACKED, "stacked")
    body = {"run": str(source.pk), "seeds": 2, "check": False}
    variants = ["full", "without rs-grpo", "without siren", "base"]
    plan = api.send("ablations/check", body).json()
    assert (plan["runs"], plan["variants"], plan["estimate"]["runs"]) == (8, variants, 8)
    made = [api.send("ablations", body, **{"Idempotency-Key": "one"}) for _ in range(2)]
    assert [one.status_code for one in made] == [201, 200], made[0].content
    ablation = Ablation.across_teams.get()
    for member in ablation.members.exclude(variant="base"):
        finish(member, heldout_reward=[0.1, {"full": 0.8}.get(member.variant, 0.5) + member.seed / 100])
    found = api.ask(f"ablations/{ablation.pk}").json()
    assert (found["name"], found["base"], found["methods"]) == ("Ablation of #1 stacked", "dr-grpo", ["rs-grpo", "siren"])
    assert (found["run"], found["created_by"]["email"], found["progress"]["finished"]) == (str(source.pk), owner.email, 6)
    full, _, _, base = found["variants"]
    assert [one["name"] for one in found["variants"]] == variants
    assert [(one["seed"], one["values"]["heldout-reward"]) for one in full["seeds"]] == [(7, pytest.approx(0.87)), (8, pytest.approx(0.88))]
    assert (full["means"]["heldout-reward"]["mean"], full["means"]["heldout-reward"]["count"]) == (pytest.approx(0.875), 2)
    assert [one["status"] for one in base["seeds"]] == ["queued", "queued"]
    assert base["means"]["heldout-reward"] is None
    shares = {one["quantity"]: one for one in found["contributions"][0]["shares"]}
    assert shares["heldout-reward"]["contribution"]["mean"] == pytest.approx(0.3)
    assert launch_run(team, owner, found["spec"], "again").spec["methods"] == source.spec["methods"]


def test_ablations_come_in_pages_get_seeds_are_stopped_and_go(api: ApiClient) -> None:
    one = {**STACKED, "methods": [{"name": "rs-grpo"}]}
    first, second = (api.send("ablations", {"spec": one, "seeds": 1, "name": name, "check": False}).json() for name in ("first", "second"))
    page = api.ask("ablations", limit=1).json()
    assert ([row["name"] for row in page["items"]], page["items"][0]["runs"]) == (["second"], 2)
    page = api.ask("ablations", limit=1, after=page["next"]).json()
    assert ([row["name"] for row in page["items"]], page["next"]) == (["first"], None)
    more = api.send(f"ablations/{first['id']}/seeds", {"seeds": 2})
    assert (more.status_code, more.json()["seeds"], more.json()["runs"]) == (201, 3, 6)
    assert fields(api.send(f"ablations/{first['id']}/seeds", {"seeds": 60})) == ["seeds"]
    assert api.send(f"ablations/{first['id']}/stop").json() == {"stopped": 6}
    assert api.send(f"ablations/{first['id']}/stop").status_code == 409
    assert api.delete(f"/api/v1/ablations/{second['id']}").status_code == 204
    assert api.ask(f"ablations/{second['id']}").status_code == 404
    assert Run.across_teams.filter(status=Status.QUEUED).count() == 2
    assert set(Entry.across_teams.filter(kind="ablation", via="api").values_list("action", flat=True)) == {
        "ablation.launch",
        "ablation.extend",
        "ablation.stop",
        "ablation.delete",
    }


def test_a_sweep_is_started_read_stopped_continued_and_goes(api: ApiClient, as_role: Callable[[str], ApiClient]) -> None:
    space = {"training.learning_rate": {"low": 0.0001, "high": 1, "log": True}, "training.num_generations": {"values": [4, 8]}}
    body = {"spec": STACKED, "space": space, "sampler": "random", "metric": "reward", "most_runs": 3, "check": False}
    made = [api.send("sweeps", body, **{"Idempotency-Key": "one"}) for _ in range(2)]
    assert [one.status_code for one in made] == [201, 200], made[0].content
    sweep = made[0].json()
    assert (sweep["name"], sweep["state"], sweep["planned"], sweep["launched"], sweep["open"]) == ("Sweep of grpo", "running", 3, 2, 2)
    trials = api.ask(f"sweeps/{sweep['id']}/trials").json()
    assert [(one["number"], one["status"], one["rank"]) for one in trials] == [(1, "queued", None), (2, "queued", None)]
    assert Run.across_teams.get(pk=trials[0]["run"]).spec["training"]["learning_rate"] == trials[0]["values"]["training.learning_rate"]
    assert api.send(f"sweeps/{sweep['id']}/stop").json()["state"] == "stopped"
    assert api.send(f"sweeps/{sweep['id']}/stop").status_code == 409
    assert api.send(f"sweeps/{sweep['id']}/continue").json()["open"] == 2
    assert [row["id"] for row in api.ask("sweeps").json()["items"]] == [sweep["id"]]
    wrong = {**body, "space": {"training.learning_rate": {"low": 0, "high": 2}, "training.beta": {"values": ["x"]}}, "parallel": 3}
    rate = "space.training.learning_rate"
    assert fields(api.send("sweeps", wrong)) == [f"{rate}.low", f"{rate}.high", "space.training.beta.values"]
    assert as_role("viewer").send("sweeps", body).status_code == 403
    assert api.delete(f"/api/v1/sweeps/{sweep['id']}").status_code == 204
    assert api.ask(f"sweeps/{sweep['id']}").status_code == 404
    assert Run.across_teams.count() == 2


def test_what_cannot_be_ablated_names_its_field_and_queues_nothing(api: ApiClient, team: Team, owner: User, stranger: User) -> None:
    plain = launch_run(team, owner, {**STACKED, "methods": []}, "plain")
    theirs = launch_run(stranger.memberships.get().team, stranger, STACKED, "theirs")
    for body, wrong in (
        ({}, ["run"]),
        ({"run": str(plain.pk), "spec": STACKED}, ["run"]),
        ({"run": str(theirs.pk)}, ["run"]),
        ({"run": str(plain.pk)}, ["run"]),
        ({"spec": {}}, ["spec"]),
        ({"spec": STACKED, "seeds": 40}, ["seeds"]),
        ({"spec": {**STACKED, "training": {"trainer": "grpo", "max_steps": 0}}}, ["spec.training.max_steps"]),
        ({"spec": {**STACKED, "base": {"name": "dpo"}}}, ["spec.base.name"]),
        ({"spec": {**STACKED, "methods": ["rs-grpo", {"name": "siren"}]}}, ["spec.methods.0"]),
    ):
        for path in ("ablations", "ablations/check"):
            assert fields(api.send(path, body))[:1] == wrong, body
    unknown = {**STACKED, "methods": [{"name": "rs-grpo"}, {"name": "nope"}]}
    assert fields(api.send("ablations", {"spec": unknown})) == ["spec.methods.1.name"], "the trainers' own check knows the methods of other packages"
    assert Run.across_teams.count() == 2
    assert not Ablation.across_teams.exists()


def test_projects_are_made_changed_and_moved_into(api: ApiClient, team: Team, owner: User, stranger: User) -> None:
    made = [api.send("projects", {"name": " Word   problems "}, **{"Idempotency-Key": "p"}) for _ in range(2)]
    assert ([one.status_code for one in made], made[0].json()["name"]) == ([201, 200], "Word problems")
    project = made[0].json()["id"]
    assert fields(api.send("projects", {"name": "word problems"})) == ["name"]
    assert fields(api.send("projects", {"name": " "})) == ["name"]
    run, other = (launch_run(team, owner, STACKED, name) for name in ("in", "out"))
    theirs = launch_run(stranger.memberships.get().team, stranger, STACKED, "theirs")
    move = {"project": project, "runs": [run.number]}
    assert [api.send("projects/move", move).json()["runs"] for _ in range(2)] == [1, 0]
    assert fields(api.send("projects/move", {"project": project, "runs": [other.number, 99, -1], "queues": [10**18]})) == [
        "runs.1",
        "runs.2",
        "queues.0",
    ]
    assert fields(api.send("projects/move", {"project": project, "queues": [10**20]})) == ["queues.0"]  # no number of 64 bits
    assert [row["number"] for row in api.ask("runs", project=project).json()["items"]] == [run.number]
    assert [row["number"] for row in api.ask("runs", project="none").json()["items"]] == [other.number]
    assert fields(api.ask("runs", project="status")) == ["project"]
    assert fields(api.ask("runs", sort="odd", order="up")) == ["sort", "order"]
    changed = api.send(f"projects/{project}", {"about": "small ones", "archived": True}, method="patch").json()
    assert (changed["name"], changed["about"], changed["runs"], bool(changed["archived_at"])) == ("Word problems", "small ones", 1, True)
    assert fields(api.send("projects/move", {"project": project, "runs": [other.number]})) == ["project"]
    assert (api.ask("projects").json()["items"], len(api.ask("projects", archived="true").json()["items"])) == ([], 1)
    assert api.send("projects/move", {"project": None, "runs": [run.number]}).json()["runs"] == 1
    assert Run.objects.filter(project=None, team=team).count() == 2
    assert Run.across_teams.get(pk=theirs.pk).project is None
    acts = list(Entry.across_teams.filter(action__startswith="project.", via="api").order_by("pk").values_list("action", flat=True))
    assert acts == ["project.create", "project.move", "project.change", "project.change", "project.move"]


def test_usage_is_read_and_limits_are_set_one_by_one(api: ApiClient, as_role: Callable[[str], ApiClient], team: Team, owner: User) -> None:
    run = launch_run(team, owner, STACKED, "run")
    now = timezone.now()
    lease = {"team": team, "run": run, "number": run.number, "user": owner, "recipe": "grpo", "owner": "w/1", "gpus": 2}
    Lease.objects.create(**lease, started_at=now - timedelta(minutes=30), seen_at=now)
    limits = api.send("usage/limits", {"gpu_hours": 2.5, "storage_bytes": 1234567890123, "gpu_hour_price": 3}, method="patch").json()
    assert (limits["gpu_hours"], limits["storage_bytes"], limits["concurrent_runs"]) == (2.5, 1234567890123, None)
    limits = api.send("usage/limits", {"queues": ["gpu"], "gpu_hours": None}, method="patch").json()
    assert (limits["gpu_hours"], limits["storage_bytes"], limits["queues"], limits["gpu_hour_price"]) == (None, 1234567890123, ["gpu"], 3)
    for body, wrong in (
        ({"gpu_hours": -1}, ["gpu_hours"]),
        ({"queues": []}, ["queues"]),
        ({"queues": ["a", "b c"]}, ["queues.1"]),
        ({"currency": "euros"}, ["currency"]),
        ({"storage_bytes": 10**400}, ["storage_bytes"]),
    ):
        assert fields(api.send("usage/limits", body, method="patch")) == wrong, body
    found = api.ask("usage").json()
    assert {one["name"] for one in found["uses"]} == {"running", "gpu_hours", "storage"}
    assert found["limits"] == limits
    month = api.ask("usage/month", month=f"{now:%Y-%m}", by="run").json()
    assert (month["lines"][0]["run"], len(month["lines"]), month["currency"]) == (str(run.pk), 1, "EUR")
    assert month["total"]["gpu_hours"] == pytest.approx(sum(day["gpu_hours"] for day in month["days"]))
    assert month["total"]["cost"] == pytest.approx(3 * month["total"]["gpu_hours"])
    assert fields(api.ask("usage/month", month="2026-13")) == ["month"]
    researcher = as_role("researcher")
    assert (researcher.ask("usage").status_code, researcher.send("usage/limits", {}, method="patch").status_code) == (200, 403)


def test_a_launch_is_told_beforehand_how_long_it_takes_and_whether_it_waits(api: ApiClient, team: Team, owner: User) -> None:
    body = {"spec": STACKED, "check": False}
    nobody = {"runs": 1, "seconds": None, "gpu_hours": None, "alike": [], "gpu_hours_left": None, "passes": "", "waits": ""}
    assert api.send("runs/check", body).json() == {"warnings": [], "estimate": nobody}
    done = launch_run(team, owner, STACKED, "done")
    now = timezone.now()
    Run.across_teams.filter(pk=done.pk).update(status=Status.FINISHED, step=20)
    Attempt.objects.create(run=done, number=1, from_step=0, host="h", device="cpu", started_at=now)
    lease = {"team": team, "run": done, "number": done.number, "recipe": "grpo", "owner": "w/1", "gpus": 0}
    Lease.objects.create(**lease, started_at=now - timedelta(seconds=200), seen_at=now)
    Quota.objects.create(team=team, concurrent_runs=0)
    estimate = api.send("runs/check", body).json()["estimate"]
    assert (estimate["seconds"], estimate["alike"]) == ({"low": 200.0, "high": 200.0}, [done.number])
    assert "already has 0 of 0" in estimate["waits"]
    plan = api.send("ablations/check", {"run": str(done.pk), "seeds": 2, "check": False}).json()
    assert (plan["runs"], plan["estimate"]["seconds"]["low"]) == (8, 1600.0)


def test_lineage_and_what_the_doctor_found(api: ApiClient, version: Version) -> None:
    source = Run.across_teams.get()
    graph = api.ask("lineage", version=version.pk).json()
    kinds = {one["id"]: one for one in graph["nodes"]}
    assert {one["kind"] for one in graph["nodes"]} >= {"run", "policy", "queue", "version"}
    assert kinds[f"run:{source.pk}"]["url"].endswith(f"/t/reasoning/runs/{source.pk}/")
    assert all({one["source"], one["target"]} <= set(kinds) for one in graph["edges"])
    assert (graph["root"], graph["left_out"], {"trained", "sampled", "frozen into"} <= {one["what"] for one in graph["edges"]}) == (
        f"version:{version.pk}",
        0,
        True,
    )
    assert {one["id"] for one in api.ask("lineage", run=source.number).json()["nodes"]} == set(kinds)
    assert fields(api.ask("lineage", run="99")) == ["run"]
    assert fields(api.ask("lineage", run="1", version="1")) == ["run"]
    findings = api.ask(f"runs/{source.pk}/doctor").json()
    assert {one["rule"] for one in findings} == {rule.name for rule in RULES}
    assert {one["severity"] for one in findings if one["state"] != "found"} == {None}


def test_the_prompts_of_a_run_and_what_became_of_them(api: ApiClient, team: Team, owner: User) -> None:
    def answers(prompt: int, *passed: int) -> list[Any]:
        asked = {"prompt": [Message("user", f"Question {prompt}?")], "reference": "7"}
        return [
            rollout(step, prompt, sample, **asked, rewards={"correct": float(right)}, reward=float(right))
            for step, right in enumerate(passed, start=1)
            for sample in range(2)
        ]

    run = finished_run(team, owner, *answers(0, 0, 1, 1, 1), *answers(1, 1, 1, 0, 0), *answers(2, 0, 0, 0, 0), step=4, kept=())
    first = api.ask(f"runs/{run.pk}/prompts", limit=2).json()
    last = api.ask(f"runs/{run.pk}/prompts", limit=2, after=first["next"]).json()
    found = {one["text"]: one for one in (*first["items"], *last["items"])}
    assert {text: one["state"] for text, one in found.items()} == {"Question 0?": "solved", "Question 1?": "unlearned", "Question 2?": "never"}
    assert (len(first["items"]), last["next"]) == (2, None)
    [lost] = api.ask(f"runs/{run.pk}/prompts", since=2).json()["items"]
    assert (lost["text"], lost["lost"], lost["asked"], lost["last"]["passed"]) == ("Question 1?", 1.0, 4, 0.0)
    assert [one["text"] for one in api.ask(f"runs/{run.pk}/prompts", state="never").json()["items"]] == ["Question 2?"]
    [series] = api.ask(f"prompts/{lost['prompt']}").json()["series"]
    assert (series["state"], series["solved_at"], series["unlearned_at"]) == ("unlearned", 1, 3)
