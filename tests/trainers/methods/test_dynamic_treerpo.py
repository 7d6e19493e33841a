"""Dynamic-TreeRPO on text: the card's numbers, trees that share their beginnings, clip and pull with their gradients."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.methods.batches import loss_batch, rollout_batch
from trainers.contract.events import Message
from trainers.maths.advantages import z_score
from trainers.maths.credit import average_nodes
from trainers.methods.group.dynamic_treerpo import (
    Config,
    DynamicTreeRPO,
    clip_losses,
    compute_clip_range,
    count_splits,
    heat_depth,
    weigh_best_leaves,
)

ALONE = {"depth": 0, "pull": 0.0, "low": 0.2, "high": 0.2}


def test_the_worked_examples():
    assert [heat_depth(0.8, level, 4, 0.5) for level in range(5)] == pytest.approx([0.8, 0.9, 1.0, 1.1, 1.2])
    assert heat_depth(0.8, 0, 0, 0.5) == 0.8
    leaves = z_score(torch.tensor([1.0, 0, 1, 1]), 4, 0.0, ddof=0)
    assert leaves.tolist() == pytest.approx([0.577, -1.732, 0.577, 0.577], abs=1e-3)
    nodes = average_nodes(leaves, torch.tensor([[0, 1], [0, 2], [3, 4], [3, 5]]))
    assert nodes[:, 0].tolist() == pytest.approx([-0.577, -0.577, 0.577, 0.577], abs=1e-3)
    assert nodes[:, 1].tolist() == pytest.approx(leaves.tolist())
    assert weigh_best_leaves(torch.tensor([1.0, 0, 1, 1, 0.7, 0.7, 0.7, 0.7]), 4).tolist() == [0.25, 0, 0, 0, 0, 0, 0, 0]
    assert compute_clip_range(torch.tensor([0.0, 50, -50]), 0.1, 0.3, 1.0).tolist() == pytest.approx([0.2, 0.3, 0.1])


@given(st.integers(0, 8), st.integers(0, 20), st.integers(2, 4))
def test_splits_never_make_more_than_there_is_room_for(branches, room, arity):
    made = count_splits(branches, room, arity)
    assert len(made) == branches
    assert all(1 <= count <= arity for count in made)
    assert sum(made) - branches == min(room, branches * (arity - 1))


@given(st.lists(st.floats(-3, 3), min_size=2, max_size=6), st.floats(0.05, 0.4), st.floats(0, 0.5), st.floats(0, 5))
def test_the_clip_range_widens_with_the_advantage_between_its_bounds(advantages, low, more, slope):
    values = torch.tensor(sorted(advantages))
    made = compute_clip_range(values, low, low + more, slope)
    assert ((made >= low - 1e-6) & (made <= low + more + 1e-6)).all()
    assert (made.diff() >= -1e-6).all()


def test_without_depth_it_is_what_is_sampled_today(make_session):
    session = make_session()
    torch.manual_seed(0)
    whole = session.complete()
    torch.manual_seed(0)
    method = DynamicTreeRPO(Config(**ALONE))
    assert method.rollout(session) == whole
    assert method.collect()["saved"] == 0


@pytest.mark.parametrize(("depth", "arity"), [(1, 2), (2, 2), (1, 3), (2, 4)])
def test_a_group_is_a_tree_of_as_many_leaves_as_it_has_members(make_session, depth, arity):
    session = make_session()
    torch.manual_seed(1)
    method = DynamicTreeRPO(Config(depth=depth, arity=arity, segment=1))
    made = method.rollout(session)
    assert [one.row.episode.group for one in made] == [0] * 4 + [1] * 4
    assert [one.row.episode.example for one in made] == session.examples
    assert len({id(one.row.leaf) for one in made}) == len(made)
    assert all(one.row.leaf.finish and one.ids for one in made)
    for one in made:
        for other in made:
            if one is not other and one.row.episode is other.row.episode:
                shared = sum(mine == theirs for mine, theirs in zip(one.row.nodes, other.row.nodes, strict=False))
                assert one.ids[:shared] == other.ids[:shared]
                assert shared >= 1  # at least the segment before the first split
        written = [turn.role == "assistant" for turn in one.turns for _ in range(turn.start, turn.end)]
        assert one.mask == [int(was) for was in written]
    logged = method.collect()
    assert 0 < logged["saved"] < 1
    assert logged["tokens"] == session.run.written_tokens  # nothing that was sampled is thrown away


def test_splits_are_hotter_the_deeper_they_are(make_session, monkeypatch):
    session = make_session()
    heats = []
    play = type(session.engine).play
    monkeypatch.setattr(type(session.engine), "play", lambda self, at, **how: heats.append(how["temperature"]) or play(self, at, **how))
    DynamicTreeRPO(Config(depth=2, segment=1, rise=1.0)).rollout(session)
    assert heats[:3] == [1.0, 1.5, 2.0]


def test_a_leaf_is_shown_with_the_prompt_that_its_tree_began_with(make_session):
    session = make_session()
    session.prompts = [[Message("user", f"Eva {row % 4}")] for row in range(8)]
    made = DynamicTreeRPO(Config(depth=1, segment=1)).rollout(session)
    assert session.run.prompt_ids(session.prompts) == [one.prompt_ids for one in made]
    assert [prompt[0].content for prompt in session.prompts[:2]] == ["Eva 0", "Eva 0"]


def test_where_branches_end_too_early_further_rollouts_fill_the_group(make_session):
    session = make_session(max_tokens=6)
    torch.manual_seed(2)
    made = DynamicTreeRPO(Config(depth=2, segment=6)).rollout(session)
    assert len(made) == len(session.examples)
    assert len({id(one.row.episode) for one in made}) > 2


def test_the_first_pass_is_the_policy_gradient_and_later_ones_are_clipped_by_their_own_range():
    logprobs = torch.zeros(2, 3, dtype=torch.double, requires_grad=True)
    advantages = torch.tensor([2.0, -2.0], dtype=torch.double)
    method = DynamicTreeRPO(Config(pull=0.0))
    method.policy_loss(loss_batch(logprobs, advantages)).backward()
    assert torch.allclose(logprobs.grad, -advantages[:, None].expand(2, 3) / 6)
    old = torch.zeros(2, 3, dtype=torch.double)
    moved = torch.full((2, 3), 0.25, dtype=torch.double, requires_grad=True)  # a ratio of 1.284
    ranges = compute_clip_range(advantages[:, None], 0.1, 0.3, 1.0)
    assert (1 + ranges[:, 0]).tolist() == pytest.approx([1.276, 1.124], abs=1e-3)
    method.policy_loss(loss_batch(moved, advantages, old_logprobs=old)).backward()
    assert moved.grad[0].tolist() == [0, 0, 0]  # better than its range allows
    assert (moved.grad[1] > 0).all()


def test_the_clipped_loss_has_the_gradient_of_finite_differences():
    torch.manual_seed(0)
    ratios = (0.3 * torch.randn(3, 4, dtype=torch.double)).requires_grad_()
    advantages = torch.randn(3, 1, dtype=torch.double)
    epsilon = compute_clip_range(advantages, 0.1, 0.3, 1.0)
    assert torch.autograd.gradcheck(lambda x: clip_losses(x, advantages, epsilon), ratios)


def test_the_pull_is_cross_entropy_on_the_best_leaf_however_the_batch_is_cut():
    rollout = rollout_batch([0.0, 1.0, 0.5, 0.5], 2, mask=torch.tensor([[1.0, 1, 1], [1, 1, 0], [1, 1, 1], [1, 1, 1]]))
    logprobs = -torch.arange(12, dtype=torch.float32).view(4, 3)
    method = DynamicTreeRPO(Config(pull=0.4))
    whole = method.loss(loss_batch(logprobs, torch.zeros(4), rollout=rollout, mask=rollout.mask))
    assert whole.item() == pytest.approx(0.4 * 0.5 * 3.5 / 2)  # one of two groups, tokens of 3 and 4 nats
    parts = []
    for rows in ([0, 2], [1, 3]):
        part = loss_batch(logprobs[rows], torch.zeros(2), rollout=rollout, mask=rollout.mask[rows], rows=torch.tensor(rows))
        parts.append(method.loss(part).item())
    assert sum(parts) / 2 == pytest.approx(whole.item())
    assert DynamicTreeRPO(Config(pull=0.0)).loss(loss_batch(logprobs, torch.zeros(4), rollout=rollout)) is None


@pytest.mark.training
def test_two_real_steps(two_steps):
    trained = two_steps(
        "dynamic-treerpo",
        {"segment": 2},
        base="grpo",
        policy={"kind": "tiny", "cold_start": False},
        training__max_completion_length=12,
        training__num_iterations=2,
        training__max_steps=2,
    )
    assert trained.steps[0]["dynamic-treerpo/saved"] > 0
    for rollout in trained.rollouts:
        assert rollout.nodes
