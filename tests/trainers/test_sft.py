"""Supervised fine-tuning on demonstrations and on a file of one's own."""

import json

import pytest
import torch
from datasets import Dataset
from transformers import PrinterCallback
from trl import SFTConfig, SFTTrainer

from tests.trainers.conftest import events_in, make_spec
from trainers.adapters.arguments import build_common_arguments
from trainers.adapters.sft import build_demonstrations
from trainers.attempt import train
from trainers.attempt.context import Attempt
from trainers.contract.events import AttemptFinished, Metrics, Rollout
from trainers.policies import loading as policies
from trainers.policies import tiny
from trainers.tasks import registry

pytestmark = pytest.mark.training
UNTRAINED = {"kind": "tiny", "cold_start": False}


def steps(folder):
    return [event for event in events_in(folder) if isinstance(event, Metrics) and "loss" in event.values]


def test_it_learns_from_demonstrations_as_trls_own_trainer(tmp_path):
    spec = make_spec(tmp_path, "sft", policy=UNTRAINED, training__max_steps=6, training__learning_rate=3e-3, evaluation={"prompts": 8, "every": 3})
    assert train.run_training(spec, tmp_path) == train.FINISHED
    ours = steps(tmp_path)
    assert ours[-1].values["loss"] < ours[0].values["loss"]
    assert [event.tokens for event in ours] == sorted({event.tokens for event in ours})
    heldout = [event for event in events_in(tmp_path) if isinstance(event, Rollout)]
    assert {(event.phase, event.step) for event in heldout} == {("heldout", 0), ("heldout", 3), ("heldout", 6)}
    assert len(heldout) == 24

    policy = policies.load_policy(tiny.ensure_untrained_policy(), spec)
    attempt = Attempt(spec, tmp_path / "bare", registry.get_task("mini_gsm"), policy, None, None)
    trainer = SFTTrainer(
        model=policy.model,
        processing_class=policy.tokenizer,
        args=SFTConfig(**build_common_arguments(attempt), max_length=spec.training.max_length, completion_only_loss=True),
        train_dataset=Dataset.from_list(build_demonstrations(attempt.task, 64, 0, "easy", attempt.policy.tokenizer)),
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    bare = [entry for entry in trainer.state.log_history if "loss" in entry]
    names = ["loss", "grad_norm", "entropy", "mean_token_accuracy", "num_tokens"]
    assert [[event.values[name] for name in names] for event in ours] == [[entry[name] for name in names] for entry in bare]


def test_it_trains_on_a_file_of_ones_own(tmp_path):
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps({"prompt": f"{i}+1?", "completion": f"<answer>{i + 1}</answer>"}) + "\n" for i in range(20)))
    spec = make_spec(tmp_path / "run", "sft", policy=UNTRAINED, dataset={"path": str(file)}, training__max_steps=3)
    assert train.run_training(spec, tmp_path / "run") == train.FINISHED
    assert len(steps(tmp_path / "run")) == 3


def test_a_broken_row_is_refused_with_its_line(tmp_path):
    file = tmp_path / "rows.jsonl"
    file.write_text('{"prompt": "a", "completion": "b"}\n{"prompt": "a"}\n')
    assert train.run_training(make_spec(tmp_path / "run", "sft", policy=UNTRAINED, dataset={"path": str(file)}), tmp_path / "run") == train.REFUSED
    (finished,) = [event for event in events_in(tmp_path / "run") if isinstance(event, AttemptFinished)]
    assert finished.outcome == "failed"
    assert "line 2" in finished.error
    assert "\n" not in finished.error


def test_a_loss_that_is_not_a_number_is_reported_as_such(tmp_path):
    start = tmp_path / "start"
    policy = policies.load_model(tiny.ensure_untrained_policy(), torch.float32)
    with torch.no_grad():
        policy.model.layers[0].mlp.up_proj.weight.fill_(float("nan"))
    policies.export_policy(policy, policies.load_tokenizer(tiny.ensure_untrained_policy()), start)
    spec = make_spec(tmp_path / "run", "sft", policy={"kind": "folder", "path": str(start)}, training__max_steps=1)
    assert train.run_training(spec, tmp_path / "run") == train.FINISHED
    (event,) = [event for event in events_in(tmp_path / "run") if isinstance(event, Metrics)]
    assert event.nonfinite["loss"] == "nan"
    assert "loss" not in event.values
