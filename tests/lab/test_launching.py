"""Launching from the browser: recipes, the form and its errors, clones, next stages, chains, double submits, the equivalent command."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from lab.teams.accounts.models import Team, User
from lab.training.catalog.catalog import load_catalog
from lab.training.runs import drafts, form_changes
from lab.training.runs.form_checks import examine_launch_form
from lab.training.runs.forms import LaunchForm
from lab.training.runs.launch import launch_recipe, launch_run
from lab.training.runs.models import Run, Status
from lab.training.runs.stages import from_assignments
from lab.training.workers.models import Worker
from tests.lab.html_forms import error_of, filled, form_values, send, texts_of

OFFERED = [recipe["name"] for recipe in load_catalog().recipes]
# Of a family, whose recipes differ in numbers only, the one that needs most of its machine.
RECIPES = [recipe["name"] for recipe in load_catalog().recipes if not recipe["family"]]
GRPO = {"task": {"name": "mini_gsm"}, "training": {"trainer": "grpo", "max_steps": 77}, "recipe": "grpo"}


@pytest.fixture
def lab_folders(tmp_path: Path, settings: Any) -> Path:
    settings.POLICIES_ROOT, settings.DATASETS_ROOT = tmp_path / "policies", tmp_path / "datasets"
    return tmp_path


def test_every_page_of_it_needs_a_login(client: Client, db: None) -> None:
    for url in ("/launch/", "/launch/grpo/", "/demo/", "/preflight/"):
        assert client.get(url).headers["Location"].startswith("/accounts/login/")


@pytest.fixture
def gpu_worker(db: None) -> None:
    """One that has what any recipe needs."""
    packages = ["bitsandbytes"]
    Worker.objects.create(name="gpu1", host="h", pid=1, queues=["gpu"], gpu="NVIDIA L4", gpu_memory=24 * 10**9, packages=packages)


@pytest.mark.feature(12)
def test_every_recipe_is_offered(as_owner: Client) -> None:
    page = as_owner.get("/launch/").content.decode()
    assert all(f'href="/launch/{name}/"' in page for name in OFFERED)


@pytest.mark.feature(1)
@pytest.mark.usefixtures("gpu_worker")
@pytest.mark.parametrize("recipe", [*RECIPES, "math-8b-24gb", "pairs-8b-24gb"])
def test_every_recipe_launches_what_the_command_line_would(recipe: str, as_owner: Client, team: Team, owner: User) -> None:
    response = send(as_owner, f"/launch/{recipe}/")
    assert response.status_code == 302
    mine = list(Run.objects.of(team).order_by("number"))
    theirs = launch_recipe(team, owner, recipe)
    assert response.headers["Location"] == f"/runs/{mine[0].pk}/"
    assert [run.parent_id and run.parent.number for run in mine] == [run.parent_id and run.parent.number - len(mine) for run in theirs]
    for ours, other in zip(mine, theirs, strict=True):
        assert without_paths(ours) == without_paths(other)
        assert ours.status == Status.QUEUED
        assert ours.created_by == owner


@pytest.mark.usefixtures("gpu_worker")
def test_a_chain_on_pairs_reads_one_file_of_ones_own_in_every_stage(as_owner: Client, team: Team, settings: Any) -> None:
    assert 'name="dataset"' not in as_owner.get("/launch/demo/").content.decode()
    folder = settings.DATASETS_ROOT / str(team.pk)
    folder.mkdir(parents=True)
    rows = [{"prompt": f"{i}?", "chosen": "yes", "rejected": "no"} for i in range(4)]
    (folder / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    response = send(as_owner, "/launch/pairs-8b-24gb/", dataset="pairs.jsonl")
    assert response.status_code == 302
    assert [Path(run.spec["dataset"]["path"]).name for run in Run.objects.of(team).order_by("number")] == ["pairs.jsonl"] * 2


def without_paths(run: Run) -> dict[str, Any]:
    spec = {key: value for key, value in run.spec.items() if key != "output"}
    if spec["policy"]["kind"] == "run":
        spec["policy"] = {**spec["policy"], "folder": ""}
    return spec


def test_it_launches_what_was_typed(as_owner: Client, team: Team) -> None:
    changes = {
        "name": "my run",
        "stages.0.training.max_steps": "33",
        "stages.0.training.learning_rate": "2e-4",
        "stages.0.training.gradient_checkpointing": "on",
        "stages.0.evaluation.every": "7",
        "task": "kb",
        "task.kb.difficulty": "hard",
        "task.kb.rewards.format": "0.25",
        "lora": "on",
        "lora.r": "4",
        "lora.target_modules": "q_proj, v_proj",
        "limits.minutes": "2.5",
        "stages.0.training.max_completion_length": "80",
        "seed": "5",
    }
    send(as_owner, "/launch/grpo/", **changes)
    run = Run.objects.of(team).get()
    assert run.name == "my run"
    training = run.spec["training"]
    assert (training["max_steps"], training["learning_rate"], training["gradient_checkpointing"]) == (33, 2e-4, True)
    assert run.spec["task"] == {"name": "kb", "file": None, "difficulty": "hard", "rewards": {"format": 0.25}, "options": {}}
    assert run.spec["lora"]["target_modules"] == ["q_proj", "v_proj"]
    assert (run.spec["lora"]["r"], run.spec["limits"]["minutes"], run.spec["seed"], run.spec["evaluation"]["every"]) == (4, 2.5, 5, 7)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("stages.0.training.num_generations", "7", "does not divide the generation batch of 64"),
        ("stages.0.training.max_steps", "0", "Must be at least 1 (default 150)"),
        ("stages.0.training.max_steps", "", "is empty"),
        ("stages.0.training.max_steps", "many", "Must be a whole number"),
        ("stages.0.training.learning_rate", "nan", "finite"),
        ("stages.0.training.temperature", "0", "greater than 0"),
        ("stages.0.training.lr_scheduler_type", "wiggly", "constant_with_warmup"),
        ("stages.0.evaluation.prompts", "-1", "Must be at least 0"),
        ("limits.minutes", "0", "greater than 0"),
        ("seed", "4294967296", "less than"),
        ("task", "nonsense", "no task"),
        ("task.mini_gsm.difficulty", "brutal", "no such difficulty"),
        ("task.mini_gsm.rewards.correct", "x", "number"),
        ("policy", "quantum", "tiny, hub, folder, run"),
        ("dataset", "../../etc/passwd", "only names of files"),
        ("stages.0.training.max_completion_length", "100000", "context"),
    ],
)
def test_a_wrong_value_is_refused_at_its_field_and_kept(name: str, value: str, words: str, as_owner: Client, team: Team) -> None:
    response = send(as_owner, "/launch/grpo/", **{name: value, "name": "keep <me>"})
    page = response.content.decode()
    assert response.status_code == 422
    assert words.lower() in error_of(page, name).lower()
    assert 'value="keep &lt;me&gt;"' in page
    if name not in ("task", "policy"):
        assert form_values(page, "data-launch")[name] == value
    assert not Run.objects.of(team).exists()


@pytest.mark.parametrize(
    ("changes", "name", "words"),
    [
        ({"policy": "hub", "policy.hub": "not an id"}, "policy.hub", "pattern"),
        ({"policy": "hub", "policy.hub": ""}, "policy.hub", "Repository on the model hub"),
        ({"policy": "folder", "policy.folder": "../secrets"}, "policy.folder", "only names of files"),
        ({"policy": "folder", "policy.folder": "absent"}, "policy.folder", "not found"),
        ({"policy": "run", "policy.run": ""}, "policy.run", "no such run"),
        ({"policy": "run", "policy.run": "0000:final"}, "policy.run", "no such run"),
        ({"lora": "on", "lora.r": "0"}, "lora.r", "Must be at least 1"),
        ({"lora": "on", "lora.r": ""}, "lora.r", "is empty"),
    ],
)
def test_a_policy_that_cannot_be_used_is_refused_at_its_field(
    changes: dict[str, str], name: str, words: str, as_owner: Client, team: Team, lab_folders: Path
) -> None:
    response = send(as_owner, "/launch/grpo/", **changes)
    assert response.status_code == 422
    assert words.lower() in error_of(response.content.decode(), name).lower()
    assert not Run.objects.of(team).exists()


def test_a_folder_without_safetensors_is_refused_before_anything_loads(as_owner: Client, team: Team, lab_folders: Path) -> None:
    folder = lab_folders / "policies" / "old"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "pytorch_model.bin").write_bytes(b"pickle")
    response = send(as_owner, "/launch/grpo/", **{"policy": "folder", "policy.folder": "old"})
    assert response.status_code == 422
    assert "safetensors" in error_of(response.content.decode(), "policy.folder")


def test_a_broken_row_of_a_dataset_is_named(as_owner: Client, team: Team, lab_folders: Path) -> None:
    folder = lab_folders / "datasets" / str(team.pk)
    folder.mkdir(parents=True)
    (folder / "rows.jsonl").write_text('{"prompt": "2+2?", "completion": "4"}\n{"prompt": 3}\n')
    page = send(as_owner, "/launch/cold-start/", dataset="rows.jsonl")
    assert page.status_code == 422
    text = error_of(page.content.decode(), "dataset")
    assert text.startswith("rows.jsonl line 2: ")
    assert "completion" in text


def test_a_dataset_of_the_team_is_launched_by_its_name(as_owner: Client, team: Team, lab_folders: Path) -> None:
    folder = lab_folders / "datasets" / str(team.pk)
    folder.mkdir(parents=True)
    (folder / "rows.jsonl").write_text('{"prompt": "2+2?", "completion": "4"}\n' * 40)
    assert send(as_owner, "/launch/cold-start/", dataset="rows.jsonl").status_code == 302
    assert Run.objects.of(team).get().spec["dataset"] == {"path": str(folder / "rows.jsonl"), "sha256": None}


def test_an_error_in_a_chain_is_shown_at_its_stage(as_owner: Client, team: Team) -> None:
    response = send(as_owner, "/launch/demo/", **{"stages.1.training.num_generations": "7", "seed": "-1"})
    page = response.content.decode()
    assert "Does not divide" in error_of(page, "stages.1.training.num_generations")
    assert error_of(page, "stages.0.training.max_steps") == ""
    assert page.count("Must be at least 0") == 3  # shared settings are refused once: at the field, and in the panel as text and for its script
    assert not Run.objects.of(team).exists()


def test_a_short_run_gets_a_short_warm_up_unless_one_is_typed(as_owner: Client, team: Team) -> None:
    send(as_owner, "/launch/grpo/", **{"stages.0.training.max_steps": "3"})
    send(as_owner, "/launch/grpo/", **{"stages.0.training.max_steps": "3", "stages.0.training.warmup_steps": "2"})
    assert [run.spec["training"]["warmup_steps"] for run in Run.objects.of(team).order_by("number")] == [0, 2]


@pytest.mark.feature(2)
def test_a_chain_is_three_runs_that_wait_for_each_other(as_owner: Client, team: Team) -> None:
    send(as_owner, "/launch/demo/", **{"stages.1.training.max_steps": "12", "seed": "3", "name": "mine"})
    first, second, third = Run.objects.of(team).order_by("number")
    assert [run.trainer for run in (first, second, third)] == ["sft", "grpo", "dpo"]
    assert (second.parent, third.parent) == (first, second)
    assert (second.total_steps, {run.spec["seed"] for run in (first, second, third)}) == (12, {3})
    assert first.name == "mine: Cold start"


def test_a_recipe_that_does_not_exist_is_not_found(as_owner: Client) -> None:
    assert as_owner.get("/launch/nonsense/").status_code == 404
    assert as_owner.post("/preflight/", {"recipe": "nonsense"}).status_code == 404


@pytest.mark.feature(3)
def test_the_preflight_panel_shows_samples_rewards_and_arithmetic(as_owner: Client) -> None:
    page = as_owner.post("/preflight/", filled(as_owner, "/launch/grpo/")).content.decode()
    assert "Ready to launch" in page
    for text in ("total rollouts", "9\u202f600", "Sampled prompts", "Answer: ", "Rewards for known answers", "gold", "working"):
        assert text in page
    assert "<html" not in page


def test_the_preflight_panel_lists_problems_with_their_inputs(as_owner: Client) -> None:
    page = as_owner.post("/preflight/", filled(as_owner, "/launch/grpo/", **{"stages.0.training.num_generations": "7"})).content.decode()
    assert "1 problem" in page
    assert 'data-problem="stages.0.training.num_generations"' in page
    assert "Ready to launch" not in page


def test_the_preflight_panel_warns_of_a_policy_without_any_reward_to_find(as_owner: Client) -> None:
    page = as_owner.post("/preflight/", filled(as_owner, "/launch/grpo/", policy="tiny-untrained")).content.decode()
    assert "the weights are random" in page.lower()


CHANGES: list[tuple[str, dict[str, str]]] = [
    ("grpo", {}),
    ("grpo", {"stages.0.training.max_steps": "9", "stages.0.training.learning_rate": "1e-5", "seed": "4"}),
    ("grpo", {"task": "calendar", "task.calendar.difficulty": "hard", "task.calendar.rewards.format": "0.5", "name": "it's a 'name'"}),
    ("grpo", {"policy": "hub", "policy.hub": "Qwen/Qwen2.5-0.5B-Instruct", "policy.revision": "1e5"}),
    ("grpo", {"lora": "on", "lora.r": "8", "lora.target_modules": "q_proj, v_proj", "limits.minutes": "10"}),
    ("demo", {"stages.1.training.max_steps": "9", "seed": "7", "task.mini_gsm.difficulty": "medium"}),
    ("demo", {"stages.0.evaluation.every": "10", "stages.1.evaluation.every": "10", "stages.2.evaluation.every": "10"}),
    ("lora", {"lora": "", "device": "auto"}),
]


@pytest.mark.parametrize(("recipe", "changed"), CHANGES)
def test_the_command_shown_launches_the_same(recipe: str, changed: dict[str, str], as_owner: Client, team: Team, owner: User) -> None:
    data = filled(as_owner, f"/launch/{recipe}/", **changed)
    form = LaunchForm(team, load_catalog(), drafts.of_recipe(load_catalog(), recipe), data)
    words = shlex.split(form_changes.build_launch_command(form).replace("\\\n", " "))
    assert words[:4] == [".venv/bin/python", "manage.py", "launch", recipe]
    options = list(zip(words[4::2], words[5::2], strict=True))
    name = next((value for option, value in options if option == "--name"), "")
    overrides = from_assignments([value for option, value in options if option == "--set"])
    theirs = launch_recipe(team, owner, recipe, padded(overrides, len(form.specs())), name)
    assert as_owner.post(f"/launch/{recipe}/", data).status_code == 302
    mine = list(Run.objects.of(team).order_by("number"))[len(theirs) :]
    assert [without_paths(run) for run in mine] == [without_paths(run) for run in theirs]
    assert [run.name for run in mine] == [run.name for run in theirs]


def padded(overrides: dict[str, Any], stages: int) -> dict[str, Any]:
    """The command line may name only some of the stages."""
    if "stages" in overrides:
        overrides["stages"] += [{} for _ in range(stages - len(overrides["stages"]))]
    return overrides


def test_nothing_is_called_changed_in_a_form_that_was_not_touched(as_owner: Client, team: Team) -> None:
    for recipe in RECIPES:
        form = LaunchForm(team, load_catalog(), drafts.of_recipe(load_catalog(), recipe), filled(as_owner, f"/launch/{recipe}/"))
        assert form_changes.of_form(form) == []
        assert form_changes.build_launch_command(form) == f".venv/bin/python manage.py launch {recipe}"


@pytest.mark.feature(83)
def test_the_spec_shown_is_the_spec_launched(as_owner: Client, team: Team) -> None:
    data = filled(as_owner, "/launch/grpo/")
    form = LaunchForm(team, load_catalog(), drafts.of_recipe(load_catalog(), "grpo"), data)
    shown = json.loads(form_changes.specs_as_json(form_changes.complete_specs(form)))
    as_owner.post("/launch/grpo/", data)
    launched = Run.objects.of(team).get().spec
    assert {key: value for key, value in launched.items() if key not in ("output", "dataset")} == shown


def test_a_preflight_that_dies_does_not_stop_a_launch_and_is_said(as_owner: Client, team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lab.training.runs.preflight.CHECK", "trainers.checks.nowhere:answer_preflight")
    data = filled(as_owner, "/launch/grpo/")
    assert "failed to run" not in as_owner.post("/preflight/", data).content.decode()
    response = as_owner.post("/launch/grpo/", data, follow=False)
    assert response.status_code == 302
    assert Run.objects.of(team).count() == 1
    assert "failed to run" in as_owner.get("/workers/").content.decode()


def test_hostile_text_in_any_field_is_shown_as_text(as_owner: Client, team: Team) -> None:
    nasty = '"><script>alert(1)</script>\0'
    data = filled(as_owner, "/launch/grpo/")
    sent = {name: nasty for name in data if name not in ("csrfmiddlewaretoken", "token", "recipe")}
    response = as_owner.post("/launch/grpo/", {**data, **sent})
    assert response.status_code == 422
    assert "<script>alert" not in response.content.decode()
    assert "<script>alert" not in as_owner.post("/preflight/", {**data, **sent}).content.decode()
    assert not Run.objects.of(team).exists()


def test_an_empty_post_is_refused_with_words(as_owner: Client, team: Team) -> None:
    response = as_owner.post("/launch/grpo/", {})
    assert response.status_code == 422
    assert "is empty" in response.content.decode().lower()
    assert not Run.objects.of(team).exists()


def test_what_the_examination_finds_is_also_at_the_inputs(team: Team) -> None:
    draft = drafts.of_recipe(load_catalog(), "grpo")
    form = LaunchForm(team, load_catalog(), draft, {**texts_of(LaunchForm(team, load_catalog(), draft)), "seed": "-3"})
    found = examine_launch_form(form)
    assert [item.place for item in found.problems] == ["seed"]
    assert form.errors["seed"][0].startswith("Must be at least 0")


def test_what_one_form_changed_of_a_task_shows_in_no_other(as_owner: Client, team: Team, owner: User) -> None:
    weight = "task.rule_book.rewards.format"

    def read_weight(response: Any) -> str:
        return form_values(response.content.decode(), "data-launch")[weight]

    changed = {"task": {"name": "rule_book", "rewards": {"format": 0.3}}, "training": {"trainer": "grpo"}, "recipe": "grpo"}
    run = launch_run(team, owner, changed, "changed")
    assert read_weight(as_owner.get(f"/launch/grpo/?clone={run.pk}")) == "0.3"
    assert read_weight(as_owner.post("/launch/grpo/", {"task": "rule_book", weight: "7"})) == "7"
    assert read_weight(as_owner.get("/launch/grpo/")) == read_weight(as_owner.get("/launch/grpo/")) == "0"
    assert read_weight(as_owner.get(f"/launch/grpo/?clone={run.pk}")) == "0.3"
