"""TagPR: the card's numbers, a reward model that needs to know the user, and the right answer alone without the terms."""

import math
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.methods.batches import rollout_batch
from tests.trainers.worlds.test_personal_style import EXAMPLE, WHOLE
from trainers.methods.context import RunContext
from trainers.methods.worlds.tagpr import Config, TagPR, compare_by_scores, draw_pairs, fit_user_model, measure_pair_accuracy, sum_terms
from trainers.worlds.personal_style import USERS, PersonalStyle

WORLD = PersonalStyle()


def test_the_cards_numbers():
    assert sum_terms(True, 1.0, 0.8, 0.5, 0.5) == pytest.approx(1.8450, abs=1e-4)
    assert sum_terms(True, 2 / 3, 0.8, 0.5, 0.5) == pytest.approx(1.6783, abs=1e-4)
    assert compare_by_scores(torch.tensor(1.2), torch.tensor(0.2)).item() == pytest.approx(0.3133, abs=1e-4)


def make_tastes(count, seed):
    """Pairs of states of which a user likes the one whose first number is larger, or smaller, by their style."""
    generator = torch.Generator().manual_seed(seed)
    one, other = (torch.randn(count, 6, generator=generator) for _ in range(2))
    users = torch.randint(len(USERS), (count,), generator=generator)
    signs = torch.where(users % 2 == 0, 1.0, -1.0)
    keeps = (signs * (one - other)[:, 0] > 0)[:, None]
    return torch.where(keeps, one, other), torch.where(keeps, other, one), users


def test_only_a_model_that_knows_the_user_ranks_what_users_like_differently():
    fitted, held_out = make_tastes(500, 0), make_tastes(200, 1)
    knowing, blind = (fit_user_model(*fitted, knows, 0) for knows in (True, False))
    assert measure_pair_accuracy(knowing, *held_out) > 0.9
    assert measure_pair_accuracy(blind, *held_out) < 0.65
    again = fit_user_model(*fitted, True, 0)
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in knowing.state_dict().items())


def test_without_pairs_every_score_is_0():
    empty = torch.zeros(0, 6)
    model = fit_user_model(empty, empty, torch.zeros(0, dtype=torch.long), True, 0)
    assert model(torch.ones(2, 6), torch.tensor([0, 1])).tolist() == [0, 0]


@given(st.booleans(), st.floats(0, 1), st.floats(-20, 20), st.floats(0, 2), st.floats(0, 2))
def test_a_sum_is_bounded_and_rises_with_each_term(right, tags, score, tag_weight, person_weight):
    made = sum_terms(right, tags, score, tag_weight, person_weight)
    assert right - 1e-6 <= made <= right + tag_weight + person_weight + 1e-6
    assert sum_terms(right, tags, score + 1, tag_weight, person_weight) >= made - 1e-6
    assert sum_terms(right, tags, None, tag_weight, person_weight) <= made + 1e-6
    assert sum_terms(right, tags, score, 0.0, 0.0) == right


def test_pairs_are_ranked_by_the_users_rule():
    run = RunContext(SimpleNamespace(spec=SimpleNamespace(seed=3), task=WORLD))
    pairs = draw_pairs(WORLD, "train", 60, run, "easy")
    assert 15 < len(pairs) < 60
    style = WORLD.rewards["style"].function
    assert all(style(pair.chosen, pair.example) > style(pair.rejected, pair.example) for pair in pairs)
    assert pairs == draw_pairs(WORLD, "train", 60, run, "easy")


def test_the_users_taste_is_paid_from_the_second_stage_on(monkeypatch):
    method = TagPR(Config(first_stage=0.5))
    monkeypatch.setattr(method, "score_taste", lambda batch: [0.8, -0.8])
    texts = [WHOLE, WHOLE.replace("last", "")]

    def pay(step):
        batch = rollout_batch([1.0, 0.0], 2, texts=texts, examples=[EXAMPLE] * 2, step=step)
        return method.rewards(batch, batch.reward).tolist()

    assert pay(5) == pytest.approx([1.5, 1 / 3])
    taste = 1 / (1 + math.exp(-0.8))
    assert pay(6) == pytest.approx([1.5 + 0.5 * taste, 1 / 3 + 0.5 * (1 - taste)])
    method.config = Config(tags=0.0, person=0.0, first_stage=0.0)
    assert pay(6) == [1, 0]


@pytest.mark.training
def test_two_real_steps(two_steps, written_episodes):
    settings = {"pairs": 40, "first_stage": 0.5}
    trained = two_steps("tagpr", settings, base="grpo", task={"name": "personal_style"}, **written_episodes)
    for rollout in trained.rollouts:
        least = rollout.rewards["correct"] + 0.5 * rollout.rewards["tags"]
        assert least - 1e-6 <= rollout.shaped["tagpr"] <= least + 0.5 * (rollout.step == 2) + 1e-6
    assert {"tagpr/tags", "tagpr/pair_accuracy"} <= set(trained.steps[0])
    assert "tagpr/taste" in trained.steps[1]
    assert "tagpr/taste" not in trained.steps[0]
