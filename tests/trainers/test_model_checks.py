"""What is said of a model before it loads: looked up in a folder or on a hub, its memory by hand, and settings that do not suit it."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.trainers.hub_of_models import QWEN, QWEN_PARAMETERS, serve_models
from trainers.checks.model_facts import ModelAnswer, parse_model_answer, read_model_facts
from trainers.checks.model_lookup import look_up_model
from trainers.checks.model_memory import estimate_training_memory
from trainers.checks.preflight import PreflightReport, run_preflight_checks
from trainers.contract.spec import FolderPolicy, RunSpec, parse_spec

ROOT = Path(__file__).resolve().parents[2]
FACTS = read_model_facts(QWEN, "hub", QWEN_PARAMETERS, "the hub", True, "apache-2.0")


def make_spec(trainer: str = "grpo", name: str = "team/model", **parts: Any) -> RunSpec:
    training = {"trainer": trainer, **parts.pop("training", {})}
    policy = {"kind": "hub", "name": name}
    return parse_spec({"task": {"name": "mini_gsm"}, "policy": policy, "training": training, "output": "run", **parts})


def look_up(name: str, tmp_path: Path, **environment: str) -> ModelAnswer:
    """By the command, with an empty cache."""
    known = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
    done = subprocess.run(
        [sys.executable, "-m", "trainers", "model"],
        input=json.dumps({"kind": "hub", "name": name}),
        env={**known, "HF_HOME": str(tmp_path), **environment},
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=120,
        check=False,
    )
    answer = parse_model_answer(done.stdout)
    assert done.returncode == (2 if answer.problems else 0)
    return answer


def test_the_hub_says_what_a_model_is(tmp_path: Path) -> None:
    with serve_models() as hub:
        assert look_up("team/model", tmp_path, HF_ENDPOINT=hub.url, HF_TOKEN="hf_planted").facts == FACTS
        assert set(hub.tokens) == {"Bearer hf_planted"}, "the model's facts and each file are asked for with it"
    assert FACTS.shape is not None
    assert (FACTS.architecture, FACTS.context, FACTS.dtype) == ("Qwen3ForCausalLM", 40_960, "bfloat16")
    assert not list(tmp_path.rglob("config.json")), "a cache with config.json alone would look like a downloaded model"


@pytest.mark.parametrize(
    ("name", "message", "fix"),
    [
        ("team/gone", "no such repository (404)", "correct the id"),
        ("team/private", "it is private, or does not exist", "set HF_TOKEN"),
        ("team/gated", "has to be asked for", "accept its terms on the hub and set HF_TOKEN"),
    ],
)
def test_a_name_the_hub_refuses_is_a_problem_of_the_id(name: str, message: str, fix: str, tmp_path: Path) -> None:
    with serve_models() as hub:
        (problem,) = look_up(name, tmp_path, HF_ENDPOINT=hub.url).problems
    assert problem.field == "policy.name"
    assert message in problem.message
    assert fix in problem.fix


@pytest.mark.parametrize(
    ("name", "environment", "why"),
    [
        ("team/model", {"HF_HUB_OFFLINE": "1"}, "HF_HUB_OFFLINE is set"),
        ("team/model", {"HF_ENDPOINT": "http://127.0.0.1:9"}, "no network, or http://127.0.0.1:9 does not answer"),
        ("team/broken", {}, "the hub answered 500"),
    ],
)
def test_what_cannot_be_resolved_is_a_quick_warning(name: str, environment: dict[str, str], why: str, tmp_path: Path) -> None:
    began = time.monotonic()
    with serve_models() as hub:
        answer = look_up(name, tmp_path, **{"HF_ENDPOINT": hub.url} | environment)
    assert time.monotonic() - began < 20
    assert (answer.facts, answer.problems) == (None, [])
    assert answer.warnings[0].message == f"the config of {name} could not be resolved from here: " + answer.warnings[0].message.split(": ", 1)[1]
    assert why in answer.warnings[0].message
    assert answer.warnings[0].fix


def test_a_folder_with_a_configuration_alone_is_counted_on_the_meta_device(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(QWEN))
    facts = look_up_model(FolderPolicy(path=str(tmp_path))).facts
    assert facts is not None
    assert (facts.parameters, facts.counted, facts.shape) == (QWEN_PARAMETERS, "configuration", FACTS.shape)


def parts_of(spec: RunSpec, prompt_tokens: int = 60) -> dict[str, tuple[int, int]]:
    return {part.name: (part.low, part.high) for part in estimate_training_memory(FACTS, spec, prompt_tokens)}


@pytest.mark.parametrize(
    ("card", "licence"),
    [
        ("---\nlicense: apache-2.0\ntags:\n- x\n---\n# Model", "apache-2.0"),
        ("---\ntags:\n- license: no\nlicense:\n- mit\n- gpl\n---\n", "mit"),
        ("---\nlicense: other\nlicense_name: 'llama3.1'\n---\n", "llama3.1"),
        ("---\nlicense: mit\n# it never ends", ""),
        ("# license: mit", ""),
        ("", ""),
    ],
)
def test_a_folders_card_names_its_licence(card: str, licence: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(QWEN | {"num_hidden_layers": 1, "vocab_size": 100}))
    if card:
        (tmp_path / "README.md").write_text(card)
    facts = look_up_model(FolderPolicy(path=str(tmp_path))).facts
    assert facts is not None
    assert facts.licence == licence


BATCH = ("weights in bf16", "activations", "logits")


def test_memory_of_grpo_by_hand() -> None:
    """8 sequences of 60 + 100 tokens; half of the completion at least. Width 1024, inner 3072, 28 layers, vocabulary 151,936, 8 x 128 keys."""
    training = {"per_device_train_batch_size": 8, "max_completion_length": 100, "beta": 0.1}
    parts = parts_of(make_spec(training=training))
    matrices = 28 * 1024 * (2 * 2048 + 2 * 1024 + 3 * 3072)
    assert parts["weights"] == parts["gradients"] == parts["reference policy"] == (4 * QWEN_PARAMETERS,) * 2
    assert parts["optimizer"] == (8 * QWEN_PARAMETERS,) * 2
    assert parts["weights in bf16"] == (2 * matrices,) * 2
    assert parts["logits"] == (400 * 32_768 * 2 + 400 * 1032 * 4, 800 * 32_768 * 2 + 800 * 1032 * 4 + 151_936 * 1024 * 4)
    layer = 26 * 1024 + 8 * 3072
    assert parts["activations"] == (8 * 110 * 28 * (layer + 8 * 2048 + 2 * 1024), 8 * 160 * 28 * (layer + 14 * 2048 + 6 * 1024 + 2 * 160))
    assert parts["KV cache"] == (2 * 28 * 1024 * 8 * 110 * 2, 2 * 28 * 1024 * 8 * 160 * 4)
    assert parts["total"][0] == 20 * QWEN_PARAMETERS + sum(parts[name][0] for name in BATCH)
    assert parts["total"][1] == round(1.1 * (20 * QWEN_PARAMETERS + sum(parts[name][1] for name in BATCH)))


def test_adapters_and_checkpointing_take_less_and_a_pair_is_two_sequences() -> None:
    whole, pairs = parts_of(make_spec("kto")), parts_of(make_spec("dpo"))
    head = 4 * 151_936 * 1024
    tile = 4096 * 32_768 * 2
    assert pairs["logits"][1] - head - tile == 2 * (whole["logits"][1] - head - tile), "head and tile stay as they are"
    assert pairs["activations"][1] == 2 * whole["activations"][1]
    adapters = parts_of(make_spec("dpo", lora={"r": 16}, training={"gradient_checkpointing": True}))
    trained = 28 * 16 * (2 * (1024 + 2048) + 2 * (1024 + 1024) + 3 * (1024 + 3072))
    assert adapters["weights"][0] == 2 * QWEN_PARAMETERS + 4 * trained
    assert adapters["gradients"][0] == 4 * trained
    assert "reference policy" not in adapters
    assert adapters["activations"][1] < pairs["activations"][1] / 5
    assert [part for part, (_, high) in parts_of(make_spec("reward")).items() if part == "logits" and high] == []


def check(spec: RunSpec, answer: ModelAnswer) -> PreflightReport:
    return run_preflight_checks(spec, model=answer)


def suggestions(spec: RunSpec, answer: ModelAnswer) -> dict[str, Any]:
    return {item["field"]: item["suggestion"] for item in check(spec, answer).as_json()["warnings"] if "suggestion" in item}


def test_the_tiny_policys_values_are_warned_about_with_ones_that_do() -> None:
    known, unknown = ModelAnswer(FACTS), ModelAnswer(unresolved=True)
    rate, length, whole = "training.learning_rate", "training.max_completion_length", "training.max_length"
    assert suggestions(make_spec(), known) == suggestions(make_spec(), unknown) == {rate: 1e-6, length: 512}
    assert suggestions(make_spec("dpo"), known) == {rate: 1e-6, length: 512, whole: 1024}
    assert suggestions(make_spec(lora={}), known) == {rate: 1e-5, length: 512}
    assert suggestions(make_spec(training={"learning_rate": 5e-6, "max_completion_length": 100}), known) == {}
    assert suggestions(make_spec(training={"learning_rate": 2e-5, "max_completion_length": 100}), known) == {rate: 1e-6}
    small = read_model_facts(QWEN | {"max_position_embeddings": 256}, "folder", 500_000, "weights", True)
    assert suggestions(make_spec(), ModelAnswer(small)) == {}


def test_the_report_names_the_model_and_holds_its_context_and_template_against_the_run() -> None:
    report = check(make_spec(), ModelAnswer(FACTS))
    assert report.ok
    assert report.as_json()["model"]["facts"]["parameters"] == QWEN_PARAMETERS
    assert report.as_json()["model"]["memory"][-1]["name"] == "total"
    short = read_model_facts(QWEN | {"max_position_embeddings": 32}, "hub", QWEN_PARAMETERS, "the hub", False)
    assert {problem.field for problem in check(make_spec(), ModelAnswer(short)).problems} == {"policy.name", "training.max_completion_length"}
