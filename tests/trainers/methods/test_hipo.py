"""HiPO: the card's numbers, GRPO where all think and gamma = 1, and which tokens choose."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.methods.batches import rollout_batch
from trainers.maths.advantages import z_score
from trainers.methods.group.hipo import Config, HiPO, answer_advantages, choice_advantages, has_thinking

REWARDS = torch.tensor([1.2, 1.2, 0.2, 1.2, 1.2, 0.2, 1.2, 1.2])
THINKS = torch.tensor([True] * 4 + [False] * 4)
GROUP = st.lists(st.tuples(st.booleans(), st.sampled_from([0.0, 0.2, 1.0, 1.2])), min_size=6, max_size=6)


def test_the_worked_example():
    choice = choice_advantages(REWARDS, THINKS, 8, 0.01, 0.3)
    assert choice.tolist() == pytest.approx([0.1620, 0.1620, -0.4861, 0.1620, 0.1825, -0.4655, 0.1825, 0.1825], abs=2e-4)
    assert answer_advantages(REWARDS, THINKS, 8).tolist() == pytest.approx([0.5, 0.5, -1.5, 0.5, 0.5, -1.5, 0.5, 0.5], abs=1e-4)


def test_the_correction_helps_not_thinking_in_a_near_tie_only():
    tie = choice_advantages(REWARDS, THINKS, 8, 0.01, 0.0)
    assert tie[0].item() == pytest.approx(0, abs=1e-5)
    assert tie[4].item() == pytest.approx(0.0095 / 0.4629, rel=1e-3)
    ahead = torch.tensor([1.2] * 4 + [0.2] * 4)
    assert choice_advantages(ahead, THINKS, 8, 0.01, 0.0).equal(choice_advantages(ahead, THINKS, 8, 0.0, 0.0))
    behind = ahead.flip(0)
    assert choice_advantages(behind, THINKS, 8, 0.01, 0.0).equal(choice_advantages(behind, THINKS, 8, 0.0, 0.0))


@given(st.lists(st.sampled_from([0.0, 0.2, 1.2]), min_size=8, max_size=8))
def test_where_everybody_thinks_it_is_grpo(rewards):
    rewards, thinks = torch.tensor(rewards), torch.ones(8, dtype=torch.bool)
    assert torch.allclose(choice_advantages(rewards, thinks, 4, 0.01, 1.0), z_score(rewards, 4), atol=1e-2)
    assert torch.allclose(answer_advantages(rewards, thinks, 4), z_score(rewards, 4), atol=1e-2)


@given(GROUP, st.permutations(range(6)))
def test_both_follow_their_members_and_equal_rewards_teach_nothing(rows, order):
    thinks, rewards = torch.tensor([one for one, _ in rows]), torch.tensor([reward for _, reward in rows])
    order = list(order)
    for advantage in (lambda r, t: choice_advantages(r, t, 6, 0.01, 0.3), lambda r, t: answer_advantages(r, t, 6)):
        made = advantage(rewards, thinks)
        assert torch.isfinite(made).all()
        assert torch.allclose(advantage(rewards[order], thinks[order]), made[order], atol=1e-4)
        assert advantage(torch.full((6,), 0.7), thinks).abs().sum() == 0


@given(st.permutations(range(8)))
def test_a_tie_is_a_tie_in_any_order(order):
    order = list(order)
    made = choice_advantages(REWARDS[order], THINKS[order], 8, 0.01, 0.3)
    assert torch.allclose(made, choice_advantages(REWARDS, THINKS, 8, 0.01, 0.3)[order], atol=1e-4)


def test_a_mode_of_one_has_no_answer_advantage():
    thinks = torch.tensor([True, False, False, False])
    assert answer_advantages(torch.tensor([1.0, 0, 0, 1]), thinks, 4)[0] == 0
    assert torch.isfinite(choice_advantages(torch.tensor([1.0]), torch.tensor([True]), 1, 0.01, 0.3)).all()


def test_the_tokens_up_to_the_first_one_after_think_choose():
    texts = ["<think>1+1=2</think>", "<think></think><a>", "<answer>2", "<think>"]
    assert [has_thinking(text) for text in texts] == [True, False, False, False]
    ends = [[7, 8, 12, 20], [7, 15, 18, 18], [8, 9, 9, 9], [7, 7, 7, 7]]
    batch = rollout_batch([0.0] * 4, 4, texts=texts, mask=torch.ones(4, 4), ends=ends)
    assert HiPO().choosing(batch).int().tolist() == [[1, 1, 0, 0], [1, 1, 0, 0], [0] * 4, [0] * 4]


def test_masked_tokens_have_no_advantage():
    texts = ["<think>1+1=2</think>", "<think></think><a>"]
    mask = torch.tensor([[1.0, 1, 0, 0], [0, 0, 0, 0]])
    batch = rollout_batch([1.0, 0.0], 2, texts=texts, mask=mask, ends=[[7, 8, 12, 20], [7, 15, 18, 18]])
    made = HiPO().advantages(batch, torch.zeros(2))
    assert (made[mask == 0] == 0).all()
    assert made[0, 0] > 0 == made[0, 2]


@pytest.mark.training
def test_two_real_steps(two_steps):
    trained = two_steps("hipo", {"gamma": 1.0}, training__num_generations=8)
    for step in (1, 2):
        rows = [r for r in trained.rollouts if r.step == step]
        rewards, thinks = torch.tensor([r.shaped["hipo"] for r in rows]), torch.tensor([has_thinking(r.completion) for r in rows])
        last = answer_advantages(rewards, thinks, 8)
        for row, expected in zip(rows, last.tolist(), strict=True):
            tokens = torch.frombuffer(bytearray(row.token_advantages), dtype=torch.float16)
            assert tokens[-1].item() == pytest.approx(expected, abs=2e-3)
        assert trained.steps[step - 1]["hipo/think_rate"] == pytest.approx(thinks.float().mean().item())
    assert Config().omega == 0.01
