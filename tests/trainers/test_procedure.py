"""Procedures: rounds that change no weight, go on exactly after a stop, and are measured on held-out prompts without learning from them."""

import hashlib
import json
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.conftest import current, ensure_cold_start, events_in, make_spec
from tests.trainers.test_resume import outcomes, run_until
from trainers.adapters.procedure import pick_in_order
from trainers.adapters.resumable import list_whole_checkpoints
from trainers.attempt import train
from trainers.checks.model_facts import ModelFacts, Shape
from trainers.checks.model_memory import estimate_training_memory
from trainers.checks.preflight import run_preflight_checks
from trainers.contract.batches import compute_batch_figures
from trainers.contract.edits import TaskOffer, list_editable_settings
from trainers.contract.events import Metrics, Rollout
from trainers.contract.hyperparameters import Optimised, Procedure
from trainers.contract.spec import SpecError
from trainers.methods.bases.procedure import Procedure as Base
from trainers.policies.loading import link_policy


def digest_files(folder: Path, pattern: str = "*.safetensors") -> dict[str, str]:
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.glob(pattern)}


def list_rounds(folder: Path) -> dict[int, dict[str, float]]:
    """Metrics by round, of the attempt that counts."""
    rounds = [event for event in current(events_in(folder), Metrics) if "speed/step_seconds" in event.values]
    return {event.step: {name: value for name, value in event.values.items() if not name.startswith("speed/")} for event in rounds}


def list_answers(folder: Path, phase: str = "train") -> list[tuple[object, ...]]:
    found = [event for event in current(events_in(folder), Rollout) if event.phase == phase]
    return sorted((event.step, event.group, event.sample, event.completion, event.reward, event.logprobs) for event in found)


@pytest.fixture
def keeps_texts(monkeypatch):
    """The base with hooks: it keeps every answer, draws one prompt more often, and counts its rounds."""

    def prepare(self, run):
        self.run, self.rounds, self.asked = run, 0, []

    def curriculum(self, history):
        weights = torch.ones(history.size)
        weights[self.run.store.size("texts") % history.size] = 50.0
        return weights

    def rollout(self, session):
        self.asked.append((session.step, session.learns))
        if not session.learns:
            self.run.store.add("texts", "seen held out")
            self.rounds += 100
        self.log("kept", self.run.store.size("texts"))
        return session.complete()

    def observe(self, batch):
        assert batch.ids.shape == batch.mask.shape
        assert batch.rewards.shape == (len(batch.texts), len(batch.reward_names))
        self.rounds += 1
        self.run.store.add("texts", *batch.texts)

    for hook in (prepare, curriculum, rollout, observe):
        monkeypatch.setattr(Base, hook.__name__, hook)
    monkeypatch.setattr(Base, "state", lambda self: {"rounds": self.rounds})
    monkeypatch.setattr(Base, "restore", lambda self, state: setattr(self, "rounds", state["rounds"]))


@pytest.mark.training
def test_two_rounds_change_no_weight(tmp_path):
    spec = make_spec(tmp_path, "procedure", training__max_steps=2, evaluation={"prompts": 4, "every": 0})
    assert train.run_training(spec, tmp_path) == train.FINISHED
    start = ensure_cold_start()
    assert digest_files(tmp_path / "final", "*") == digest_files(start, "*")
    assert digest_files(tmp_path / "checkpoints" / "checkpoint-2") == digest_files(start)
    rounds = list_rounds(tmp_path)
    assert set(rounds) == {1, 2}
    assert {"reward", "procedure/accuracy", "procedure/tokens", "rewards/correct/mean"} <= rounds[1].keys()
    assert "loss" not in rounds[1]
    answers = [event for event in events_in(tmp_path) if isinstance(event, Rollout) and event.phase == "train"]
    assert len(answers) == 16
    assert sum(event.length for event in answers if event.step == 1) == rounds[1]["procedure/tokens"]
    assert {event.advantage for event in answers} == {None}
    heldout = {event.step: event.values for event in events_in(tmp_path) if isinstance(event, Metrics) and "heldout/length" in event.values}
    assert heldout[0]["heldout/accuracy"] == heldout[2]["heldout/accuracy"]  # the same policy, prompts and random numbers
    assert heldout[2]["heldout/written"] == heldout[2]["heldout/length"]


@pytest.mark.training
def test_a_stopped_procedure_goes_on_exactly(tmp_path, keeps_texts):
    settings = {"training__prompts": 6, "evaluation": {"prompts": 2, "every": 2}}
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert train.run_training(make_spec(whole, "procedure", **settings), whole) == train.FINISHED
    parts.mkdir()
    spec = make_spec(parts, "procedure", **settings)
    assert [run_until(spec, parts, step) for step in (2, 4)] == [train.STOPPED] * 2
    assert train.run_training(spec, parts) == train.FINISHED
    assert outcomes(parts) == ["stopped", "stopped", "finished"]
    assert list_rounds(parts) == list_rounds(whole)
    assert list_answers(parts) == list_answers(whole)
    assert list_answers(parts, "heldout") == list_answers(whole, "heldout")
    kept = [torch.load(list_whole_checkpoints(folder / "checkpoints")[-1] / "methods.pt") for folder in (whole, parts)]
    assert kept[0] == kept[1]
    assert kept[0]["methods"]["procedure"] == {"rounds": 4}
    assert len(kept[0]["store"]["lists"]["texts"]) == 32
    assert "seen held out" not in kept[0]["store"]["lists"]["texts"]


@pytest.mark.training
def test_a_prompt_that_comes_again_can_flip(tmp_path):
    spec = make_spec(tmp_path, "procedure", training__prompts=2, training__max_steps=2)
    assert train.run_training(spec, tmp_path) == train.FINISHED
    rounds = list_rounds(tmp_path)
    assert "procedure/right_to_wrong" not in rounds[1]
    share = {step: {} for step in (1, 2)}
    for event in events_in(tmp_path):
        if isinstance(event, Rollout):
            share[event.step].setdefault(event.prompt[-1].content, []).append(event.rewards["correct"])
    is_right = {step: {prompt: sum(values) / 4 > 0.5 for prompt, values in prompts.items()} for step, prompts in share.items()}
    lost = sum(is_right[1][prompt] and not is_right[2][prompt] for prompt in is_right[1]) / 2
    assert rounds[2]["procedure/right_to_wrong"] == lost


@given(st.integers(1, 12), st.integers(1, 9), st.integers(0, 3))
def test_every_example_comes_once_before_one_comes_again(size, count, seed):
    drawn = [number for step in range(1, 2 * size + 1) for number in pick_in_order(size, count, step, seed)]
    for start in range(0, len(drawn) - size + 1, size):
        assert sorted(drawn[start : start + size]) == list(range(size))


def test_it_has_no_settings_of_an_optimiser(tmp_path):
    assert not set(Optimised.model_fields) & set(Procedure.model_fields) - {"max_steps", "per_device_train_batch_size"}
    with pytest.raises(SpecError, match="learning_rate"):
        make_spec(tmp_path, "procedure", training__learning_rate=1e-4)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"resources": {"processes": 2}}, "resources.processes"),
        ({"lora": {"r": 4}}, "lora"),
        ({"training__num_generations": 3}, "training.num_generations"),
        ({"human": {"share": 0.5}}, "human.share"),
    ],
)
def test_what_it_cannot_do_is_refused(tmp_path, changes, field):
    with pytest.raises(SpecError) as refused:
        make_spec(tmp_path, "procedure", **changes)
    assert field in {problem.field for problem in refused.value.problems}


def test_methods_of_other_trainers_are_refused(tmp_path):
    spec = make_spec(tmp_path, "procedure", methods=[{"name": "rs-grpo"}])
    report = run_preflight_checks(spec)
    assert [problem.field for problem in report.problems] == ["methods.0.name"]
    assert run_preflight_checks(make_spec(tmp_path, "procedure")).ok


def test_its_batch_its_memory_and_its_edits(tmp_path):
    spec = make_spec(tmp_path, "procedure")
    figures = compute_batch_figures(spec)
    assert (figures["prompts_per_step"], figures["completions_per_step"], figures["total_rollouts"]) == (2, 8, 32)
    shape = Shape(layers=2, width=128, inner=384, heads=4, key_value_heads=4, head_width=32, vocabulary=500)
    parts = estimate_training_memory(ModelFacts("folder", "LlamaForCausalLM", 500_000, "weights", 256, "float32", True, shape), spec, 20)
    assert [part.name for part in parts][:-1] == ["weights", "KV cache"]
    settings = list_editable_settings(spec, TaskOffer({"correct": 1.0}, ["easy"]), {})
    assert settings.launched == {"training.temperature": 1.0}


def test_a_policy_is_linked_byte_for_byte(tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    (source / "config.json").write_text(json.dumps({"a": 1}))
    (tmp_path / "blob").write_bytes(b"weights")
    (source / "model.safetensors").symlink_to(tmp_path / "blob")
    (source / "training_args.bin").write_bytes(b"a pickle")
    link_policy(source, tmp_path / "made")
    link_policy(source, tmp_path / "made")
    assert digest_files(tmp_path / "made", "*").keys() == {"config.json", "model.safetensors"}
    assert not (tmp_path / "made" / "model.safetensors").is_symlink()
    assert (tmp_path / "made" / "model.safetensors").read_bytes() == b"weights"
