"""RMT: the card's budgets, length rewards and tiers; plain prediction without its parts; the loss of what was not chosen."""

import random
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.trainers.methods.batches import loss_batch, rollout_batch
from trainers.contract.events import Message
from trainers.contract.problems import SpecError
from trainers.methods.prompts.rmt import (
    KEY,
    RMT,
    Config,
    compute_thinking_budget,
    kept_loss,
    length_reward,
    mix_prediction_rewards,
    tier_odds,
    tiers_of,
)
from trainers.tasks import registry
from trainers.tasks.base import Example


def test_the_worked_examples():
    assert [compute_thinking_budget(progress, 800, 1, 0.2) for progress in (0.0, 0.5, 1.0)] == [800, 357, 160]
    lengths = torch.tensor([200.0, 400, 500, 900])
    assert length_reward(lengths, torch.full((4,), 400.0)).tolist() == pytest.approx([0.5, 1, 0.75, 0])
    assert tier_odds(0.5, 0.3, 0.7) == pytest.approx([0.35, 0.3, 0.35])
    assert mix_prediction_rewards(torch.ones(1), lengths[2:3], torch.full((1,), 400.0), 0.2).item() == pytest.approx(0.95)


def test_tiers_stay_before_and_after_they_move():
    assert tier_odds(0.1, 0.3, 0.7) == pytest.approx([0.6, 0.3, 0.1])
    assert tier_odds(0.9, 0.3, 0.7) == pytest.approx([0.1, 0.3, 0.6])
    assert [tier_odds(progress, 0.5, 0.5)[0] for progress in (0.4, 0.5)] == pytest.approx([0.6, 0.1])


@given(st.floats(0, 1), st.integers(1, 1000), st.integers(1, 50), st.floats(0.01, 1))
def test_the_budget_falls_and_never_below_its_least(progress, first, last, decay):
    assert compute_thinking_budget(progress, first, last, decay) >= last
    assert compute_thinking_budget(progress, first, last, decay) >= compute_thinking_budget(1.0, first, last, decay)


@given(st.lists(st.floats(0, 5, width=32), min_size=1, max_size=30))
@settings(deadline=None, max_examples=30)
def test_tiers_follow_the_entropies(values):
    entropies = torch.tensor(values)
    tiers = tiers_of(entropies)
    assert set(tiers.tolist()) <= {0, 1, 2}
    assert (tiers[entropies.argsort()].diff() >= 0).all()


@given(st.lists(st.integers(0, 60), min_size=4, max_size=4), st.integers(1, 40), st.permutations(range(4)))
@settings(deadline=None, max_examples=30)
def test_the_length_reward_is_bounded_and_follows_its_rows(lengths, room, order):
    values = torch.tensor(lengths, dtype=torch.float32)
    made = length_reward(values, torch.full((4,), float(room)))
    assert ((made >= 0) & (made <= 1)).all()
    assert torch.equal(length_reward(values[list(order)], torch.full((4,), float(room))), made[list(order)])


def batch_of(texts):
    examples = [Example([Message("user", "?")], "7", {KEY: [0, place % 3]}) for place in range(len(texts))]
    width = max(len(text) for text in texts)
    mask = torch.tensor([[1.0] * len(text) + [0.0] * (width - len(text)) for text in texts])
    ends = [[min(len(text), place + 1) for place in range(width)] for text in texts]
    return rollout_batch([0.0] * len(texts), len(texts), texts=texts, examples=examples, mask=mask, ends=ends, total_steps=10)


def test_without_a_weight_on_length_only_the_prediction_counts():
    texts = ["<think>abc</think><answer>7</answer>", "<answer>8</answer>", "<think>", ""]
    assert RMT(Config(length_weight=0.0)).rewards(batch_of(texts), torch.zeros(4)).tolist() == [1, 0, 0, 0]


def test_thoughts_are_measured_in_the_policys_tokens():
    method = RMT(Config(first_budget=6, length_weight=1.0))
    made = method.rewards(batch_of(["<think>abc</think><answer>7</answer>", "<think>abcdefghi", "x"]), torch.zeros(3))
    assert made.tolist() == pytest.approx([0.5, 0.5, 0.0])  # one token a character here; 9 of 6 is half way down
    assert method.collect()["predicted_easy"] == 1.0


def test_the_loss_leaves_the_chosen_positions_out():
    logprobs = torch.tensor([[-1.0, -2.0, -3.0], [-4.0, 0.0, 0.0]], requires_grad=True)
    mask = torch.tensor([[1.0, 1, 1], [1, 0, 0]])
    loss = kept_loss(logprobs, mask, [[1], []])
    loss.backward()
    assert loss.item() == pytest.approx(8 / 3)
    assert logprobs.grad.tolist() == [pytest.approx([-1 / 3, 0, -1 / 3]), pytest.approx([-1 / 3, 0, 0])]
    assert kept_loss(torch.zeros(1, 2), torch.ones(1, 2), [[0, 1]]).item() == 0.0


def method_with_a_text(weight):
    method = RMT(Config(next_token=weight))
    method.texts = [([0], [1, 2, 3], [1])]
    known = torch.tensor([[-1.0, -2.0, -3.0]], requires_grad=True)
    method.run = SimpleNamespace(logprobs=lambda prompts, ids: (known * 1.0, torch.ones(1, 3)))
    batch = loss_batch(torch.zeros(2, 3), torch.zeros(2), rollout=batch_of(["abc", "abc"]))
    return method, batch


def test_without_the_next_token_loss_it_only_measures_it():
    method, batch = method_with_a_text(0.0)
    assert method.loss(batch) is None
    assert method.collect()["next_token_loss"] == 2.0
    method, batch = method_with_a_text(0.5)
    assert method.loss(batch).item() == 1.0


def test_items_are_one_of_each_tier_and_text():
    class Words:
        pad_token_id = 0

        def decode(self, ids):
            return "".join("abcdefgh"[id_] for id_ in ids)

    run = SimpleNamespace(
        task=SimpleNamespace(gold=lambda example: "abcdef"),
        completion_ids=lambda text, end: [0, 1, 2, 3, 4, 5],
        prompt_ids=lambda prompts: [[0]],
        rng=lambda *key: random.Random(0),
        tokenizer=Words(),
    )
    method = RMT()
    method.prepare(run)
    method.entropies = lambda text: torch.arange(6.0)
    items = method.data([Example([Message("user", "question")], "f")] * 2, run)
    assert sorted(item.data[KEY] for item in items) == [[text, tier] for text in (0, 1) for tier in (0, 1, 2)]
    for item in items:
        begun = item.prompt[0].content.split("\n")[1]
        assert "abcdef"[len(begun)] == item.reference
    assert sorted(len(chosen) for _, _, chosen in method.texts) == [3, 3]


def test_examples_that_do_not_say_how_they_are_solved_are_refused():
    run = SimpleNamespace(task=registry.get_task("mini_gsm"), completion_ids=None)
    with pytest.raises(SpecError, match="0 of 3 examples say how they are solved"):
        RMT().data([Example([Message("user", "?")], "1")] * 3, run)


@pytest.mark.training
def test_two_real_steps(two_steps):
    trained = two_steps("rmt", {"first_budget": 10})
    first, second = trained.steps
    assert (first["rmt/budget"], second["rmt/budget"]) == (10, 4)  # 10 x 0.2 ** 0.5
    assert first["rmt/loss"] == pytest.approx(0.1 * first["rmt/next_token_loss"], rel=1e-4)
    assert {r.prompt[-1].content.rsplit("\n", 1)[1] for r in trained.rollouts if r.step == 1} == {"Next? 10 tokens"}
