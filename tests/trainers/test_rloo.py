"""RLOO as TRL runs it: what a rollout says of its advantage, its ratio and its reference, and what the trainer cannot do."""

import numpy as np
import pytest
import torch

from tests.trainers.conftest import events_in, make_spec
from trainers.adapters.passes import last_planes
from trainers.adapters.rloo import PENALISED
from trainers.attempt import train
from trainers.checks.preflight import run_preflight_checks
from trainers.contract import arrays
from trainers.contract.events import Metrics, Rollout
from trainers.methods.bases.rloo import leave_one_out


@pytest.mark.training
def test_a_rollout_says_what_its_advantage_and_its_ratio_come_from(tmp_path, written_answers):
    spec = make_spec(
        tmp_path,
        "rloo",
        training__beta=0.5,
        training__num_iterations=2,
        training__epsilon=1e-3,
        training__max_steps=4,
        training__warmup_steps=0,
        training__learning_rate=3e-3,
        telemetry={"alternatives_share": 1.0},
    )
    assert train.run_training(spec, tmp_path) == train.FINISHED
    events = events_in(tmp_path)
    rollouts = [event for event in events if isinstance(event, Rollout)]
    metrics = {event.step: event.values for event in events if isinstance(event, Metrics)}
    assert len(rollouts) == 16
    for step in (1, 3):
        own = sorted((event for event in rollouts if event.step == step), key=lambda event: (event.group, event.sample))
        penalised = torch.tensor([event.shaped[PENALISED] for event in own])
        assert torch.tensor([event.advantage for event in own]) == pytest.approx(leave_one_out(penalised, 4), abs=1e-5)
        clipped = []
        for event, after in zip(own, penalised.tolist(), strict=True):
            mine, theirs, ratios = (arrays.unpack_array(values) for values in (event.logprobs, event.reference_logprobs, event.ratios))
            assert len(mine) == len(theirs) == event.length == len(ratios)
            assert after == pytest.approx(event.reward - 0.5 * float((mine - theirs).sum()), abs=0.05)
            assert len(set(ratios.tolist())) == 1  # one ratio for the whole completion
            high, low = ratios[0] > 1 + 1e-3 and event.advantage > 0, ratios[0] < 1 - 1e-3 and event.advantage < 0
            clipped.append(float(high or low))
            assert (np.asarray(arrays.unpack_array(event.clipped)) == 1).all() if clipped[-1] else not event.clipped
            assert event.alternative_ids
        assert metrics[step + 1]["clip_ratio/region_mean"] == pytest.approx(np.mean(clipped))
        assert any(clipped)


def test_the_ratio_of_a_completion_is_the_product_of_its_tokens():
    class Micro:
        inputs = {"old_per_token_logps": torch.zeros(1, 3), "advantages": torch.tensor([1.0])}
        used_logprobs = torch.tensor([[0.1, 0.2, 9.0]])
        mask = torch.tensor([[1, 1, 0]])

    planes = last_planes(Micro(), (0.2, 0.2), "rloo", "completion")
    assert planes["ratios"][0, :2].tolist() == pytest.approx([np.exp(0.3)] * 2)
    assert planes["clipped"].tolist() == [[1.0, 1.0, 0.0]]


def test_a_task_of_several_turns_is_refused(tmp_path):
    spec = make_spec(tmp_path, "rloo", task={"name": "kb"})
    [problem] = run_preflight_checks(spec).problems
    assert (problem.field, problem.value) == ("training.trainer", "rloo")
    assert train.run_training(spec, tmp_path) == train.REFUSED
