"""EAPO: the card's numbers, an expert that fades, and the same reward without one."""

import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.conftest import make_spec
from tests.trainers.methods.batches import rollout_batch
from tests.trainers.methods.conftest import write_episode_of
from trainers.catalog.entries import entries_for
from trainers.contract import stacking
from trainers.methods.worlds.eapo_expert import EAPOExpert, compute_acceptance, compute_turn_budget, compute_word_f1, grade_answer

WORLD = {"name": "sums", "difficulty": "easy", "options": {"consult": 0.5}}


def test_the_worked_examples():
    assert (compute_acceptance(1, 1), compute_acceptance(4, 1)) == (1.0, 0.25)
    assert compute_word_f1("red cat", "red dog") == 0.5
    assert grade_answer("red cat", "red dog", True) == 0.5
    assert (grade_answer("9", "8", True), grade_answer("9", "8", False), grade_answer(None, "8", False)) == (0.1, 0.0, 0.0)


@given(st.integers(1, 1000), st.floats(0, 1e4))
def test_the_expert_never_comes_back(step, fading):
    now, later = compute_acceptance(step, fading), compute_acceptance(step + 1, fading)
    assert 0 <= later <= now <= 1
    assert (now == 0) == (fading == 0)


@given(st.integers(1, 200), st.integers(2, 6))
def test_the_turns_shrink_to_what_the_policy_needs_alone(total, first):
    turns = [compute_turn_budget(step, total, first, 2) for step in range(1, total + 1)]
    assert turns == sorted(turns, reverse=True)
    assert turns[0] == first
    assert total == 1 or turns[-1] == 2


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=4), st.lists(st.sampled_from("abc"), min_size=1, max_size=4))
def test_f1_is_symmetric_and_1_for_the_same_words_alone(said, wanted):
    one, other = " ".join(said), " ".join(wanted)
    assert compute_word_f1(one, other) == compute_word_f1(other, one) <= 1
    assert (compute_word_f1(one, other) == 1) == (sorted(said) == sorted(wanted))


def test_a_right_answer_earns_1_however_it_was_found_and_the_form_is_the_worlds():
    texts = ["<answer>answer</answer>", "<consult>1+1</consult><information>2</information><answer>answer</answer>", "<answer>x</answer>", "x"]
    scores = torch.tensor([[1.0, 1], [1, 1], [0, 1], [0, 0]])
    batch = rollout_batch([1, 1, 0, 0], 4, texts=texts, reward_names=["correct", "format"])
    batch.rewards = scores
    method = EAPOExpert()
    assert method.rewards(batch, torch.zeros(4)).tolist() == pytest.approx([1, 1, 0.1, 0])
    method.observe(batch)
    assert method.collect() == {"consulted": 0.25, "right_with": 1.0, "right_without": pytest.approx(1 / 3)}


@pytest.mark.parametrize(("task", "field"), [({"name": "sums"}, "task.options.consult"), ({"name": "mini_gsm"}, "task.name")])
def test_it_needs_the_world_with_an_expert(tmp_path, task, field):
    spec = make_spec(tmp_path, task=task, methods=[{"name": "eapo-expert"}])
    assert field in [problem.field for problem in stacking.check_stack(spec, entries_for(spec)).problems]


@pytest.fixture
def write_episode():
    """Half of the members consult the expert."""
    return lambda world, example, member: (
        world.tell_consultation(example, random.Random(member)) if member % 2 else write_episode_of(world, example, member)
    )


@pytest.mark.training
def test_two_real_steps(two_steps, written_episodes):
    trained = two_steps("eapo-expert", {"fading": 1.0}, base="dapo", task=WORLD, **written_episodes)
    first, second = trained.steps
    assert (first["eapo-expert/acceptance"], second["eapo-expert/acceptance"]) == (1.0, 0.5)
    assert (first["eapo-expert/turns"], second["eapo-expert/turns"]) == (3, 2)
    assert not any("unavailable" in rollout.completion for rollout in trained.rollouts if rollout.step == 1)
    assert {0, 1} <= {rollout.shaped["eapo-expert"] for rollout in trained.rollouts}
    assert any("<consult>" in rollout.completion for rollout in trained.rollouts)
    for rollout in trained.rollouts:
        assert rollout.shaped["eapo-expert"] == pytest.approx(rollout.rewards["correct"] or 0.1 * rollout.rewards["format"])
