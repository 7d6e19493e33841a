"""Read the world: which tokens are the world's, the mean over a split batch, its gradient, and no weight at all."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.methods.batches import loss_batch, rollout_batch
from trainers.methods.worlds.read_the_world import Config, ReadTheWorld, find_heard_tokens, has_written_result, mean_of_batch

PIECES = ["<search>", "Eva", "</search>", "<information>", "Leo", " is", "</information>", "<answer>", "x", "</answer>"]
OWN = [1, 1, 1, 0, 0, 0, 0, 1, 1, 1]


def make_batch(rows, masks, **fields):
    """Texts of given pieces, a token each."""
    width = max(map(len, rows))
    ends = []
    for row in rows:
        lengths, total = [], 0
        for piece in row:
            total += len(piece)
            lengths.append(total)
        ends.append(lengths)
    mask = torch.tensor([[*mask, *[0] * (width - len(mask))] for mask in masks], dtype=torch.float32)
    return rollout_batch([0.0] * len(rows), len(rows), mask=mask, texts=["".join(row) for row in rows], ends=ends, **fields)


def test_the_words_of_a_result_are_heard_without_its_tags_and_padding():
    batch = make_batch([PIECES, PIECES[-3:]], [OWN, OWN[-3:]])
    assert find_heard_tokens(batch).tolist() == [[False] * 4 + [True] * 2 + [False] * 4, [False] * 10]


def test_a_result_that_the_policy_wrote_is_not_heard_and_is_told():
    batch = make_batch([PIECES, PIECES], [OWN, [1] * 10])
    assert find_heard_tokens(batch)[1].sum() == 0
    assert [has_written_result(batch, row) for row in range(2)] == [False, True]
    method = ReadTheWorld()
    method.observe(batch)
    assert method.collect() == {"heard": 1.0, "written": 0.5}


def test_the_worked_example():
    logprobs = torch.tensor([[-1.0, -2.0, -4.0]])
    heard = torch.tensor([[False, True, True]])
    assert mean_of_batch(-logprobs, heard, 2, 1.0) == 3.0
    assert mean_of_batch(-logprobs, heard & False, 0, 1.0) == 0.0


def run_loss(method, batch, logprobs, rows):
    return method.loss(loss_batch(logprobs[rows], torch.zeros(len(rows)), rollout=batch, rows=torch.tensor(rows), mask=batch.mask[rows]))


@given(st.lists(st.booleans(), min_size=4, max_size=4), st.integers(0, 1000))
def test_a_split_batch_has_the_same_loss_and_gradient(cut, seed):
    rows = [PIECES[: 10 - 3 * short] for short in cut]
    batch = make_batch(rows, [OWN[: len(row)] for row in rows])
    made = []
    for parts in ([[0, 1, 2, 3]], [[2, 0], [3, 1]], [[0], [1], [2], [3]]):
        logprobs = -torch.rand(4, batch.mask.shape[1], generator=torch.Generator().manual_seed(seed))
        logprobs.requires_grad_(True)
        total = sum(run_loss(ReadTheWorld(Config(weight=0.5)), batch, logprobs, part) for part in parts) / len(parts)
        total.backward()
        made.append((total.detach(), logprobs.grad))
    heard = find_heard_tokens(batch)
    assert made[0][1] == pytest.approx((-0.5 / heard.sum() * heard).numpy())
    for total, gradient in made[1:]:
        assert torch.allclose(total, made[0][0], atol=1e-6)
        assert torch.allclose(gradient, made[0][1], atol=1e-6)


def test_without_weight_it_is_grpo_and_measures():
    batch = make_batch([PIECES, PIECES], [OWN, OWN])
    method = ReadTheWorld(Config(weight=0.0))
    assert run_loss(method, batch, torch.full((2, 10), -0.5), [0, 1]) is None
    assert method.collect() == pytest.approx({"nll": 0.5, "probability": 0.6065}, abs=1e-4)


def test_completions_that_were_left_out_are_not_read():
    batch = make_batch([PIECES, PIECES], [OWN, OWN], filtered=["", "too long"])
    logprobs = torch.full((2, 10), -1.0, requires_grad=True)
    run_loss(ReadTheWorld(), batch, logprobs, [0, 1]).backward()
    assert logprobs.grad[0, 4:6].tolist() == pytest.approx([-0.05, -0.05])
    assert logprobs.grad[1].abs().sum() == 0


@pytest.mark.training
def test_two_real_steps(two_steps, written_episodes):
    trained = two_steps("read-the-world", {"weight": 5.0}, base="grpo", task__name="search", **written_episodes)
    first, second = trained.steps
    assert first["read-the-world/heard"] > 0
    assert first["read-the-world/written"] == second["read-the-world/written"] == 0
    assert first["read-the-world/loss"] == pytest.approx(5 * first["read-the-world/nll"], rel=1e-4)
    assert all(0 < step["read-the-world/probability"] < 1 for step in trained.steps)
