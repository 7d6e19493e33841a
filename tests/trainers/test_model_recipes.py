"""Recipes for models of 0.6B to 8B: each fits the GPU it is for by the estimate and would be accepted; one file does for both stages."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.trainers.hub_of_models import QWEN, QWEN_PARAMETERS
from trainers.checks.model_facts import ModelFacts, read_model_facts
from trainers.checks.model_memory import count_layer_parameters, estimate_training_memory
from trainers.checks.model_settings import find_unsuitable_settings
from trainers.checks.preflight import run_preflight_checks
from trainers.contract.events import Message
from trainers.contract.machine import Machine
from trainers.contract.model_recipes import GPUS, GRPO_FITS, MODEL_RECIPES, MODELS
from trainers.contract.recipe_parts import Recipe
from trainers.contract.spec import RunSpec, parse_spec
from trainers.data.datasets import read_rows
from trainers.judges.rewards import score_column, weights_of
from trainers.rewards.columns import compose_task
from trainers.tasks.base import Example
from trainers.tasks.registry import get_task

GB = 10**9
PROMPT_TOKENS = 256  # of a GSM8K problem with its instruction; the longest has about 200
CONTEXT_BYTES = GB  # of CUDA and its libraries, which the estimate leaves out
# What the models' config.json has otherwise than that of 0.6B, and their parameters, as their cards and headers say.
SHAPES: dict[str, tuple[dict[str, Any], int]] = {
    "Qwen3 0.6B": ({}, QWEN_PARAMETERS),
    "Qwen3 1.7B": ({"hidden_size": 2048, "intermediate_size": 6144}, 1_720_574_976),
    "Qwen3 4B": ({"hidden_size": 2560, "num_hidden_layers": 36, "num_attention_heads": 32, "intermediate_size": 9728}, 4_022_468_096),
    "Qwen3 8B": (
        {"hidden_size": 4096, "num_hidden_layers": 36, "num_attention_heads": 32, "intermediate_size": 12_288, "tie_word_embeddings": False},
        8_190_735_360,
    ),
}
STAGES = [pytest.param(recipe, number, id=f"{recipe.name}-{number}") for recipe in MODEL_RECIPES for number in range(len(recipe.stages))]


def facts_of(model: str) -> ModelFacts:
    more, parameters = SHAPES[model]
    return read_model_facts(QWEN | more, "hub", parameters, "the hub", True)


def spec_of(recipe: Recipe, number: int, **more: Any) -> RunSpec:
    return parse_spec({**recipe.stages[number].spec, **({"policy": {"kind": "run", "folder": "before"}} if number else {}), "output": "run", **more})


def test_there_is_one_for_every_model_on_every_gpu() -> None:
    assert {(recipe.family, recipe.model, recipe.gpu) for recipe in MODEL_RECIPES} == {
        (family, model.title, gpu) for family in {recipe.family for recipe in MODEL_RECIPES} for model in MODELS for gpu in GPUS
    }
    assert len(MODEL_RECIPES) == 24
    assert set(SHAPES) == {model.title for model in MODELS}
    assert set(GRPO_FITS) == {model.key for model in MODELS}


@pytest.mark.parametrize("model", SHAPES)
def test_the_shapes_are_those_of_the_models(model: str) -> None:
    """Matrices of the layers, the embeddings, the head where it is apart, and norms: two a layer, one of queries and one of keys, the last."""
    shape, parameters = facts_of(model).shape, SHAPES[model][1]
    assert shape is not None
    embeddings = shape.vocabulary * shape.width * (2 if model == "Qwen3 8B" else 1)
    norms = shape.layers * (2 * shape.width + 2 * shape.head_width) + shape.width
    assert count_layer_parameters(shape) + embeddings + norms == parameters


@pytest.mark.parametrize(("recipe", "number"), STAGES)
def test_the_whole_estimate_is_within_the_gpu(recipe: Recipe, number: int) -> None:
    total = estimate_training_memory(facts_of(recipe.model), spec_of(recipe, number), PROMPT_TOKENS, recipe.gpu * GB)[-1]
    assert total.high + CONTEXT_BYTES <= recipe.gpu * GB, f"{total.high / GB:.1f} GB"


@pytest.mark.parametrize(("recipe", "number"), STAGES)
def test_its_settings_suit_the_model_and_would_be_accepted(recipe: Recipe, number: int) -> None:
    spec = spec_of(recipe, number)
    assert find_unsuitable_settings(spec, facts_of(recipe.model), PROMPT_TOKENS) == []
    machine = Machine("worker gpu", True, recipe.gpu * GB, ("bitsandbytes",))
    report = run_preflight_checks(spec, policy_pending=True, machine=machine)
    assert report.problems == []
    assert not [warning for warning in report.warnings if "reward" in warning.field]


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ("so \\boxed{1,042}", 1.0),
        ("first \\boxed{3}, no: \\boxed{1042}", 1.0),
        ("<think>1+1=2</think><answer>1042</answer>", 1.0),
        ("1042", 0.0),
        ("\\boxed{7}", 0.0),
    ],
)
def test_math_is_scored_by_the_answer_in_its_box(text: str, score: float) -> None:
    spec = spec_of(MODEL_RECIPES[0], 0)
    task = compose_task(get_task("mini_gsm"), spec)
    assert weights_of(task, spec) == {"correct": 0.0, "format": 0.0, "brevity": 0.0, "working": 0.0, "math-verify": 1.0}
    [found] = score_column(task, "math-verify", [(text, Example([Message("user", "How many?")], "1042"))])
    assert found.value == score


def test_one_file_of_pairs_does_for_sft_and_dpo(tmp_path: Path) -> None:
    file = tmp_path / "pairs.jsonl"
    rows = [{"prompt": f"{i}?", "chosen": [{"role": "assistant", "content": "yes"}], "rejected": "no", "weight": 2.0} for i in range(3)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    for row in read_rows(file, "sft"):
        assert row["completion"] == [{"role": "assistant", "content": "yes"}]
        assert not {"chosen", "rejected", "weight"} & set(row)
    assert [row["weight"] for row in read_rows(file, "dpo")] == [2.0] * 3
