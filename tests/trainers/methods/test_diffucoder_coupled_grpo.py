"""Coupled GRPO: advantages of the card, real steps of a masked policy, and what cannot go together."""

import pytest
import torch

from tests.trainers.conftest import events_in, make_spec
from tests.trainers.methods.batches import rollout_batch
from trainers.attempt import train
from trainers.contract.events import Metrics, Rollout
from trainers.masked.model import MaskedLlama
from trainers.methods.bases.diffucoder_coupled_grpo import CoupledGRPO
from trainers.policies.loading import load_model

UNTRAINED = {"kind": "tiny", "cold_start": False}


def test_the_worked_example_of_the_card():
    batch = rollout_batch([1, 0, 0, 1], 4)
    assert CoupledGRPO().advantages(batch, batch.reward).tolist() == pytest.approx([0.6667, -0.6667, -0.6667, 0.6667], abs=1e-4)


def run_spec(folder, **overrides):
    spec = make_spec(folder, base={"name": "diffucoder-coupled-grpo", "config": {"diffusion_steps": 4}}, **overrides)
    return train.run_training(spec, folder)


@pytest.mark.training
def test_two_real_steps_of_the_masked_policy_and_a_run_that_goes_on_from_it(tmp_path):
    overrides = {"training__max_steps": 2, "training__max_completion_length": 12, "training__learning_rate": 1e-3, "evaluation": {"prompts": 4}}
    first, second = tmp_path / "first", tmp_path / "second"
    rewards = {"task": {"name": "mini_gsm", "difficulty": "easy", "rewards": {"brevity": 0.0}}}
    assert run_spec(first, policy=UNTRAINED, **rewards, **overrides) == train.FINISHED
    events = events_in(first)
    rollouts = [event for event in events if isinstance(event, Rollout) and event.phase == "train"]
    assert len(rollouts) == 16
    steps = [event.values for event in events if isinstance(event, Metrics) and "loss" in event.values]
    assert all(step["entropy"] > 0 for step in steps)
    heldout = [event.values for event in events if isinstance(event, Metrics) and "heldout/accuracy" in event.values]
    assert len(heldout) == 2
    assert all(values["heldout/entropy"] > 0 for values in heldout)
    final = load_model(first / "final", torch.float32)
    assert isinstance(final, MaskedLlama)
    assert final.config.diffusion_steps == 4
    assert run_spec(second, policy={"kind": "run", "folder": str(first)}, **overrides) == train.FINISHED


@pytest.mark.training
def test_policies_of_the_other_kind_and_several_turns_are_refused(tmp_path):
    assert run_spec(tmp_path / "turns", policy=UNTRAINED, task={"name": "kb", "difficulty": "easy"}) == train.REFUSED
    masked = train.masked.ensure_untrained_masked_policy(train.registry.get_task("mini_gsm"))
    spec = make_spec(tmp_path / "base", policy={"kind": "folder", "path": str(masked)})
    assert train.run_training(spec, tmp_path / "base") == train.REFUSED
    plain = train.tiny.ensure_untrained_policy()
    assert run_spec(tmp_path / "plain", policy={"kind": "folder", "path": str(plain)}) == train.REFUSED
