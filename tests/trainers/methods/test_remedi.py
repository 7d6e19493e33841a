"""RemeDi: a trajectory's log-probability is the same when it is scored again, its loss teaches both heads, and two real steps."""

from types import SimpleNamespace

import pytest
import torch

from tests.trainers.conftest import events_in, make_spec
from tests.trainers.masked.test_scoring import END, PAD, build_model
from tests.trainers.methods.batches import loss_batch
from trainers.attempt import train
from trainers.contract.events import Metrics, Rollout
from trainers.masked.denoising import Denoising, denoise_tokens, score_trajectory
from trainers.masked.likelihood import weigh_single_mask
from trainers.methods.bases.remedi import RemeDi
from trainers.policies.loading import load_model


def write(rows=4, steps=3, seed=0, temperature=1.0):
    model = build_model()
    prompts = torch.randint(2, 12, (rows, 3), generator=torch.Generator().manual_seed(seed))
    ids = torch.cat([prompts, torch.full((rows, 6), PAD)], 1)
    writable = torch.zeros_like(ids, dtype=torch.bool)
    writable[:, 3:] = True
    there = torch.ones_like(ids)
    how = Denoising(steps, temperature, True, True, torch.Generator().manual_seed(seed))
    return model, ids, there, writable, denoise_tokens(model, ids, there, writable, how)


@pytest.mark.parametrize(("steps", "temperature"), [(1, 1.0), (3, 1.0), (6, 0.7)])
def test_a_trajectory_scored_again_has_the_log_probability_it_was_written_with(steps, temperature):
    model, ids, there, writable, made = write(steps=steps, temperature=temperature)
    total = score_trajectory(model, ids, there, writable, made.history, made.orders, temperature)
    assert torch.allclose(total, made.logprobs, atol=1e-3)
    assert (total < 0).all()
    if steps > 1:
        assert made.remasked.sum() > 0  # so that a token that was taken back and written again is among them


def prepared(rows=4):
    model, ids, there, writable, made = write(rows)
    method = RemeDi()
    method.run = SimpleNamespace(model=model, training=SimpleNamespace(temperature=1.0))
    method.written = (ids, there, writable, made)
    return method, model


def test_its_loss_teaches_both_heads_and_splitting_changes_nothing():
    method, model = prepared()
    advantages = torch.tensor([1.0, -1.0, 0.5, -0.5])
    whole = loss_batch(torch.zeros(4, 6), advantages)
    method.policy_loss(whole).backward()
    assert model.confidence[0].weight.grad.abs().sum() > 0
    assert model.lm_head.weight.grad.abs().sum() > 0
    expected = model.lm_head.weight.grad.clone()
    model.zero_grad()
    for rows in ([2, 0], [1, 3]):
        part = loss_batch(torch.zeros(2, 6), advantages[rows], rollout=whole.rollout, rows=torch.tensor(rows))
        (method.policy_loss(part) / 2).backward()
    assert torch.allclose(model.lm_head.weight.grad, expected, atol=1e-5)


def test_without_advantages_nothing_is_learnt():
    method, model = prepared(2)
    method.policy_loss(loss_batch(torch.zeros(2, 6), torch.zeros(2))).backward()
    assert model.lm_head.weight.grad.abs().sum() == 0


def test_an_answer_ends_at_its_first_end_token():
    method = RemeDi()
    method.run = SimpleNamespace(tokenizer=SimpleNamespace(decode=lambda ids, **rest: str(ids)))
    made = method.complete([3], [5, END, 6, END], END)
    assert (made.ids, made.finish_reason) == ([5, END], "stop")
    assert method.complete([3], [5, 6], END).finish_reason == "length"


def test_one_mask_leaves_the_tokens_in_sight_without_gradient():
    first = torch.ones(1, 2, requires_grad=True)
    weigh_single_mask(first, torch.tensor([[True, False]]), torch.tensor([[0.5]])).sum().backward()
    assert first.grad.tolist() == [[2, 0]]


@pytest.mark.training
def test_two_real_steps(tmp_path):
    spec = make_spec(
        tmp_path,
        base={"name": "remedi", "config": {"diffusion_steps": 6}},
        policy={"kind": "tiny", "cold_start": False},
        training__max_completion_length=12,
        training__max_steps=2,
        evaluation={"prompts": 4},
    )
    assert train.run_training(spec, tmp_path) == train.FINISHED
    events = events_in(tmp_path)
    steps = [event.values for event in events if isinstance(event, Metrics) and "loss" in event.values]
    assert len(steps) == 2
    for step in steps:
        assert step["remedi/trajectory_distance"] < 1e-2
        assert step["remedi/remasked"] > 0
    assert len([event for event in events if isinstance(event, Rollout) and event.phase == "train"]) == 16
    assert load_model(tmp_path / "final", torch.float32).config.remasks
