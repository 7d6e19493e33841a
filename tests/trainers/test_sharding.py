"""Runs whose weights two processes share (FSDP2), over gloo: the same as in one process, saved whole, resumed."""

import pytest
import torch
from torch.distributed.tensor import DTensor
from transformers import AutoModelForCausalLM

from tests.trainers.conftest import events_in, fork_ranks, make_spec
from tests.trainers.test_ranks import assert_same_curves, assert_same_rollouts, at_step
from trainers.attempt import rank_processes, train
from trainers.attempt.callbacks import BetweenSteps
from trainers.checks.machine_needs import SHARD_ON_CPU
from trainers.contract.events import AttemptStarted

pytestmark = pytest.mark.training


@pytest.fixture(autouse=True)
def sharded(monkeypatch):
    fork_ranks(monkeypatch)
    monkeypatch.setenv(SHARD_ON_CPU, "1")


def make_sharded(folder, trainer="grpo", sharding="fsdp2", **changes):
    batch = make_spec(folder, trainer, **changes).training.per_device_train_batch_size
    resources = {"resources__processes": 2, "resources__sharding": sharding, "training__per_device_train_batch_size": batch // 2, "device": "auto"}
    return make_spec(folder, trainer, **changes | resources)


def note_shares(monkeypatch, file):
    """Writes down, at the first step, how many of the policy's parameters a rank has whole, and how many it shares."""
    begin = BetweenSteps.on_step_begin

    def on_step_begin(self, args, state, control, **rest):
        shared = [isinstance(parameter, DTensor) for parameter in self.trainer.model.parameters()]
        file.write_text(f"{shared.count(False)} {shared.count(True)}")
        return begin(self, args, state, control, **rest)

    monkeypatch.setattr(BetweenSteps, "on_step_begin", on_step_begin)


def test_grpo_with_shared_weights_trains_as_one_process_does_and_goes_on_from_its_checkpoint(tmp_path, written_answers, monkeypatch):
    changes = {"training__per_device_train_batch_size": 16, "training__beta": 0.04}
    changes |= {"evaluation": {"prompts": 4, "every": 2}, "limits": {"save_every": 2}}
    one, two = tmp_path / "one", tmp_path / "two"
    assert train.run_training(make_spec(one, **changes), one) == train.FINISHED
    note_shares(monkeypatch, tmp_path / "shares")

    def stop(rank, step):
        if step == 3:
            (two / "stop").touch()

    with monkeypatch.context() as patch:
        at_step(patch, stop)
        assert rank_processes.run_on_ranks(make_sharded(two, **changes), two) == train.STOPPED
    (two / "stop").unlink()
    whole, shared = map(int, (tmp_path / "shares").read_text().split())
    assert (whole, shared > 10) == (0, True)
    assert rank_processes.run_on_ranks(make_sharded(two, **changes), two) == train.FINISHED
    assert [event.from_step for event in events_in(two) if isinstance(event, AttemptStarted)] == [0, 3]
    assert_same_curves(events_in(one), events_in(two))
    assert_same_rollouts(events_in(one), events_in(two))
    assert_same_policy(one, two)


def assert_same_policy(one, two):
    left, right = (AutoModelForCausalLM.from_pretrained(folder / "final").state_dict() for folder in (one, two))
    assert left.keys() == right.keys()
    for name, value in left.items():
        torch.testing.assert_close(value, right[name], atol=1e-5, rtol=1e-4)


CONFIGURATION = """
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
fsdp_config:
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_reshard_after_forward: true
  fsdp_state_dict_type: FULL_STATE_DICT
  fsdp_version: 2
mixed_precision: bf16
num_processes: 8
"""


def test_weights_are_shared_as_the_workers_accelerate_configuration_says(tmp_path, monkeypatch):
    file = tmp_path / "accelerate.yaml"
    file.write_text(CONFIGURATION)
    monkeypatch.setenv("LAB_ACCELERATE_CONFIG", str(file))
    note_shares(monkeypatch, tmp_path / "shares")
    one, two = tmp_path / "one", tmp_path / "two"
    assert train.run_training(make_spec(one, "sft", training__max_steps=3), one) == train.FINISHED
    assert rank_processes.run_on_ranks(make_sharded(two, "sft", sharding="accelerate", training__max_steps=3), two) == train.FINISHED
    assert (tmp_path / "shares").read_text().startswith("0 ")
    assert_same_curves(events_in(one), events_in(two))
    assert_same_policy(one, two)


def test_dpo_shares_weights(tmp_path):
    trainer, changes = "dpo", {"training__max_steps": 3, "training__sampled_prompts": 128}
    one, two = tmp_path / "one", tmp_path / "two"
    assert train.run_training(make_spec(one, trainer, **changes), one) == train.FINISHED
    assert rank_processes.run_on_ranks(make_sharded(two, trainer, **changes), two) == train.FINISHED
    assert_same_curves(events_in(one), events_in(two))
    assert_same_policy(one, two)
