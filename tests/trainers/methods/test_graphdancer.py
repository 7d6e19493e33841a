"""GraphDancer: the card's numbers, a mixture that follows its schedule, pairs by six keys, and log-ratios without the world's words."""

import random
from collections import Counter
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.methods.batches import rollout_batch
from trainers.maths.bucket_mixture import compute_bucket_mixture, weigh_examples
from trainers.methods.context import RunContext
from trainers.methods.history import History
from trainers.methods.worlds.graphdancer import (
    Config,
    GraphDancer,
    arrange_rows,
    grade_exploration,
    mark_world_tokens,
    pick_extreme_pair,
    rank_episode,
    share_evenly,
)
from trainers.worlds.graph import Graph

WORLD = Graph()
PUBLISHED = {"power": 3.0, "width": 0.75, "mix": (0.2, 0.8)}
QUESTIONS = [example for level in WORLD.difficulties for example in WORLD.examples("train", 4, 0, level)]

GRAPH = {"name": "graph", "difficulty": "easy"}


@pytest.mark.parametrize(("step", "shares"), [(0, [0.6557, 0.3284, 0.0159]), (100, [0.4635, 0.4967, 0.0398]), (149, [0.4040, 0.4571, 0.1389])])
def test_the_worked_examples(step, shares):
    assert compute_bucket_mixture(step, 150, [0.5, 0.5, 0], **PUBLISHED) == pytest.approx(shares, abs=1e-4)


def test_keys_are_compared_one_after_the_other():
    keys = [(1, 1, 1, 0, 0, -5), (1, 1, 1, 0, 0, -3), (0, 1, 1, 0, 0, -2)]
    assert pick_extreme_pair(keys) == (1, 2)
    assert pick_extreme_pair(keys[:1] * 3) is None


@given(st.integers(1, 60), st.integers(0, 59), st.floats(0.2, 5), st.floats(0.2, 3), st.floats(0, 1), st.floats(0, 1))
def test_shares_sum_to_one_and_without_bias_the_hard_bucket_only_grows(total, step, power, width, first, last):
    shares = compute_bucket_mixture(step, total, [1, 1, 2], power=power, width=width, mix=(first, last))
    assert sum(shares) == pytest.approx(1)
    assert min(shares) >= 0
    hard = [compute_bucket_mixture(one, total, [1, 1, 1], power=power, width=width, mix=(0, 0))[2] for one in range(total)]
    assert hard == sorted(hard)


def test_weights_give_each_bucket_its_share():
    weights = weigh_examples([0, 0, 0, 1, 2, 2], [0.5, 0.3, 0.2])
    assert [sum(weights[:3]), weights[3], sum(weights[4:])] == pytest.approx([0.5, 0.3, 0.2])


@pytest.mark.parametrize(
    ("right", "valid", "answered", "score"), [(1, 1, 1, 1.0), (1, 0, 1, 0.8), (0, 1, 1, 0.2), (0, 0, 1, 0.1), (0, 0, 0, 0.0), (0, 1, 0, 0.2)]
)
def test_the_reward(right, valid, answered, score):
    assert grade_exploration(bool(right), bool(valid), bool(answered)) == score


def test_an_episode_is_ranked_by_what_it_saw_and_did():
    example = WORLD.examples("train", 1, 0, "medium")[0]
    gold = WORLD.gold(example)
    bare = f"<answer>{example.reference}</answer>"
    failed = WORLD.write_episode(example, ["<node>Nobody</node>", bare])
    assert rank_episode(WORLD, example, gold) == (1, 1, 1, 0, 0, -2)
    assert rank_episode(WORLD, example, bare) == (1, 0, 1, 0, 0, 0)
    assert rank_episode(WORLD, example, failed) == (1, 0, 1, 0, -1, -1)
    assert rank_episode(WORLD, example, f"well {bare}") == (1, 0, 0, 0, -1, 0)
    assert rank_episode(WORLD, example, WORLD.write_episode(example, ["<node>Mia</node>"] * 5))[3] == -1


@given(st.lists(st.sampled_from(["<information>", "</information>", "Rome", "<call>", " "]), max_size=12))
def test_tokens_of_the_world_are_those_between_its_tags(pieces):
    text, ends = "".join(pieces), [sum(map(len, pieces[: place + 1])) for place in range(len(pieces))]
    inside, expected = False, []
    for piece in pieces:
        inside = inside or piece == "<information>"
        expected.append(inside)
        inside = inside and piece != "</information>"
    assert mark_world_tokens(ends, text) == expected


@given(st.integers(0, 100), st.integers(1, 5))
def test_levels_have_equally_many_questions(count, levels):
    shares = [share for _, share in share_evenly("abcde"[:levels], count)]
    assert sum(shares) == count
    assert max(shares) - min(shares) <= 1


def test_rows_follow_the_shares_and_a_bucket_is_gone_through_before_it_repeats():
    rows = [{"bucket": bucket, "number": number} for bucket in (0, 2) for number in range(4)]
    drawn = arrange_rows(rows, [[1, 0, 0]] * 2 + [[0, 0, 1]], 4, random.Random(0))
    assert [row["bucket"] for row in drawn] == [0] * 8 + [2] * 4
    assert set(Counter(row["number"] for row in drawn[:8]).values()) == {2}


def test_the_curriculum_weighs_questions_by_the_rounds_they_need():
    method = GraphDancer(Config(first=0.0, last=0.0, width=0.1))
    method.prepare(RunContext(SimpleNamespace(task=WORLD), examples=QUESTIONS))
    for step, rounds in ((1, 1), (10, 3)):
        weights = method.curriculum(History(len(QUESTIONS), 10, step=step))
        assert {len(example.data["needed"]) for example, weight in zip(QUESTIONS, weights, strict=True) if weight > 1e-6} == {rounds}


def test_a_right_answer_in_broken_form_earns_less():
    example = QUESTIONS[0]
    texts = [f"<answer>{example.reference}</answer>", f"x<answer>{example.reference}</answer>", "<answer>none</answer>", "x"]
    batch = rollout_batch([1, 0, 0, 0], 4, texts=texts, examples=[example] * 4, reward_names=["correct", "format"])
    batch.rewards = torch.tensor([[1.0, 1], [0, 0], [0, 1], [0, 0]])
    assert GraphDancer().rewards(batch, batch.reward).tolist() == pytest.approx([1, 0.8, 0.2, 0])


@pytest.mark.training
def test_two_real_steps_on_questions_of_all_difficulties(two_steps, written_episodes):
    trained = two_steps("graphdancer", base="grpo", task=GRAPH, **written_episodes)
    for step in trained.steps:
        assert sum(step[f"graphdancer/share_{bucket}"] for bucket in (1, 2, 3)) == pytest.approx(1)
    assert {round(rollout.shaped["graphdancer"], 6) for rollout in trained.rollouts} <= {0, 0.1, 0.2, 0.8, 1}


@pytest.mark.training
def test_two_real_steps_on_pairs_leave_the_worlds_words_out(two_steps, written_episodes, monkeypatch):
    seen, mark = [], GraphDancer.keep_policy_tokens

    def watch(self, ids, mask):
        kept = mark(self, ids, mask)
        seen.extend(self.run.tokenizer.decode(own[(row == 0) & there.bool()]) for own, row, there in zip(ids, kept, mask, strict=True))
        return kept

    monkeypatch.setattr(GraphDancer, "keep_policy_tokens", watch)
    trained = two_steps("graphdancer", {"rollouts": 4}, trainer="dpo", task=GRAPH, policy=written_episodes["policy"], training__sampled_prompts=48)
    assert len(trained.steps) == 2
    assert any(seen)
    assert all(text.startswith("<information>") and text.endswith("</information>") for text in seen if text)
