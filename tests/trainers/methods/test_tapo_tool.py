"""TAPO: the card's numbers, DAPO without filter and penalty, and groups of one kind that are sampled again or left out."""

import random
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.methods.batches import rollout_batch
from tests.trainers.methods.conftest import write_episode_of
from trainers.contract.events import Message
from trainers.methods.context import RunContext
from trainers.methods.session import Session
from trainers.methods.worlds.tapo_tool import Config, TAPOTool, compute_overlong_penalty, draw_evenly, find_mixed_groups
from trainers.policies.sampling import Completion
from trainers.tasks.base import Example
from trainers.worlds.sums import Sums


def test_the_worked_examples():
    penalty = compute_overlong_penalty(torch.tensor([1536.0, 1024, 2048, 3]), 2048, 1024, 1.0)
    assert penalty.tolist() == [-0.5, 0.0, -1.0, 0.0]
    assert (1 + penalty[0]).item() == 0.5
    right = torch.tensor([True, True, True, False, False, False])
    assert find_mixed_groups(right, 2).tolist() == [False, True, False]


@given(st.lists(st.integers(0, 80), min_size=1, max_size=8), st.floats(0.05, 1), st.floats(0, 5))
def test_the_penalty_never_pays_and_grows_with_the_length(lengths, share, factor):
    penalty = compute_overlong_penalty(torch.tensor(sorted(lengths)).float(), 64, share * 64, factor)
    assert (penalty <= 0).all()
    assert (penalty.diff() <= 1e-6).all()
    assert (penalty[torch.tensor(sorted(lengths)) <= 64 - share * 64] == 0).all()


@given(st.integers(1, 5), st.integers(0, 12), st.integers(0, 99))
def test_prompts_are_drawn_evenly(size, count, seed):
    items = [Example([Message("user", str(number))], "") for number in range(size)]
    drawn = [int(example.prompt[0].content) for example in draw_evenly(items, count, random.Random(seed))]
    counts = [drawn.count(number) for number in range(size)]
    assert len(drawn) == count
    assert max(counts) - min(counts) <= 1


def test_it_is_dapo_without_filter_and_penalty():
    method = TAPOTool(Config(filter=False, factor=0.0))
    batch = rollout_batch([1, 1, 0, 1], 2)
    assert torch.equal(method.rewards(batch, batch.reward), batch.reward)
    assert method.advantages(batch, torch.ones(4)).tolist() == [1, 1, 1, 1]


def test_the_tools_words_count_as_length_and_groups_of_one_kind_are_left_out():
    method = TAPOTool(Config(buffer=0.5))
    mask = torch.tensor([[1.0, 0, 0, 1], [1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 1]])
    ends = [[1, 2, 3, 4], [1], [1, 2], [1, 2, 3, 4]]
    batch = rollout_batch([1, 0, 1, 1], 2, mask=mask, ends=ends)
    assert method.rewards(batch, batch.reward).tolist() == [0, 0, 1, 0]
    assert method.advantages(batch, torch.ones(4)).tolist() == [1, 1, 0, 0]
    assert method.advantages(batch, torch.ones(4, 4)).sum(1).tolist() == [4, 4, 0, 0]
    logged = method.collect()
    assert (logged["overlong"], logged["dropped"]) == (0.5, 0.5)


class ScriptedSession(Session):
    """Right and wrong in turn for examples of ``mixed``, from the ``first`` time on that they are asked together; else wrong."""

    mixed: tuple[str, ...] = ()
    asked = 0

    def complete(self, prompts=None, examples=None, **how):
        self.asked += 1
        examples = self.examples if examples is None else examples
        right = [example.reference in self.mixed and place % 2 == 0 and (self.asked != 2 or place < 2) for place, example in enumerate(examples)]
        texts = [f"<answer>{example.reference if one else 'x'}</answer>" for example, one in zip(examples, right, strict=True)]
        return [Completion([], ids=[1, 2], mask=[1, 1], text=text) for text in texts]


@pytest.mark.parametrize(("batches", "asked", "left", "tokens"), [(1, 1, 2, 12), (2, 2, 1, 20), (10, 3, 0, 24)])
def test_groups_of_one_kind_are_replaced_by_prompts_of_mixed_outcome(batches, asked, left, tokens):
    world = Sums()
    examples = [world.read(f"What is {number} + 1?") for number in (1, 2, 3)]
    method, run = TAPOTool(Config(batches=batches)), RunContext(SimpleNamespace(task=world), examples=examples)
    method.prepare(run)
    rows = [example for example in examples for _ in range(2)]
    session = ScriptedSession(run, None, rows, [example.prompt for example in rows], 2, 1, 9, 1.0, 48, random.Random(0))
    session.mixed = ("3",)  # the second prompt's answer
    made = method.rollout(session)
    mixed = find_mixed_groups(torch.tensor(session.right(session.examples, made)), 2)
    assert session.asked == asked
    assert int((~mixed).sum()) == left
    assert session.prompts == [example.prompt for example in session.examples]
    assert method.collect()["policy_tokens"] == tokens


@pytest.fixture
def write_episode():
    """Of prompts whose answer is no multiple of three all members fail."""
    return lambda world, example, member: write_episode_of(world, example, 3 if int(example.reference) % 3 else member)


@pytest.mark.training
def test_two_real_steps(two_steps, written_episodes):
    trained = two_steps("tapo-tool", {"batches": 3}, base="dapo", task={"name": "sums", "difficulty": "easy"}, **written_episodes)
    assert {bool(rollout.filtered) for rollout in trained.rollouts} == {True, False}
    for rollout in trained.rollouts:
        group = [one for one in trained.rollouts if (one.step, one.group) == (rollout.step, rollout.group)]
        mixed = len({one.rewards["correct"] for one in group}) == 2
        assert bool(rollout.filtered) is not mixed
        assert len({one.prompt[-1].content for one in group}) == 1
        assert rollout.shaped["tapo-tool"] <= rollout.reward
    assert max(step["tapo-tool/batches"] for step in trained.steps) > 1
    assert all(1 <= step["tapo-tool/batches"] <= 3 for step in trained.steps)
