"""Annealed RLVR: the card's numbers, GRPO until the turning point, one burst without policy gradient, state that survives a checkpoint."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.methods.batches import loss_batch, rollout_batch
from trainers.methods.tokens.annealed_rlvr import AnnealedRLVR, Config, has_passed_minimum, heating_set, past_knee

LENGTHS = [900.0, 700, 600, 580, 590, 640]


def test_the_worked_examples():
    assert [has_passed_minimum(LENGTHS[: end + 1], 2) for end in range(6)] == [False] * 5 + [True]
    assert LENGTHS.index(min(LENGTHS)) == 3
    assert heating_set([0.0, 0.05, 0.08, 0.30], [0, 1, 2, 5], 0.1) == [1, 2]


def test_the_knee():
    rising = [0.0, 0.05, 0.15, 0.3, 0.31, 0.32]
    assert [past_knee(rising[: end + 1], 0.3) for end in range(6)] == [False] * 5 + [True]
    assert not past_knee([0.5] * 6, 0.3)  # it never rose
    assert not past_knee([0.5, 0.6], 0.3)


@given(st.lists(st.floats(1, 100), min_size=1, max_size=8), st.integers(1, 3), st.sampled_from([0.25, 2.0, 16.0]))
def test_the_turning_point_does_not_depend_on_the_unit_and_needs_a_rise(lengths, patience, scale):
    assert has_passed_minimum([value * scale for value in lengths], patience) == has_passed_minimum(lengths, patience)
    assert not has_passed_minimum(sorted(lengths, reverse=True), patience)


@given(st.lists(st.tuples(st.floats(0, 1), st.integers(0, 5)), max_size=8), st.floats(0.01, 1))
def test_nothing_unsolved_or_solved_often_is_heated_on(prompts, threshold):
    chosen = heating_set([accuracy for accuracy, _ in prompts], [count for _, count in prompts], threshold)
    assert all(prompts[place][1] > 0 and prompts[place][0] < threshold for place in chosen)


def step(method, number, rewards, lengths):
    """One scored batch of a group of 4; returns the advantages the method leaves of ones."""
    mask = torch.tensor([[1.0] * length + [0.0] * (8 - length) for length in lengths])
    batch = rollout_batch(rewards, 4, mask=mask, texts=[f"answer {number}"] * 4, step=number)
    advantages = method.advantages(batch, torch.ones(4))
    method.observe(batch)
    return advantages


def through_the_turning_point(method):
    """Lengths fall for six steps, then rise; the reward rises at first and then no more."""
    lengths = [8, 7, 6, 5, 4, 3, 8, 8, 8, 8]
    right = [[0, 0, 0, 0], [1, 0, 0, 0], *[[1, 1, 0, 0]] * 2, *[[1, 0, 0, 0]] * 6]
    return [step(method, number, right[number - 1], [length] * 4).sum().item() for number, length in enumerate(lengths, 1)]


def test_it_is_grpo_until_the_turning_point_and_has_no_policy_gradient_while_heating():
    method = AnnealedRLVR(Config(every=1, steps=2, threshold=0.5))
    assert through_the_turning_point(method)[:7] == [4.0] * 7
    assert 7 <= method.started <= 11
    assert method.heated == [0]
    assert method.solutions == {0: "answer 2"}
    assert [method.phase(method.started + offset) for offset in (-1, 0, 1, 2)] == [0, 1, 1, 2]
    assert step(method, method.started, [0, 0, 0, 0], [8] * 4).sum() == 0.0
    assert step(method, method.started + 2, [0, 0, 0, 0], [8] * 4).sum() == 4.0


def test_without_steps_it_is_its_parent():
    method = AnnealedRLVR(Config(every=1, steps=0, threshold=0.5))
    assert through_the_turning_point(method) == [4.0] * 10
    rollout = rollout_batch([0.0] * 4, 4, step=method.started)
    assert method.loss(loss_batch(torch.zeros(4, 3), torch.zeros(4), rollout=rollout)) is None


def test_it_waits_while_there_is_nothing_to_heat_on():
    method = AnnealedRLVR(Config(every=1, threshold=0.1))
    through_the_turning_point(method)
    assert method.started == 0
    assert method.heated == []


def test_runs_without_any_right_answer_and_all_masked_rows_stay_finite():
    method = AnnealedRLVR(Config(every=1, at=1))
    step(method, 1, [0, 0, 0, 0], [0] * 4)
    assert all(value == value for value in method.collect().values())
    assert method.started == 0


def test_its_memory_survives_a_checkpoint(tmp_path):
    method = AnnealedRLVR(Config(every=1, threshold=0.5))
    through_the_turning_point(method)
    torch.save(method.state(), tmp_path / "state.pt")
    resumed = AnnealedRLVR(Config(every=1, threshold=0.5))
    resumed.restore(torch.load(tmp_path / "state.pt", weights_only=True))
    assert resumed.state() == method.state()
    assert resumed.phase(method.started) == 1


@pytest.mark.training
def test_real_steps_with_a_burst(two_steps, written_answers):
    trained = two_steps(
        "annealed-rlvr",
        {"at": 1, "every": 1, "steps": 2, "threshold": 1.0, "answers": 4},
        base="grpo",
        training__max_steps=5,
        training__per_device_train_batch_size=16,
        training__num_generations=8,
    )
    phases = [int(step["annealed-rlvr/phase"]) for step in trained.steps]
    assert phases.count(1) == 2
    assert phases == sorted(phases)
    for number, metrics in enumerate(trained.steps, 1):
        heating = phases[number - 1] == 1
        assert ("annealed-rlvr/heating_loss" in metrics) == heating
        if heating:
            assert metrics["annealed-rlvr/heating_loss"] > 0
            assert {rollout.advantage for rollout in trained.rollouts if rollout.step == number} == {0.0}
