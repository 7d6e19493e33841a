"""The catalogue and its recipes: current, complete, and every recipe a run that would be accepted."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from trainers.catalog import describe as catalog
from trainers.catalog.entries import FILE
from trainers.checks.preflight import run_preflight_checks
from trainers.contract.hyperparameters import TRAINERS
from trainers.contract.recipes import RECIPES
from trainers.contract.spec import RunSpec, parse_spec
from trainers.contract.stacking import base_choice
from trainers.tasks.registry import BUILT_IN, WORLDS

ROOT = Path(__file__).resolve().parents[2]
CATALOGUE = catalog.build_catalog(built_in_only=True)
ALONE = [recipe for recipe in RECIPES if not recipe.family]
STAGES = [pytest.param(recipe, number, id=f"{recipe.name}-{number}") for recipe in ALONE for number in range(len(recipe.stages))]
# Those of a family are for machines that have what they need: test_model_recipes.py.


def make_stage(recipe: Any, number: int, folder: Path) -> RunSpec:
    """A stage as a launcher completes it: an output folder, and the policy of the stage before it."""
    spec = {**recipe.stages[number].spec, "recipe": recipe.name, "output": str(folder / str(number))}
    if number:
        assert "policy" not in spec
        spec["policy"] = {"kind": "run", "folder": str(folder / str(number - 1))}
    return parse_spec(spec)


def test_the_committed_catalogue_is_current():
    assert FILE.read_text() == catalog.format_catalog(CATALOGUE), "run: python -m trainers catalog --built-in --out trainers/catalog.json"


@pytest.mark.parametrize(("recipe", "number"), STAGES)
def test_every_stage_of_every_recipe_passes_preflight(recipe, number, tmp_path):
    report = run_preflight_checks(make_stage(recipe, number, tmp_path), policy_pending=number > 0)
    assert report.problems == []
    if recipe.needs == "cpu":
        assert report.warnings == []


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_a_recipes_card_names_the_base_that_its_rl_runs_on(recipe, tmp_path):
    titles = {method["name"]: method["title"] for method in CATALOGUE["methods"]}
    specs = [make_stage(recipe, number, tmp_path) for number in range(len(recipe.stages))]
    assert all(titles[base_choice(spec).name] in recipe.summary for spec in specs if spec.training.trainer == "grpo")


def test_the_demo_is_a_cold_start_then_grpo_then_dpo(tmp_path):
    demo = next(recipe for recipe in RECIPES if recipe.name == "demo")
    stages = [make_stage(demo, number, tmp_path) for number in range(3)]
    assert [stage.training.trainer for stage in stages] == ["sft", "grpo", "dpo"]
    assert {stage.task.name for stage in stages} == {"mini_gsm"}
    assert stages[0].policy.cold_start is False


def test_recipes_have_names_of_their_own_and_fit_on_a_card():
    assert len({recipe.name for recipe in RECIPES}) == len(RECIPES)
    for recipe in RECIPES:
        assert recipe.summary.endswith(".")
        assert recipe.summary.count(". ") <= 1
        assert len(recipe.summary) <= 160
        assert recipe.needs in ("cpu", "gpu")


def test_it_describes_every_trainer_with_its_schema():
    assert set(CATALOGUE["trainers"]) == set(TRAINERS)
    for name, trainer in CATALOGUE["trainers"].items():
        assert trainer["title"]
        assert trainer["summary"]
        assert trainer["schema"]["properties"]["trainer"]["const"] == name
        assert set(trainer["schema"]["properties"]) == set(TRAINERS[name].model_fields)


def test_it_describes_every_policy_kind_the_spec_knows():
    kinds = set(RunSpec.model_json_schema()["properties"]["policy"]["discriminator"]["mapping"])
    assert {policy["kind"] for policy in CATALOGUE["policies"]} == kinds


def test_it_describes_every_task_as_a_form_needs_it():
    turns = {kind.name: kind.max_turns for kind in (*BUILT_IN, *WORLDS)}
    assert turns.items() >= {"mini_gsm": 1, "kb": 4, "calendar": 1, "search": 5, "sums": 3}.items()
    assert {task["name"]: task["turns"] for task in CATALOGUE["tasks"]} == turns
    assert [task["name"] for task in CATALOGUE["tasks"]] == list(turns)
    for task in CATALOGUE["tasks"]:
        assert list(task["difficulties"]) == ["easy", "medium", "hard"]
        assert task["rewards"][0] == {**task["rewards"][0], "name": "correct", "weight": 1.0}
        assert 3 <= len(task["rewards"]) <= 8
        assert "mixed quality" in task["demonstrations"]
        assert task["example"]["prompt"]
        assert task["example"]["gold"].endswith(tuple(f"</{tag}>" for tag in ("answer", *(tool["name"] for tool in task.get("tools", ())))))


def test_it_is_plain_json_of_the_agreed_shape():
    assert set(CATALOGUE) == {"version", "schema", "trainers", "tasks", "policies", "rewards", "recipes", "methods"}
    assert json.loads(json.dumps(CATALOGUE, allow_nan=False)) == CATALOGUE
    assert all({"title", "spec"} == set(stage) for recipe in CATALOGUE["recipes"] for stage in recipe["stages"])


def test_reading_it_needs_no_torch():
    """Building it does: methods are written with torch. Whoever checks or shows a run only reads what was built."""
    code = "import sys; from trainers.checks import preflight; from trainers.catalog import entries; entries.built_in_entries(); "
    code += "print({'torch', 'transformers'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=240, check=True)
    assert done.stdout == "set()\n"


def test_every_method_of_the_first_set_is_there():
    counts = Counter(entry["group"] for entry in CATALOGUE["methods"])
    assert counts >= Counter({"bases": 11, "group": 24, "tokens": 10, "prompts": 7, "pairs": 13, "analysis": 1})
