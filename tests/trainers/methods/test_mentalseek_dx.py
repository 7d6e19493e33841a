"""MentalSeek-Dx: the card's numbers, the task's own accuracy without the coarse part, prompts from easy to hard."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.trainers.methods.batches import rollout_batch
from trainers.events import Message
from trainers.methods.group.mentalseek_dx import Config, MentalSeekDx, category_of, crowding, easy_to_hard, graded, progress_of
from trainers.tasks.base import Example


def reward(category, exact, form, progress):
    return graded(torch.tensor([category]), torch.tensor([exact]), torch.tensor([form]), progress, 1.0, 0.1).item()


def test_the_worked_examples():
    assert reward(1.0, 0.0, 1.0, 0.25) == pytest.approx(0.85)
    assert reward(1.0, 0.0, 1.0, 0.75) == pytest.approx(0.35)
    assert [reward(1.0, 1.0, 1.0, progress) for progress in (0.0, 0.3, 1.0)] == pytest.approx([1.1] * 3)


def batch_of(answers, reference="12", **fields):
    example = Example([Message("user", "question")], reference)
    texts = [f"<think></think><answer>{answer}</answer>" for answer in answers]
    right = [float(answer == reference) for answer in answers]
    return rollout_batch(right, len(answers), texts=texts, examples=[example] * len(answers), **fields)


def test_the_category_pays_at_first_and_nothing_at_the_end():
    method = MentalSeekDx(Config(form_weight=0.0))
    answers = ["12", "14", "15", "x"]
    assert method.rewards(batch_of(answers, step=1), torch.zeros(4)).tolist() == [1, 1, 0, 0]
    assert method.rewards(batch_of(answers, step=10), torch.zeros(4)).tolist() == [1, 0, 0, 0]
    logged = method.collect()
    assert (logged["category_right"], logged["exact_right"], logged["confused_inside"]) == (0.5, 0.25, 0.5)


def test_without_the_coarse_part_it_is_the_tasks_accuracy():
    batch = batch_of(["12", "14", "", "12"], step=3)
    assert torch.equal(MentalSeekDx(Config(coarse=0.0, form_weight=0.0)).rewards(batch, batch.reward), batch.reward)


def test_a_category_given_by_the_data_holds_for_its_answer():
    example = Example([Message("user", "?")], "asthma", {"category": "lungs"})
    method = MentalSeekDx()
    assert method.category(example, "asthma") == "lungs"
    assert method.category(example, "angina") == "a"


@given(st.text(max_size=12), st.integers(1, 50))
@settings(deadline=None)
def test_any_text_has_a_category(answer, band):
    assert isinstance(category_of(answer, band), str)


@given(st.integers(0, 999), st.integers(1, 50))
def test_numbers_of_a_band_share_their_category(number, band):
    first = number // band * band
    assert {category_of(str(first + place), band) for place in range(band)} == {category_of(str(number), band)}


def test_an_answer_is_the_harder_the_more_share_its_category():
    answers = ["10", "11", "12", "12", "40"]
    assert crowding(answers, [category_of(answer, 5) for answer in answers]) == [2, 2, 2, 2, 0]


def test_prompts_are_drawn_from_easy_to_hard():
    difficulties = torch.tensor([0.0, 2.0, 4.0])
    assert [easy_to_hard(difficulties, progress, 0.5).argmax().item() for progress in (0.0, 0.5, 1.0)] == [0, 1, 2]
    assert easy_to_hard(difficulties, 0.3, 1000.0).tolist() == pytest.approx([1.0] * 3, abs=1e-3)  # off
    assert torch.isfinite(easy_to_hard(torch.zeros(3), 1.0, 0.5)).all()  # every answer alone in its category


@given(st.lists(st.sampled_from(["12", "13", "99", "", "<answer>"]), min_size=4, max_size=4), st.permutations(range(4)))
@settings(deadline=None, max_examples=30)
def test_rewards_follow_their_rows_and_are_bounded(answers, order):
    method = MentalSeekDx()
    made = method.rewards(batch_of(answers, step=4), torch.zeros(4))
    turned = method.rewards(batch_of([answers[place] for place in order], step=4), torch.zeros(4))
    assert torch.equal(made[list(order)], turned)
    assert ((made >= 0) & (made <= 1.1 + 1e-6)).all()


def test_progress_goes_from_0_to_1():
    assert [progress_of(step, 5) for step in (1, 3, 5, 6)] == [0.0, 0.5, 1.0, 1.0]
    assert progress_of(1, 1) == 1.0


@pytest.mark.training
def test_two_real_steps(two_steps):
    trained = two_steps("mentalseek-dx")
    assert [step["mentalseek-dx/category_weight"] for step in trained.steps] == [1.0, 0.0]
    assert trained.steps[0]["mentalseek-dx/difficulty"] < trained.steps[1]["mentalseek-dx/difficulty"]
    assert {round(r.shaped["mentalseek-dx"], 4) for r in trained.rollouts if r.step == 2} <= {0.0, 0.1, 1.1}
