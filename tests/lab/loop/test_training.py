"""From a version to a run: prefilled from the policy that sampled its rows, launched once, errors at their fields."""

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from lab.data.datasets.models import Dataset, Form, Recall, RecallKind, Row, Version, VersionState
from lab.data.loop import checkpoints
from lab.data.loop.models import Match
from lab.teams.accounts.models import Role, Team, User
from lab.training.runs.models import Run
from tests.conftest import make_member
from tests.lab.html_forms import error_of, form_values
from tests.lab.loop.making import finished_run, frozen, labelled_queue, sampled


@pytest.fixture
def version(team: Team, owner: User, settings: Any, tmp_path: Any) -> Version:
    settings.DATASETS_ROOT = tmp_path / "datasets"
    run = finished_run(team, owner, *sampled(50, 56), kept=(50, 90))
    return frozen(team, owner, labelled_queue(team, owner, run))


def page(client: Client, version: Version, **query: Any) -> str:
    response = client.get(f"/datasets/versions/{version.pk}/train/", query)
    assert response.status_code == 200
    return response.content.decode()


def send(client: Client, version: Version, **changed: Any) -> Any:
    run = Run.across_teams.get(name="source", team__slug="reasoning")
    values = {"trainer": "dpo", "policy": f"{run.pk}:50", "name": "Taught", "learning_rate": "1e-5", "max_steps": "20", "batch": "28"}
    values |= {"evaluation": "64", "match": "on", "prompts": "40", "overlap": "2", "token": "t", **changed}
    return client.post(f"/datasets/versions/{version.pk}/train/", {key: value for key, value in values.items() if value is not None})


def test_the_policy_that_sampled_the_rows_is_prefilled(as_owner: Client, version: Version) -> None:
    [source] = checkpoints.list_sampling_runs(version)
    assert (source.answers, source.median) == (56, 52)  # rollouts of steps 50 to 56 were sampled after 49 to 55 updates
    best = checkpoints.suggest_start_policy([source])
    assert best is not None
    assert (best.run, best.checkpoint) == (source.run, 50)
    found = {choice.candidate.checkpoint: choice for choice in checkpoints.list_policy_choices([source])}
    assert set(found) == {"start", 50, 90, "final"}
    assert (found[50].answers, found[50].distance, found[50].far) == (56, 2, 0)
    assert (found["final"].answers, found["final"].distance, found["final"].far) == (0, 48, 56)
    text = page(as_owner, version)
    assert f'value="{best.value}" aria-describedby="error-policy" checked' in text


def test_held_out_answers_of_the_last_step_come_from_the_final_policy() -> None:
    assert [checkpoints.updates_before(phase, 100) for phase in ("train", "heldout", "sampled")] == [99, 100, 0]


@pytest.mark.feature(2, 72)
def test_the_button_launches_dpo_on_the_frozen_file_and_asks_for_a_match(as_owner: Client, version: Version, owner: User, team: Team) -> None:
    response = send(as_owner, version, labeller=str(owner.pk))
    run = Run.across_teams.get(name="Taught")
    assert response.status_code == 302
    assert response.url == f"/runs/{run.pk}/"
    spec = run.spec
    assert (spec["training"]["trainer"], spec["training"]["max_steps"], spec["training"]["learning_rate"]) == ("dpo", 20, 1e-5)
    assert spec["dataset"]["path"] == str(version.path())
    assert spec["dataset"]["sha256"] == version.counts["sha256"]["train"]
    source = Run.across_teams.get(name="source", team__slug="reasoning")
    assert spec["policy"] == {"kind": "run", "folder": str(source.folder), "checkpoint": 50}
    assert (spec["task"], spec["seed"], spec["evaluation"]["prompts"]) == (source.spec["task"], source.spec["seed"], 64)
    match = Match.objects.get(child=run)
    assert (match.version, match.prompts, match.overlap, match.labellers, match.team) == (version, 40, 2, [owner.pk], team)


def test_sending_the_form_twice_launches_once(as_owner: Client, version: Version) -> None:
    first, second = send(as_owner, version), send(as_owner, version)
    assert first.url == second.url
    assert Run.across_teams.filter(name="Taught").count() == Match.across_teams.count() == 1


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("max_steps", "many", "is not a whole number"),
        ("learning_rate", "nan", "is not a number above 0"),
        ("prompts", "0", "is not a whole number"),
        ("overlap", "99", "is not a whole number from 1 to 9"),
        ("evaluation", "0", "turn the blind A/B off"),
        ("policy", "nothing", "Choose a policy"),
        ("policy", "{run}:77", "has no such checkpoint"),
        ("batch", str(10**30), "is not a whole number"),
    ],
)
def test_bad_input_is_refused_at_its_field_and_nothing_is_lost(as_owner: Client, version: Version, field: str, value: str, words: str) -> None:
    value = value.format(run=Run.across_teams.get(name="source", team__slug="reasoning").pk)
    response = send(as_owner, version, **{field: value})
    text = response.content.decode()
    assert response.status_code == 422
    assert words in text
    assert "Nothing was launched" in text
    assert 'value="Taught"' in text
    assert not Run.across_teams.filter(name="Taught").exists()
    assert not Match.across_teams.exists()


def test_a_file_that_is_another_one_by_now_is_refused(as_owner: Client, version: Version) -> None:
    version.path().chmod(0o644)
    version.path().write_bytes(version.path().read_bytes() + b"\n")
    response = send(as_owner, version)
    assert response.status_code == 422
    assert "changed" in response.content.decode()
    assert not Run.across_teams.filter(name="Taught").exists()


def test_what_the_form_of_the_version_cannot_train_says_why(as_owner: Client, version: Version) -> None:
    text = page(as_owner, version, trainer="kto")
    assert "Needs labelled answers; this version holds preference pairs" in text
    assert 'name="trainer" value="dpo"' in text


def test_a_reward_model_gets_no_match_and_is_not_measured(as_owner: Client, version: Version) -> None:
    assert "Blind A/B" not in page(as_owner, version, trainer="reward")
    send(as_owner, version, trainer="reward")
    run = Run.across_teams.get(name="Taught")
    assert run.spec["training"]["trainer"] == "reward"
    assert run.spec["evaluation"]["prompts"] == 0
    assert not Match.across_teams.exists()


@pytest.mark.parametrize(("trainer", "base", "beta"), [("orpo", None, 0.1), ("cpo", {"name": "simpo", "config": {}}, 2.0)])
def test_pairs_train_without_a_reference_too(as_owner: Client, version: Version, trainer: str, base: dict[str, Any] | None, beta: float) -> None:
    assert f'name="trainer" value="{trainer}"' in page(as_owner, version, trainer=trainer)
    assert send(as_owner, version, trainer=trainer).status_code == 302
    spec = Run.across_teams.get(name="Taught").spec
    assert (spec["training"]["trainer"], spec["training"]["beta"], spec["base"]) == (trainer, beta, base)
    assert spec["dataset"]["path"].endswith(version.train_file)
    assert Match.across_teams.exists()


@pytest.mark.parametrize(("form", "trainer"), [(Form.KTO, "kto"), (Form.COMPLETION, "sft")])
def test_every_form_of_dataset_has_its_trainer(as_owner: Client, team: Team, owner: User, version: Version, form: Form, trainer: str) -> None:
    other = frozen(team, owner, *version.dataset.queues.all(), name="Other form", form=form)
    text = page(as_owner, other)
    assert f'name="trainer" value="{trainer}"' in text
    assert "Create a dataset of that form" in text
    assert send(as_owner, other, trainer=trainer).status_code == 302
    run = Run.across_teams.get(name="Taught")
    assert run.spec["training"]["trainer"] == trainer
    assert Match.across_teams.get().child == run


def test_the_rate_is_never_above_the_one_its_policy_was_trained_with(as_owner: Client, version: Version) -> None:
    assert 'value="5e-05"' in page(as_owner, version)
    source = Run.across_teams.get(name="source", team__slug="reasoning")
    Run.across_teams.filter(pk=source.pk).update(spec={**source.spec, "training": {**source.spec["training"], "learning_rate": 1e-6}})
    assert 'value="1e-06"' in page(as_owner, version)


@pytest.mark.parametrize(("longest", "max_length"), [(96, 256), (40, 128)])
def test_long_answers_get_room_and_no_more_than_the_built_in_policy_reads(as_owner: Client, version: Version, longest: int, max_length: int) -> None:
    source = let_answers_be_as_long_as(longest)
    assert send(as_owner, version).status_code == 302
    assert Run.across_teams.get(name="Taught").spec["training"]["max_length"] == max_length
    Run.across_teams.filter(pk=source.pk).update(spec={**source.spec, "policy": {"kind": "hub", "name": "an/instruct-model"}})
    values = form_values(send(as_owner, version, act="all").content.decode(), "data-launch")
    assert values["stages.0.training.max_length"] == ("448" if longest > 64 else "128")


def let_answers_be_as_long_as(longest: int) -> Run:
    source = Run.across_teams.get(name="source", team__slug="reasoning")
    source.spec["training"]["max_completion_length"] = longest
    source.save(update_fields=["spec"])
    return source


def test_all_settings_opens_the_launch_form_with_the_same_values(as_owner: Client, version: Version) -> None:
    response = send(as_owner, version, act="all", max_steps="33")
    text = response.content.decode()
    assert response.status_code == 200
    assert 'action="/launch/dpo/"' in text
    source = Run.across_teams.get(name="source", team__slug="reasoning")
    for part in (f'value="{source.pk}:50" selected', 'value="33"', version.train_file, 'value="Taught"'):
        assert part in text
    assert not Run.across_teams.filter(name="Taught").exists()


@pytest.fixture
def all_settings(as_owner: Client, version: Version, owner: User) -> dict[str, str]:
    """What a browser sends from the full form that the version's page opened."""
    text = send(as_owner, version, act="all", labeller=str(owner.pk)).content.decode()
    assert "up to 40 held-out prompts, 2 labels each" in text
    assert "owner@example.org compares" in text
    return form_values(text, "data-launch")


def test_the_full_form_launches_on_the_frozen_digest_and_the_match_follows(
    as_owner: Client, version: Version, owner: User, team: Team, all_settings: dict[str, str]
) -> None:
    refused = as_owner.post("/launch/dpo/", {**all_settings, "stages.0.training.learning_rate": "much"})
    assert refused.status_code == 422
    assert version.counts["sha256"]["train"] in as_owner.post(reverse("launch-preflight"), all_settings).content.decode()
    again = form_values(refused.content.decode(), "data-launch") | {"stages.0.training.learning_rate": "2e-5"}
    first, second = (as_owner.post("/launch/dpo/", again) for _ in range(2))
    run = Run.across_teams.get(name="Taught")
    assert first.url == second.url == f"/runs/{run.pk}/"
    assert run.spec["dataset"] == {"path": str(version.path()), "sha256": version.counts["sha256"]["train"]}
    assert run.spec["training"]["learning_rate"] == 2e-5
    match = Match.across_teams.get()
    assert (match.child, match.version, match.prompts, match.overlap, match.labellers) == (run, version, 40, 2, [owner.pk])
    assert (match.team, match.created_by) == (team, owner)


def test_a_changed_file_is_refused_by_the_full_form_too(as_owner: Client, version: Version, all_settings: dict[str, str]) -> None:
    version.path().chmod(0o644)
    version.path().write_bytes(version.path().read_bytes() + b"\n")
    response = as_owner.post("/launch/dpo/", all_settings)
    assert response.status_code == 422
    assert "changed" in error_of(response.content.decode(), "dataset")
    assert not Run.across_teams.filter(name="Taught").exists()


def test_no_match_where_the_box_is_unticked_or_none_was_asked_for(as_owner: Client, version: Version, all_settings: dict[str, str]) -> None:
    del all_settings["follow"]
    assert as_owner.post("/launch/dpo/", all_settings).status_code == 302
    assert "Blind A/B" not in send(as_owner, version, act="all", match=None).content.decode()
    assert Run.across_teams.filter(name="Taught").exists()
    assert not Match.across_teams.exists()


def test_a_match_without_held_out_prompts_is_refused_at_their_number(as_owner: Client, all_settings: dict[str, str]) -> None:
    response = as_owner.post("/launch/dpo/", {**all_settings, "stages.0.evaluation.prompts": "0"})
    assert response.status_code == 422
    assert "blind A/B needs" in error_of(response.content.decode(), "stages.0.evaluation.prompts")
    assert not Match.across_teams.exists()


def test_another_file_keeps_neither_the_digest_nor_the_version(as_owner: Client, version: Version, all_settings: dict[str, str]) -> None:
    copy = version.path().with_name("copy.jsonl")
    copy.write_bytes(version.path().read_bytes())
    assert as_owner.post("/launch/dpo/", {**all_settings, "dataset": copy.name}).status_code == 302
    assert Run.across_teams.get(name="Taught").spec["dataset"] == {"path": str(copy), "sha256": None}
    assert Match.across_teams.get().version is None


def test_a_wish_that_is_not_ours_makes_nothing(
    as_owner: Client, as_stranger: Client, stranger: User, version: Version, all_settings: dict[str, str]
) -> None:
    response = as_owner.post("/launch/dpo/", {**all_settings, "follows": f"x{all_settings['follows']}"})
    assert response.status_code == 422
    assert "can no longer be read" in response.content.decode()
    form = form_values(as_stranger.get("/launch/grpo/").content.decode(), "data-launch")
    taken = {**form, "follows": all_settings["follows"], "follow": "on"}
    assert as_stranger.post("/launch/grpo/", taken).status_code == 422
    assert not Match.across_teams.exists()


def test_few_pairs_far_pairs_and_recalled_labels_are_warned_about(as_owner: Client, team: Team, owner: User, version: Version) -> None:
    assert "Only 56 rows" not in page(as_owner, version)
    assert "were recalled" not in page(as_owner, version)
    source = Run.across_teams.get(name="source", team__slug="reasoning")
    assert "56 of 56 answers were sampled by another run" in page(as_owner, version, policy=f"{source.pk}:final")
    Recall.objects.create(team=team, kind=RecallKind.LABELLER, labeller=owner, reason="labelled while <b>asleep</b>", by=owner)
    assert "labelled while &lt;b&gt;asleep&lt;/b&gt;" in page(as_owner, version)
    Version.across_teams.filter(pk=version.pk).update(counts={**version.counts, "train": 5})
    assert "Only 5 rows" in page(as_owner, version)


def test_an_import_lets_the_person_choose_the_policy(as_owner: Client, version: Version) -> None:
    Row.objects.filter(version=version).update(rollouts=[])
    text = page(as_owner, version)
    source = Run.across_teams.get(name="source", team__slug="reasoning")
    assert "This version contains no rollouts of your team" in text
    assert send(as_owner, version, policy="elsewhere", elsewhere=f"{source.pk}:final").status_code == 302
    assert Run.across_teams.get(name="Taught").parent == source


def test_a_version_that_is_not_ready_cannot_be_trained_on(as_owner: Client, version: Version) -> None:
    Version.across_teams.filter(pk=version.pk).update(state=VersionState.BUILDING)
    assert "still being frozen" in page(as_owner, version)
    assert send(as_owner, version).status_code == 200
    assert not Run.across_teams.filter(name="Taught").exists()


def test_only_leads_train_and_only_on_their_own_versions(client: Client, as_stranger: Client, team: Team, version: Version) -> None:
    url = f"/datasets/versions/{version.pk}/train/"
    assert as_stranger.get(url).status_code == as_stranger.post(url).status_code == 404
    client.force_login(make_member("ann@example.org", team, Role.ANNOTATOR))
    assert client.get(url).status_code == client.post(url).status_code == 403
    assert client.get(f"/datasets/versions/{2**63}/train/").status_code in (403, 404)


def test_a_run_of_another_team_is_not_taken(as_owner: Client, version: Version, stranger: User) -> None:
    other = finished_run(stranger.memberships.get().team, stranger)
    response = send(as_owner, version, policy=f"{other.pk}:final")
    assert response.status_code == 422
    assert "Choose a policy" in response.content.decode()
    assert Dataset.across_teams.count() == 1


@pytest.mark.feature(100)
def test_marked_spans_are_offered_as_token_weights_where_the_trainer_can_use_them(as_owner: Client, version: Version) -> None:
    assert "span_credit" not in page(as_owner, version)
    Version.across_teams.filter(pk=version.pk).update(counts={**version.counts, "spans": {"rows": 4, "good": 20, "bad": 9}})
    text = page(as_owner, version)
    assert 'name="span_credit" value="on" aria-describedby="help-spans">' in text  # people decide
    assert "4 rows have marked spans." in text
    assert "which Reward model does not use" in page(as_owner, version, trainer="reward")
    all_of_it = form_values(send(as_owner, version, act="all", span_credit="on").content.decode(), "data-launch")
    assert all_of_it["stages.0.methods"] == "span-credit"
    send(as_owner, version, span_credit="on")
    assert Run.across_teams.get(name="Taught").spec["methods"] == [{"name": "span-credit", "config": {}}]


def test_a_steering_vector_is_made_from_pairs_without_a_learning_rate(as_owner: Client, version: Version) -> None:
    head = as_owner.get(f"/datasets/versions/{version.pk}/").content.decode()
    assert f'href="/datasets/versions/{version.pk}/train/?trainer=procedure"' in head
    text = page(as_owner, version, trainer="procedure")
    assert "Make a steering vector</button>" in text
    assert "id-rate" not in text
    assert 'name="max_steps" type="number" min="1" value="13"' in text
    assert 'name="batch" type="number" min="1" value="64"' in text
    source = Run.across_teams.get(name="source", team__slug="reasoning")
    Run.across_teams.filter(pk=source.pk).update(spec={**source.spec, "lora": {"r": 8, "alpha": 16}})
    response = send(as_owner, version, trainer="procedure", batch="64", learning_rate=None, match=None)
    assert response.status_code == 302, response.content.decode()
    spec = Run.across_teams.get(name="Taught").spec
    assert (spec["training"]["trainer"], spec["training"]["max_steps"]) == ("procedure", 20)
    assert [choice["name"] for choice in spec["methods"]] == ["palrs"]
    assert spec["dataset"]["sha256"] == version.counts["sha256"]["train"]
    assert spec["lora"] is None
    full = send(as_owner, version, trainer="procedure", batch="64", learning_rate=None, match=None, act="all").content.decode()
    assert "palrs" in full
