"""RAPO: the card's numbers, GRPO with everything off, epochs without solved prompts, and replays that survive a checkpoint."""

import io
import random
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.methods.batches import rollout_batch
from trainers.contract.events import Turn
from trainers.methods.group.fathom_rapo import Config, FathomRAPO, draw_weights, informative_scale, labelled_calls, step_reward
from trainers.methods.history import History, Visit
from trainers.policies.sampling import Completion
from trainers.tasks.base import Example

OFF = {"prune": False, "scale": False, "replay": False}


def test_the_worked_examples():
    assert informative_scale(torch.tensor([1.0, 0, 1, 1, 0, 0, 0.7, 0.7]), 2) == 4.0
    assert step_reward(True, 1.0, (6, 2), (1, 1)) == pytest.approx(0.8)
    assert step_reward(True, 1.0, (1, 5), (1, 3)) == pytest.approx(0.6)
    assert step_reward(False, 1.0, (5, 1), (9, 1)) == pytest.approx(0.3)
    assert step_reward(True, 1.0, (0, 0)) == pytest.approx(1.1)
    assert step_reward(False, 0.0, (0, 4)) == pytest.approx(-0.1)


@given(st.lists(st.sampled_from([0.0, 0.7, 1.0]), min_size=8, max_size=8), st.permutations(range(4)))
def test_the_scale_is_1_without_spread_and_ignores_the_order_of_a_group(rewards, order):
    rewards, order = torch.tensor(rewards), [*order, 4, 5, 6, 7]
    scale = informative_scale(rewards, 4)
    assert scale == informative_scale(rewards[order], 4)
    assert scale in (1.0, 2.0)
    assert informative_scale(rewards, 1) == 1.0


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from([0.0, 0.5, 0.9, 1.0])), min_size=1, max_size=12))
def test_an_epoch_draws_what_it_has_not_seen_and_nothing_solved(rows):
    visits, accuracy = [count for count, _ in rows], [share for _, share in rows]
    weights = draw_weights(visits, accuracy, 0.9).tolist()
    open_visits = [count for count, share in rows if share < 0.9]
    for (count, share), weight in zip(rows, weights, strict=True):
        assert (weight == 0) == (share >= 0.9)
        assert (weight == 1) == (share < 0.9 and count == min(open_visits))


def test_prompts_are_pruned_by_their_last_group():
    history = History(3, 10)
    history.add(0, Visit(1, 1.0, 1.0))
    history.add(1, Visit(1, 0.0, 0.5))
    method = FathomRAPO()
    assert method.curriculum(history).tolist() == [0.0, 1e-6, 1.0]
    assert method.collect()["active"] == 2
    assert FathomRAPO(Config(**OFF)).curriculum(history) is None


@pytest.mark.parametrize("precision", [torch.float32, torch.float64])
def test_nine_of_ten_is_a_share_of_0_9_in_any_precision(precision):
    share = torch.tensor([1.0] * 9 + [0.0], dtype=precision).mean().item()
    assert draw_weights([0, 1], [0.5, share], 0.9).tolist() == [1.0, 0.0]
    history = History(2, 10)
    history.add(1, Visit(1, share, share))
    method = FathomRAPO()
    assert method.curriculum(history).tolist() == [1.0, 0.0]
    assert method.collect()["active"] == 1


def test_with_everything_off_it_is_the_base():
    batch, method = rollout_batch([1, 0, 0, 0], 2), FathomRAPO(Config(**OFF))
    advantages = torch.tensor([1.0, -1, 0, 0])
    assert method.rewards(batch, batch.reward).equal(batch.reward)
    assert method.advantages(batch, advantages).equal(advantages)
    assert FathomRAPO().advantages(batch, advantages).tolist() == [2, -2, 0, 0]
    assert FathomRAPO().advantages(batch, torch.ones(4, 3)).shape == (4, 3)


def test_searches_are_new_once_and_if_they_find_something():
    def search(key, found):
        return f"<search>{key}</search><information>{found}</information>"

    text = search("Eva pet", "cat") + search("Eva pet", "cat") + search("nobody", "none") + "<answer>cat</answer>"
    assert labelled_calls(text) == (1, 2)
    assert labelled_calls("<search>Eva pet</search>") == (1, 0)
    assert labelled_calls("<search>" * 3) == (0, 0)
    batch = rollout_batch([1, 0], 2, texts=[text, text])
    assert FathomRAPO(Config(step_reward=True)).rewards(batch, batch.reward).tolist() == pytest.approx([0.5, -0.2 / 8])
    assert FathomRAPO().rewards(batch, batch.reward).equal(batch.reward)


class Sampled(SimpleNamespace):
    """A session whose completions are given."""

    def complete(self):
        return [Completion([1, 2], [7, row], [1, 1], text=text, turns=[Turn("assistant", 0, 2)]) for row, text in enumerate(self.texts)]

    def right(self, examples, made):
        return [one.text == "right" for one in made]


def session(texts, seed=0):
    examples = [Example([], "a", {"n": 0})] * 2 + [Example([], "b", {"n": 1})] * 2
    return Sampled(texts=texts, examples=examples, group_size=2, rng=random.Random(seed))


def test_a_success_is_recalled_where_all_fail_also_after_a_checkpoint():
    method = FathomRAPO()
    first = method.rollout(session(["right", "wrong", "wrong", "wrong"]))
    assert [one.text for one in first] == ["right", "wrong", "wrong", "wrong"]  # nothing remembered yet for the second prompt
    stored = io.BytesIO()
    torch.save(method.state(), stored)
    stored.seek(0)
    resumed = FathomRAPO()
    resumed.restore(torch.load(stored, weights_only=True))
    second = resumed.rollout(session(["wrong"] * 4))
    assert sorted(one.text for one in second[:2]) == ["right", "wrong"]
    (back,) = [one for one in second if one.notes]
    assert (back.ids, back.mask, back.prompt_ids, back.turns) == ([7, 0], [1, 1], [1, 2], [Turn("assistant", 0, 2)])
    assert [one.text for one in method.rollout(session(["wrong"] * 4))] == [one.text for one in second]
    assert resumed.collect()["replayed"] == 1


def test_the_memory_is_bounded_and_can_be_off():
    method = FathomRAPO(Config(remembered=1))
    method.rollout(session(["right", "right", "wrong", "right"]))
    assert [kept["ids"] for kept in method.memory.values()] == [[7, 3]]
    off = FathomRAPO(Config(replay=False))
    off.rollout(session(["right"] * 4))
    assert not off.memory


@pytest.mark.training
def test_two_real_steps(two_steps):
    trained = two_steps("fathom-rapo", training__prompts=4, training__max_steps=4)
    first = {rollout.prompt[-1].content for rollout in trained.rollouts if rollout.step in (1, 2)}
    assert len(first) == 4  # an epoch draws every prompt once
    for number, step in enumerate(trained.steps, 1):
        rows = [r for r in trained.rollouts if r.step == number]
        scale = 1 / step["fathom-rapo/informative"] if step["fathom-rapo/informative"] else 1.0
        for row in rows:
            assert row.contributions["fathom-rapo"] == pytest.approx(scale * row.contributions["base"], abs=1e-5)
    assert "fathom-rapo/replayed" in trained.steps[-1]
