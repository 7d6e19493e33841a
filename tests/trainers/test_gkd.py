"""On-policy distillation: the divergence by hand, sampled answers in the spool, and a teacher that does not fit is refused."""

import json
import math
import shutil

import numpy as np
import pytest
import torch
from trl.experimental.gkd import GKDTrainer

from tests.trainers.conftest import ensure_cold_start, events_in, make_spec
from trainers.attempt import train
from trainers.checks.preflight import run_preflight_checks
from trainers.contract import arrays
from trainers.contract.events import AttemptFinished, Metrics, Rollout
from trainers.contract.problems import SpecError
from trainers.policies import tiny
from trainers.tasks import registry

TINY = {"kind": "tiny"}
ON_POLICY = {"name": "gkd", "config": {"on_policy": 1.0}}


def kl(p: list[float], q: list[float]) -> float:
    return sum(a * math.log(a / b) for a, b in zip(p, q, strict=True))


@pytest.mark.parametrize("beta", [0.0, 0.25, 1.0])
def test_the_divergence_goes_from_forward_to_reverse_kl(beta):
    student, teacher = [0.5, 0.5], [0.9, 0.1]
    found = GKDTrainer.generalized_jsd_loss(torch.tensor([[student]]).log(), torch.tensor([[teacher]]).log(), torch.tensor([[1]]), beta=beta)
    mixed = [(1 - beta) * mine + beta * theirs for mine, theirs in zip(student, teacher, strict=True)]
    expected = {0.0: kl(teacher, student), 1.0: kl(student, teacher)}.get(beta, beta * kl(teacher, mixed) + (1 - beta) * kl(student, mixed))
    assert found.item() == pytest.approx(expected)


@pytest.mark.training
def test_sampled_answers_are_reported_with_their_statistics_and_scores(tmp_path):
    changes = {"training__max_steps": 2, "training__gradient_accumulation_steps": 2, "telemetry": {"alternatives_share": 1.0}}
    spec = make_spec(tmp_path, "gkd", base=ON_POLICY, teacher=TINY, **changes)
    assert train.run_training(spec, tmp_path) == train.FINISHED
    events = events_in(tmp_path)
    rollouts = [event for event in events if isinstance(event, Rollout)]
    assert sorted((event.step, event.group) for event in rollouts) == [(step, group) for step in (1, 2) for group in range(8)]
    for event in rollouts:
        assert len(arrays.unpack_array(event.logprobs)) == len(arrays.unpack_array(event.entropies)) == event.length
        assert (arrays.unpack_array(event.logprobs) < 0.01).all()
        assert event.alternative_ids
        assert event.reference
        assert set(event.rewards) == set(registry.get_task("mini_gsm").rewards)
    assert {event.finish_reason for event in rollouts} <= {"stop", "length"}
    for step in [event for event in events if isinstance(event, Metrics)]:
        own = [event for event in rollouts if event.step == step.step]
        assert step.values["reward"] == pytest.approx(np.mean([event.reward for event in own]))
        assert step.values["completions/mean_length"] == pytest.approx(np.mean([event.length for event in own]))
        assert step.step > 1 or abs(step.values["loss"]) < 1e-6  # the teacher is the policy itself at first
        assert step.tokens > 0


@pytest.mark.training
def test_rows_of_a_file_have_no_reward(tmp_path):
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps({"prompt": f"{n}+1?", "completion": f"{n + 1}"}) + "\n" for n in range(8)))
    spec = make_spec(tmp_path, "gkd", base=ON_POLICY, teacher=TINY, training__max_steps=1, dataset={"path": str(tmp_path / "rows.jsonl")})
    assert train.run_training(spec, tmp_path) == train.FINISHED
    rollouts = [event for event in events_in(tmp_path) if isinstance(event, Rollout)]
    assert len(rollouts) == 4
    assert {event.reward for event in rollouts} == {None}


def test_a_teacher_goes_with_distillation_alone(tmp_path):
    with pytest.raises(SpecError, match="distillation has a teacher"):
        make_spec(tmp_path, "gkd")
    with pytest.raises(SpecError, match="sft has no teacher"):
        make_spec(tmp_path, "sft", teacher=TINY)


def test_a_teacher_that_is_not_there_is_named_before(tmp_path):
    spec = make_spec(tmp_path, "gkd", teacher={"kind": "folder", "path": str(tmp_path / "nothing")})
    assert [problem.field for problem in run_preflight_checks(spec).problems] == ["teacher.path"]


@pytest.mark.training
def test_a_teacher_with_other_tokens_is_refused(tmp_path):
    folder = tmp_path / "teacher"
    shutil.copytree(tiny.ensure_untrained_policy(), folder)
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    first, second = [word for word in vocabulary if word.isalpha()][:2]
    vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    ensure_cold_start()
    spec = make_spec(tmp_path / "run", "gkd", teacher={"kind": "folder", "path": str(folder)})
    assert train.run_training(spec, tmp_path / "run") == train.REFUSED
    [ended] = [event for event in events_in(tmp_path / "run") if isinstance(event, AttemptFinished)]
    assert "its tokenizer has other tokens" in ended.error
