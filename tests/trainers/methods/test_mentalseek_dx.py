"""MentalSeek-Dx: the released schedule and ranks, the task's own accuracy without it, categories and hypotheses of any text."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.trainers.methods.batches import rollout_batch
from trainers.contract.events import Message
from trainers.methods.group.mentalseek_dx import (
    STAGES,
    Config,
    MentalSeekDx,
    category_of,
    combine_graded_rewards,
    list_hypotheses,
    rank_reward,
    stage_of,
)
from trainers.tasks.base import Example


def reward(category, hypothesis, exact, stage, form=1.0):
    return combine_graded_rewards(*(torch.tensor([value]) for value in (category, hypothesis, exact, form)), STAGES[stage]).item()


def test_the_released_rewards():
    """The card's example is of a schedule that the code does not have."""
    assert [rank_reward(list("abcde"), letter) for letter in "abcdex"] == [1, 0.75, 0.5, 0.25, 0, 0]
    assert [reward(1.0, 0.5, 0.0, stage) for stage in range(5)] == pytest.approx([1.0, 1.0, 0.75, 0.5, 0.35])
    assert [reward(1.0, 1.0, 1.0, stage) for stage in range(5)] == pytest.approx([1.0] * 5)
    assert reward(1.0, 1.0, 1.0, 4, form=0.0) == 0.0


def test_the_run_has_five_equal_parts():
    assert [stage_of(step, 10) for step in range(1, 11)] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert [stage_of(step, 2) for step in (1, 2, 3)] == [0, 2, 4]
    assert all(sum(weights) == pytest.approx(1.0) for weights in STAGES)


def test_hypotheses_are_what_the_working_arrives_at_last_first():
    assert list_hypotheses("<think>3+3=6 6+5=11 11-1=10</think><answer>10</answer>") == ["10", "11", "6"]
    assert list_hypotheses("<think>asthma, angina</think><answer>asthma</answer>") == ["angina", "asthma"]
    assert list_hypotheses("<think>1=2 2=2") == ["2"]
    assert list_hypotheses("<answer>10</answer>") == list_hypotheses("") == []


def test_a_short_name_stands_for_what_it_begins():
    assert rank_reward(["Thu", "Sat"], "Thursday") == 1.0
    assert rank_reward(["Th"], "Thursday") == 0.0
    assert rank_reward(["1"], "10") == 0.0


def batch_of(answers, reference="12", working="", **fields):
    example = Example([Message("user", "question")], reference)
    texts = [f"<think>{working}</think><answer>{answer}</answer>" for answer in answers]
    right = [float(answer == reference) for answer in answers]
    return rollout_batch(right, len(answers), texts=texts, examples=[example] * len(answers), **fields)


def test_the_category_pays_at_first_and_the_answer_last():
    method, answers = MentalSeekDx(), ["12", "14", "15", "x"]
    assert method.rewards(batch_of(answers, step=1), torch.zeros(4)).tolist() == [1, 1, 0, 0]
    late = method.rewards(batch_of(answers, working="9+3=12", step=10), torch.zeros(4))
    assert late.tolist() == pytest.approx([1.0, 0.5, 0.3, 0.3])
    logged = method.collect()
    assert (logged["category_right"], logged["exact_right"], logged["confused_inside"]) == (0.5, 0.25, 0.5)


def test_with_the_exact_answer_alone_it_is_the_tasks_accuracy():
    batch = batch_of(["12", "14", "", "12"], step=3)
    assert torch.equal(MentalSeekDx(Config(schedule="exact")).rewards(batch, batch.reward), batch.reward)


def test_a_category_given_by_the_data_holds_for_its_answer():
    example = Example([Message("user", "?")], "asthma", {"category": "lungs"})
    method = MentalSeekDx()
    assert method.category(example, "asthma") == "lungs"
    assert method.category(example, "angina") == "a"


@given(st.text(max_size=30), st.integers(1, 50))
@settings(deadline=None)
def test_any_text_has_a_category_and_hypotheses(text, band):
    assert isinstance(category_of(text, band), str)
    assert 0 <= rank_reward(list_hypotheses(f"<think>{text}"), text) <= 1


@given(st.integers(0, 999), st.integers(1, 50))
def test_numbers_of_a_band_share_their_category(number, band):
    first = number // band * band
    assert {category_of(str(first + place), band) for place in range(band)} == {category_of(str(number), band)}


@given(st.lists(st.sampled_from(["12", "13", "99", "", "<answer>"]), min_size=4, max_size=4), st.permutations(range(4)), st.integers(1, 10))
@settings(deadline=None, max_examples=30)
def test_rewards_follow_their_rows_and_are_bounded(answers, order, step):
    method = MentalSeekDx()
    made = method.rewards(batch_of(answers, step=step), torch.zeros(4))
    turned = method.rewards(batch_of([answers[place] for place in order], step=step), torch.zeros(4))
    assert torch.equal(made[list(order)], turned)
    assert ((made >= 0) & (made <= 1)).all()


@pytest.mark.training
def test_two_real_steps(two_steps):
    trained = two_steps("mentalseek-dx")
    assert [step["mentalseek-dx/category_weight"] for step in trained.steps] == [1.0, 0.5]
    for rollout in trained.rollouts:
        if rollout.rewards["format"] == 0:
            assert rollout.shaped["mentalseek-dx"] == 0
        elif rollout.reward == 1 and rollout.step == 1:
            assert rollout.shaped["mentalseek-dx"] == 1
