"""The method section of the launch form: what it stacks, its problems at their cards, editing without scripts, clones, chains and the command."""

import re
import shlex
from typing import Any

import pytest
from django.test import Client
from hypothesis import given
from hypothesis import strategies as st

from lab.teams.accounts.models import Team, User
from lab.training.catalog.catalog import load_catalog
from lab.training.runs import drafts, form_changes
from lab.training.runs.composer import StackForm
from lab.training.runs.forms import LaunchForm
from lab.training.runs.launch import launch_recipe, launch_run, plan_recipe
from lab.training.runs.management.commands.launch import Command
from lab.training.runs.models import Run
from lab.training.runs.stages import as_argument, from_argument, stage_specs
from lab.training.runs.views.methods import RECIPES
from tests.lab.html_forms import error_of, filled, form_values, send, texts_of
from tests.lab.test_commands import run_command
from trainers.contract.spec import SpecError
from trainers.contract.stacking import DEFAULT_BASES

GRPO = {"task": {"name": "mini_gsm"}, "training": {"trainer": "grpo"}, "recipe": "grpo"}
RISK = {"name": "rs-grpo", "config": {"risk": 3.0}}
EDIT = dict[str, str]


def edited(client: Client, data: EDIT, act: str) -> EDIT:
    """What the form holds after one of its buttons was pressed in a browser without scripts."""
    response = client.post("/launch/grpo/", {**data, "act": act})
    assert response.status_code == 200
    return form_values(response.content.decode(), "data-launch")


def cards(page: str) -> list[str]:
    return re.findall(r'class="stack-card" id="id-stages\.\d\.method\.([^"]+)"', page)


# what the form stacks


def test_a_form_that_was_not_touched_stacks_nothing(as_owner: Client, team: Team) -> None:
    page = as_owner.get("/launch/grpo/").content.decode()
    assert re.search(r'<option value="dapo" selected>', page)
    send(as_owner, "/launch/grpo/")
    spec = Run.objects.of(team).get().spec
    assert (spec["base"], spec["methods"]) == (None, [])


def test_the_weights_of_the_rewards_are_in_their_inputs(as_owner: Client) -> None:
    values = form_values(as_owner.get("/launch/grpo/").content.decode(), "data-launch")
    weights = {reward["name"]: reward["weight"] for reward in load_catalog().task("mini_gsm")["rewards"]}
    assert {name: float(values[f"task.mini_gsm.rewards.{name}"]) for name in weights} == weights


def test_only_bases_and_methods_of_the_trainer_are_offered(as_owner: Client) -> None:
    known = load_catalog()
    for recipe, trainer in (("grpo", "grpo"), ("dpo", "dpo")):
        page = as_owner.get(f"/launch/{recipe}/").content.decode()
        select = page.split('name="stages.0.base"')[1].split("</select>")[0]
        assert re.findall(r'<option value="([^"]+)"', select) == [entry["name"] for entry in known.bases(trainer)]
        addable = page.split('<datalist id="addable-0">')[1].split("</datalist>")[0]
        assert re.findall(r'<option value="([^"]+)"', addable) == [entry["name"] for entry in known.stackable(trainer)]


def test_what_does_not_go_with_the_stack_says_so_before_it_is_added(as_owner: Client) -> None:
    page = as_owner.get("/launch/grpo/?add=rloo").content.decode()
    assert re.search(r'<option value="rs-grpo">[^<]*\(conflicts with rloo\)</option>', page)
    assert re.search(r'<option value="siren">[^<(]*</option>', page)


def test_a_method_from_the_catalogue_is_in_the_form_with_its_defaults(as_owner: Client) -> None:
    page = as_owner.get("/launch/grpo/?add=rs-grpo&add=siren").content.decode()
    values = form_values(page, "data-launch")
    assert values["stages.0.methods"].split() == ["rs-grpo", "siren"]
    assert values["stages.0.method.rs-grpo.risk"] == "2"
    assert "Changed from the recipe" in page
    assert re.search(r'<option value="gspo" selected>', as_owner.get("/launch/grpo/?add=gspo").content.decode())
    assert "works on GRPO, not on DPO" in as_owner.get("/launch/dpo/?add=rs-grpo").content.decode()
    assert "There is no method" in as_owner.get("/launch/grpo/?add=%3Cb%3E").content.decode()


def test_it_launches_what_was_stacked(as_owner: Client, team: Team) -> None:
    data = filled(as_owner, "/launch/grpo/?add=gspo&add=siren&add=rs-grpo", **{"stages.0.method.rs-grpo.risk": "3"})
    assert as_owner.post("/launch/grpo/", data).status_code == 302
    spec = Run.objects.of(team).get().spec
    assert spec["base"] == {"name": "gspo", "config": {}}
    assert spec["methods"] == [{"name": "siren", "config": {}}, RISK]


def test_every_method_launches_alone_with_its_defaults_as_the_browser_sends_them(as_owner: Client, team: Team) -> None:
    for entry in load_catalog().methods:
        recipe = RECIPES.get((entry["trains"] or [""])[0])
        assert recipe is not None
        form = LaunchForm(team, load_catalog(), drafts.of_recipe(load_catalog(), recipe), filled(as_owner, f"/launch/{recipe}/?add={entry['name']}"))
        (spec,) = form.specs()
        stacked = [spec["base"]] if spec["base"] else spec["methods"]
        required = dict.fromkeys(entry["parameters"].get("required", ()), "")
        draft = drafts.of_recipe(load_catalog(), recipe)
        usual = entry["name"] in DEFAULT_BASES.values() and not draft.stages[0][1]["base"]  # a recipe with a base of its own says the usual one too
        assert stacked == ([] if usual else [{"name": entry["name"], "config": required}])


# editing


def test_methods_are_added_moved_and_removed_without_scripts(as_owner: Client, team: Team) -> None:
    data = edited(as_owner, filled(as_owner, "/launch/grpo/", **{"stages.0.add": "siren", "name": "kept"}), "0:add")
    data = edited(as_owner, {**data, "stages.0.add": "Risk-sensitive GRPO"}, "0:add")
    assert (data["stages.0.methods"].split(), data["stages.0.add"], data["name"]) == (["siren", "rs-grpo"], "", "kept")
    data = edited(as_owner, {**data, "stages.0.method.rs-grpo.risk": "5"}, "0:up:rs-grpo")
    assert (data["stages.0.methods"].split(), data["stages.0.method.rs-grpo.risk"]) == (["rs-grpo", "siren"], "5")
    for act in ("0:up:rs-grpo", "0:down:siren"):  # at their ends already
        assert edited(as_owner, data, act)["stages.0.methods"].split() == ["rs-grpo", "siren"]
    assert edited(as_owner, data, "0:down:rs-grpo")["stages.0.methods"].split() == ["siren", "rs-grpo"]
    assert edited(as_owner, data, "0:remove:siren")["stages.0.methods"].split() == ["rs-grpo"]
    assert not Run.objects.of(team).exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("rs-gpro", "Did you mean rs-grpo?"),
        ("<script>", "There is no method “&lt;script&gt;”"),
        ("", "Choose a method from the list"),
        ("re-po", "re-po works on DPO"),
        ("ipo", "ipo works on DPO, not on GRPO"),
        ("siren", "siren is already in the recipe"),
    ],
)
def test_what_cannot_be_added_is_kept_and_says_why(text: str, words: str, as_owner: Client) -> None:
    data = filled(as_owner, "/launch/grpo/?add=siren", **{"stages.0.add": text})
    page = as_owner.post("/launch/grpo/", {**data, "act": "0:add"}).content.decode()
    assert words in error_of(page, "stages.0.add")
    assert cards(page) == ["siren"]
    assert form_values(page, "data-launch")["stages.0.add"] == text


def test_a_method_that_was_typed_but_not_added_is_not_launched_without(as_owner: Client, team: Team) -> None:
    response = send(as_owner, "/launch/grpo/", **{"stages.0.add": "siren"})
    assert response.status_code == 422
    assert "press Add" in error_of(response.content.decode(), "stages.0.add")
    assert not Run.objects.of(team).exists()


@pytest.mark.parametrize("act", ["", "9:add", "x", "0:explode:siren", "-1:add", "0"])
def test_a_button_that_no_form_has_is_not_found(act: str, as_owner: Client) -> None:
    data = filled(as_owner, "/launch/grpo/")
    for url in ("/launch/grpo/", "/compose/"):
        assert as_owner.post(url, {**data, "act": act}).status_code == 404


def test_a_script_gets_only_the_section(as_owner: Client) -> None:
    data = filled(as_owner, "/launch/grpo/?add=siren", **{"stages.0.add": "rs-grpo"})
    page = as_owner.post("/compose/", {**data, "act": "0:add"}).content.decode()
    assert page.lstrip().startswith('<div class="composer')
    assert cards(page) == ["siren", "rs-grpo"]
    assert 'data-said="rs-grpo added"' in page
    moved = as_owner.post("/compose/", {**data, "stages.0.methods": "siren rs-grpo", "act": "0:up:rs-grpo"}).content.decode()
    assert 'data-said="The order is now rs-grpo, siren"' in moved


def test_hostile_names_in_the_order_stay_text_and_are_refused(as_owner: Client, team: Team) -> None:
    response = send(as_owner, "/launch/grpo/", **{"stages.0.methods": '<img/src=x> "x" ' + "n " * 90, "stages.0.base": "<b>"})
    page = response.content.decode()
    assert response.status_code == 422
    assert "<img/src" not in page
    assert "<b>" not in page
    assert "There is no such method" in page
    assert not Run.objects.of(team).exists()


# problems


def test_a_conflict_is_explained_at_its_card(as_owner: Client, team: Team) -> None:
    data = filled(as_owner, "/launch/grpo/?add=rloo&add=rs-grpo")
    panel = as_owner.post("/preflight/", data).content.decode()
    assert "Both rloo and rs-grpo decide the advantages" in panel
    assert 'data-jump="stages.0.method.rs-grpo"' in panel
    response = as_owner.post("/launch/grpo/", data)
    page = response.content.decode()
    assert response.status_code == 422
    assert "choose another base" in error_of(page, "stages.0.method.rs-grpo")
    assert 'id="id-stages.0.method.rs-grpo"' in page
    assert as_owner.post("/launch/grpo/", {**data, "stages.0.base": "gspo"}).status_code == 302
    assert Run.objects.of(team).get().spec["base"]["name"] == "gspo"


@pytest.mark.parametrize(
    ("value", "words"), [("-1", "Must be at least 0"), ("lots", "Must be a number"), ("", "Is empty"), ("nan", "finite"), ("1e400", "finite")]
)
def test_a_wrong_parameter_is_refused_at_its_input_and_kept(value: str, words: str, as_owner: Client, team: Team) -> None:
    name = "stages.0.method.rs-grpo.risk"
    response = as_owner.post("/launch/grpo/", filled(as_owner, "/launch/grpo/?add=siren&add=rs-grpo", **{name: value}))
    page = response.content.decode()
    assert response.status_code == 422
    assert words in error_of(page, name)
    assert form_values(page, "data-launch")[name] == value
    assert not Run.objects.of(team).exists()


def test_parameters_of_a_base_that_the_page_did_not_show_are_at_their_defaults(as_owner: Client, team: Team) -> None:
    send(as_owner, "/launch/grpo/", **{"stages.0.base": "cispo"})
    assert Run.objects.of(team).get().spec["base"] == {"name": "cispo", "config": {}}


# where a form starts


def test_a_clone_carries_base_and_methods(as_owner: Client, team: Team, owner: User) -> None:
    run = launch_run(team, owner, {**GRPO, "base": {"name": "gspo"}, "methods": [RISK, {"name": "siren"}]})
    url = f"/launch/grpo/?clone={run.pk}"
    page = as_owner.get(url).content.decode()
    assert cards(page) == ["rs-grpo", "siren"]
    assert form_values(page, "data-launch")["stages.0.method.rs-grpo.risk"] == "3"
    send(as_owner, url)
    clone = Run.objects.of(team).get(cloned_from=run)
    assert {key: clone.spec[key] for key in ("base", "methods")} == {key: run.spec[key] for key in ("base", "methods")}


def test_a_method_that_is_not_installed_any_more_keeps_its_parameters(team: Team) -> None:
    spec = {**GRPO, "methods": [{"name": "gone", "config": {"strength": [1, 2]}}]}
    draft = drafts.Draft("grpo", "", "", [("GRPO", drafts.complete_spec(load_catalog(), spec))])
    form = LaunchForm(team, load_catalog(), draft, texts_of(LaunchForm(team, load_catalog(), draft)))
    assert form.specs()[0]["methods"] == spec["methods"]
    assert form.stages[0].stack.cards[0].method is None


def test_in_a_chain_a_method_goes_to_the_stages_of_its_trainer(as_owner: Client, team: Team) -> None:
    page = as_owner.get("/launch/demo/?add=rs-grpo&add=re-po").content.decode()
    assert "Method of this stage" in page
    values = form_values(page, "data-launch")
    assert [values[f"stages.{number}.methods"].split() for number in range(3)] == [[], ["rs-grpo"], ["re-po"]]
    send(as_owner, "/launch/demo/?add=rs-grpo")
    assert [[method["name"] for method in run.spec["methods"]] for run in Run.objects.of(team).order_by("number")] == [[], ["rs-grpo"], []]


# the command line


STACKS: list[tuple[str, str, EDIT]] = [
    ("grpo", "?add=rs-grpo&add=siren", {"stages.0.method.rs-grpo.risk": "3"}),
    ("grpo", "?add=gspo", {}),
    ("grpo", "", {}),
    ("dpo", "?add=ipo&add=re-po", {"seed": "3"}),
    ("explore", "", {}),
    ("explore", "?add=gspo", {"stages.0.method.siren.weight": "0.5"}),
    ("explore", "", {"stages.0.methods": "siren rs-grpo", "stages.0.base": "dapo"}),
    ("demo", "?add=rs-grpo&add=ipo", {"stages.1.method.rs-grpo.risk": "0.5"}),
]


@pytest.mark.parametrize(("recipe", "query", "changed"), STACKS)
def test_the_command_shown_stacks_the_same(recipe: str, query: str, changed: EDIT, as_owner: Client, team: Team, owner: User) -> None:
    form = LaunchForm(team, load_catalog(), drafts.of_recipe(load_catalog(), recipe), filled(as_owner, f"/launch/{recipe}/{query}", **changed))
    words = shlex.split(form_changes.build_launch_command(form).replace("\\\n", " "))
    assert words[1:4] == ["manage.py", "launch", recipe]
    code, _, errors = run_command("launch", *words[3:], "--team", team.slug, "--user", owner.email)
    assert (code, errors) == (0, "")
    runs = Run.objects.of(team).order_by("number")
    wanted = [(spec["base"], spec["methods"]) for spec in form_changes.complete_specs(form)]
    assert [(run.spec["base"], run.spec["methods"]) for run in runs] == wanted
    assert ("--set" in words) == ("seed" in changed)


def test_the_command_shown_can_take_a_recipes_methods_away(as_owner: Client, team: Team) -> None:
    form = LaunchForm(
        team, load_catalog(), drafts.of_recipe(load_catalog(), "explore"), filled(as_owner, "/launch/explore/", **{"stages.0.methods": ""})
    )
    words = shlex.split(form_changes.build_launch_command(form).replace("\\\n", " "))
    assert run_command("launch", *words[3:], "--team", team.slug)[0] == 0
    assert Run.objects.of(team).get().spec["methods"] == []


def test_stages_that_stack_differently_are_written_out_one_by_one() -> None:
    known, risk = load_catalog(), {**RISK, "config": {"risk": 1.0}}
    specs = [dict(spec) for spec in stage_specs(known, "demo", {"methods": [risk]})]
    for spec in specs:
        spec.setdefault("base", None)
        spec.setdefault("methods", [])
    assert form_changes.stack_words(known, "demo", specs) == ["--method rs-grpo:risk=1.0"]
    specs[0]["methods"] = [risk]  # where the command line would not put it
    words = form_changes.stack_words(known, "demo", specs)
    assert len(words) == 6
    assert all(word.startswith("--set ") for word in words)


def test_the_command_line_refuses_a_conflict_with_its_reason(team: Team, owner: User) -> None:
    code, _, errors = run_command("launch", "grpo", "--base", "rloo", "--method", "rs-grpo:risk=3", "--team", team.slug)
    assert code == 2
    assert "both rloo and rs-grpo decide the advantages" in errors
    assert not Run.across_teams.exists()


@pytest.mark.parametrize("text", [":risk=3", "rs-grpo:risk", "rs-grpo:=3", ""])
def test_a_method_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(SpecError):
        from_argument(text)


PLAIN = st.one_of(
    st.integers(-1000, 1000), st.floats(-1e6, 1e6), st.booleans(), st.none(), st.text(max_size=12), st.lists(st.floats(-9, 9), max_size=3)
)


@given(st.dictionaries(st.from_regex(r"[a-z_]{1,8}", fullmatch=True), PLAIN, max_size=4))
def test_every_method_reads_back_from_its_argument(config: dict[str, Any]) -> None:
    choice = {"name": "rs-grpo", "config": config}
    assert from_argument(as_argument(choice)) == choice


def test_methods_of_the_command_line_replace_the_recipes(team: Team) -> None:
    known = load_catalog()
    (spec,) = stage_specs(known, "grpo", {"base": {"name": "gspo", "config": {}}, "methods": [RISK]})
    assert (spec["base"]["name"], spec["methods"]) == ("gspo", [RISK])
    assert plan_recipe(team, "grpo", {"methods": [RISK]})[0].methods[0].config == {"risk": 3.0}
    with pytest.raises(SpecError):
        launch_recipe(team, None, "grpo", {"methods": [{"name": ""}]})


def test_help_of_the_command_names_both() -> None:
    words = Command().create_parser("manage.py", "launch").format_help()
    assert "--base NAME" in words
    assert "--method NAME" in words


def test_each_value_of_a_stack_has_a_name_of_its_own() -> None:
    spec = {**GRPO, "base": {"name": "gspo"}, "methods": [RISK, {"name": "siren"}]}
    stack = StackForm(load_catalog(), 0, "grpo", None, spec)
    assert texts_of(stack)["stages.0.methods"] == "rs-grpo siren"
    found = {field: stack.find_input(field) for field in ("methods.0.config.risk", "methods.1.name", "methods.7.name", "base.name")}
    assert {field: place.html_name if place else "" for field, place in found.items()} == {
        "methods.0.config.risk": "stages.0.method.rs-grpo.risk",
        "methods.1.name": "stages.0.method.siren",
        "methods.7.name": "",
        "base.name": "stages.0.base",
    }
