"""Held-out measurements: repeatable, and unnoticed by training."""

import random

import numpy as np
import pytest
import torch

from tests.trainers.conftest import ensure_cold_start, events_in, make_spec
from trainers.attempt import train
from trainers.attempt.context import Attempt
from trainers.attempt.evaluate import HeldOut, compute_heldout_metrics, measured_before_training, own_randomness
from trainers.attempt.report import Reporter
from trainers.attempt.stop import StopRequest
from trainers.contract.events import Metrics
from trainers.contract.spool import SPOOL, SpoolWriter
from trainers.policies import loading as policies
from trainers.policies.sampling import Completion
from trainers.tasks import registry


def draws():
    return random.random(), float(np.random.rand()), float(torch.rand(1))


def test_randomness_inside_is_seeded_and_outside_untouched():
    random.seed(3), np.random.seed(3), torch.manual_seed(3)
    expected = draws()
    random.seed(3), np.random.seed(3), torch.manual_seed(3)
    with own_randomness(7, torch.device("cpu")):
        first = draws()
    with own_randomness(7, torch.device("cpu")):
        assert draws() == first
    assert draws() == expected


def test_randomness_outside_is_untouched_by_a_failure_too():
    random.seed(3), np.random.seed(3), torch.manual_seed(3)
    expected = draws()
    random.seed(3), np.random.seed(3), torch.manual_seed(3)
    with pytest.raises(ZeroDivisionError), own_randomness(7, torch.device("cpu")):
        draws(), 1 / 0
    assert draws() == expected


def test_means_leave_out_what_has_no_value():
    made = [Completion([1], ids=[5, 6], mask=[1, 0], entropies=[0.5, 9.0]), Completion([1], ids=[5], mask=[1], entropies=[1.5])]
    values = compute_heldout_metrics(made, [{"a": 1.0, "b": None}, {"a": 0.0, "b": None}], [1.0, None], "a")
    assert values == {
        "heldout/a": 0.5,
        "heldout/b": None,
        "heldout/reward": 1.0,
        "heldout/accuracy": 0.5,
        "heldout/entropy": 1.0,
        "heldout/length": 1.0,
    }


@pytest.mark.training
def test_the_same_policy_measures_the_same(tmp_path):
    spec = make_spec(tmp_path, evaluation={"prompts": 16, "every": 0})
    task = registry.get_task("mini_gsm")
    with SpoolWriter(tmp_path / SPOOL) as writer:
        policy = policies.load_policy(ensure_cold_start(), spec)
        heldout = HeldOut(Attempt(spec, tmp_path, task, policy, Reporter(writer, 1), StopRequest(tmp_path, None)))
        first = heldout.measure(policy.model, 1)
        torch.rand(5)
        assert heldout.measure(policy.model, 2) == first
        several = spec.model_copy(update={"evaluation": spec.evaluation.model_copy(update={"samples": 4})})
        values = HeldOut(Attempt(several, tmp_path, task, policy, Reporter(writer, 1), StopRequest(tmp_path, None))).measure(policy.model, 3)
    assert {name: values[name] for name in first} == first, "further answers change nothing of the first ones"
    assert values["heldout/accuracy"] <= values["heldout/pass-at-4"] <= 1
    assert values["heldout/pass-at-2"] <= values["heldout/pass-at-4"]
    assert not measured_before_training(tmp_path / SPOOL)


@pytest.mark.training
def test_training_is_the_same_with_and_without_measurements(tmp_path):
    seen = {}
    for name, evaluation in (("with", {"prompts": 8, "every": 1}), ("without", {"prompts": 0})):
        folder = tmp_path / name
        assert train.run_training(make_spec(folder, evaluation=evaluation), folder) == train.FINISHED
        steps = [event.values for event in events_in(folder) if isinstance(event, Metrics) and "loss" in event.values]
        seen[name] = [(values["loss"], values["reward"], values["grad_norm"], values["entropy"]) for values in steps]
    assert len(seen["with"]) == 4
    assert seen["with"] == seen["without"]
    assert measured_before_training(tmp_path / "with" / SPOOL)


@pytest.mark.training
def test_a_run_that_starts_over_does_not_measure_the_start_again(tmp_path):
    """An attempt that ended before its first checkpoint has measured step 0 already; twice would count every rollout twice."""
    spec = make_spec(tmp_path, evaluation={"prompts": 8, "every": 0}, training__max_steps=2)
    (tmp_path / "stop").touch()

    class LateStop(StopRequest):
        def requested(self):
            return False if not measured_before_training(tmp_path / SPOOL) else super().requested()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train, "StopRequest", LateStop)
        assert train.run_training(spec, tmp_path) == train.STOPPED
    (tmp_path / "stop").unlink()
    assert train.run_training(spec, tmp_path) == train.FINISHED
    measured = [(event.attempt, event.step) for event in events_in(tmp_path) if isinstance(event, Metrics) and "heldout/length" in event.values]
    assert measured == [(1, 0), (2, 2)]
