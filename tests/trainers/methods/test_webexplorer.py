"""WebExplorer: the card's numbers, questions that only get harder, plain ones without rounds, and the reward."""

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.trainers.methods.batches import rollout_batch
from trainers.methods.worlds.webexplorer import WebExplorer, accept_rounds, evolve_questions, retell_episode
from trainers.worlds.entity_search import EntitySearch, read_clues
from trainers.worlds.question_building import find_matches

WORLD = EntitySearch()
PLAIN = WORLD.examples("train", 6, 0, "easy")


def count_blurred(example):
    return sum(clue.attribute != "" for clue in read_clues(example))


def test_the_worked_example():
    assert accept_rounds([0.9, 0.6, 0.7, 0.3]) == [True, False, True]


@settings(max_examples=20)
@given(st.integers(0, 4), st.floats(0, 1), st.integers(0, 99))
def test_a_question_gets_harder_or_stays_and_keeps_its_answer(rounds, least, seed):
    rng, solver = random.Random(seed), random.Random(seed + 1)
    made, before, after = evolve_questions(WORLD, PLAIN, lambda examples: [solver.random() for _ in examples], rounds, least, rng)
    for old, new, first, last in zip(PLAIN, made, before, after, strict=True):
        assert last <= first
        assert (last < first) == (new != old)
        assert new.reference == old.reference
        assert find_matches(new.data["entities"], read_clues(new)) == [old.reference]
        if first < least or not rounds:
            assert new == old


def test_a_solver_that_names_alone_help_has_its_questions_blurred():
    made, before, after = evolve_questions(
        WORLD, PLAIN, lambda examples: [1.0 - count_blurred(example) for example in examples], 5, 0.25, random.Random(0)
    )
    assert before == [1.0] * len(PLAIN)
    assert [1 - count_blurred(example) for example in made] == after
    assert sum(after) < len(PLAIN) / 2
    never, _, _ = evolve_questions(WORLD, PLAIN, lambda examples: [1.0 for _ in examples], 5, 0.25, random.Random(0))
    assert never == PLAIN


def test_form_and_answer_pay():
    batch = rollout_batch([1, 1, 0, 0], 4, reward_names=["correct", "format"])
    batch.rewards = torch.tensor([[1.0, 1], [1, 0], [0, 1], [0, 0]])
    assert WebExplorer().rewards(batch, batch.reward).tolist() == pytest.approx([1.2, 1.0, 0.2, 0.0])


def test_a_sampled_episode_is_told_again_turn_by_turn():
    for example in PLAIN:
        text = WORLD.gold(example)
        said = retell_episode(WORLD, example, text)
        assert "".join(one.text for one in said) == text
        assert all(one.text.startswith("<information>") for one in said if not one.seat)


@pytest.mark.training
def test_two_real_steps_on_evolved_questions(two_steps, written_episodes):
    trained = two_steps(
        "webexplorer", {"rounds": 1, "samples": 2, "least": 0.0}, base="grpo", task={"name": "entity_search", "difficulty": "medium"},
        **written_episodes,
    )  # fmt: skip
    first = trained.steps[0]
    assert first["webexplorer/data_pass_after"] <= first["webexplorer/data_pass_before"]
    assert 0 < first["webexplorer/data_pass_before"] < 1
    assert {0, 1.2} <= {round(rollout.shaped["webexplorer"], 6) for rollout in trained.rollouts}
    for rollout in trained.rollouts:
        assert rollout.shaped["webexplorer"] == pytest.approx(rollout.rewards["correct"] + 0.2 * rollout.rewards["format"])
