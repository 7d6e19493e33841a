"""Atom-Searcher: the judge's rule, a weight that falls to 0, and the reward without the units."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.conftest import make_spec
from tests.trainers.methods.batches import rollout_batch
from trainers.catalog.entries import entries_for
from trainers.contract import stacking
from trainers.methods.worlds.atom_searcher import AtomSearcher, Config, compute_unit_weight, judge_unit, mix_unit_rewards
from trainers.methods.worlds.deepresearcher import DeepResearcher
from trainers.tasks.base import Example
from trainers.worlds.facts import Fact
from trainers.worlds.search import Search

SHARE = st.floats(0, 1)
NEEDED = [Fact("Eva", "friend", "Leo"), Fact("Leo", "city", "Rome")]
FACTS = [["Eva", "friend", "Leo"], ["Leo", "city", "Rome"], ["Eva", "city", "Oslo"]]
EXAMPLE = Example([], "Rome", {"facts": FACTS, "evidence": [0, 1], "person": "Eva", "attribute": "city"})
PIECES = ["<think>", "</think>", "<search>", "</search>", "<answer>", "</answer>", "<information>", "Eva friend", "Rome", "\ud800"]
WORLD = Search({"thoughts": True, "hits": 1})
GOOD = WORLD.gold(EXAMPLE)


def make_method(weight=0.5, **fields):
    method = AtomSearcher(Config(weight=weight))
    method.prepare(SimpleNamespace(task=WORLD))
    return method, lambda texts: method.rewards(
        made := rollout_batch([0.0] * len(texts), len(texts), texts=texts, examples=[EXAMPLE] * len(texts), **fields), made.reward
    )


def test_the_worked_example():
    weight = compute_unit_weight(20, 100, 0.5)
    assert weight == pytest.approx(0.4)
    assert mix_unit_rewards([0.6, 1.0], 0.25, weight) == pytest.approx(0.47)
    assert [compute_unit_weight(done, 100, 0.5) for done in (0, 50, 100, 120)] == pytest.approx([0.5, 0.25, 0, 0])


@pytest.mark.parametrize(
    ("thought", "score"), [("Eva friend", 1), ("Eva's friend", 1), ("Eva city", 0.5), ("friend of Max", 0), ("LEO CITY", 1), ("", 0), ("Leo", 0.5)]
)
def test_a_unit_is_judged_by_what_it_names(thought, score):
    assert judge_unit(thought, NEEDED) == score


@given(st.lists(SHARE, max_size=5), SHARE, SHARE, SHARE)
def test_the_mix_lies_between_its_parts_and_is_the_answer_alone_without_weight(units, answer, weight, more):
    mean = sum(units) / len(units) if units else 0.0
    assert min(mean, answer) - 1e-9 <= mix_unit_rewards(units, answer, weight) <= max(mean, answer) + 1e-9
    assert mix_unit_rewards(units, answer, 0.0) == answer
    assert (compute_unit_weight(30, 100, max(weight, more)) >= compute_unit_weight(30, 100, min(weight, more))) is True


def test_the_world_shows_a_thought_for_every_turn_of_its_expert():
    assert GOOD == (
        "<think>Eva friend</think><search>Eva's friend</search><information>Eva's friend is Leo.</information>"
        "<think>Leo city</think><search>Leo's city</search><information>Leo's city is Rome.</information>"
        "<think>Leo city Rome</think><answer>Rome</answer>"
    )
    assert [reward.function(GOOD, EXAMPLE) for reward in WORLD.rewards.values()] == [1, 1, 1, 1]


def test_rewards_of_a_group():
    half = GOOD.replace("<think>Eva friend</think>", "<think>Eva city</think>").replace("<answer>Rome", "<answer>Oslo")
    silent = "<search>Eva's friend</search><information>Eva's friend is Leo.</information><answer>Rome</answer>"
    cut = GOOD[: GOOD.index("<answer>")]
    method, reward = make_method(step=1, total_steps=10)
    assert reward([GOOD, half, silent, cut]).tolist() == pytest.approx([1.0, 0.5 * 2.5 / 3, 0.5, -1.0])
    logged = method.collect()
    assert (logged["weight"], logged["units"], logged["broken"]) == (0.5, 9 / 4, 0.25)
    _, late = make_method(step=10, total_steps=10)
    assert late([half]).tolist() == pytest.approx([0.05 * 2.5 / 3])


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join), st.integers(0, len(GOOD)))
def test_any_text_has_a_bounded_reward_and_without_weight_that_of_the_answer_alone(text, cut):
    texts = [text, GOOD[:cut]]
    _, reward = make_method()
    assert all(-1 <= value <= 1 for value in reward(texts).tolist())
    base = DeepResearcher()
    base.prepare(SimpleNamespace(task=WORLD))
    batch = rollout_batch([0.0, 0.0], 2, texts=texts, examples=[EXAMPLE] * 2)
    assert make_method(weight=0.0)[1](texts).tolist() == base.rewards(batch, batch.reward).tolist()


def test_an_example_without_evidence_has_no_units():
    bare = Example([], "Rome", {})
    method = AtomSearcher()
    method.prepare(SimpleNamespace(task=WORLD))
    batch = rollout_batch([0.0, 0.0], 2, texts=["<think>Eva friend</think><answer>Rome</answer>"] * 2, examples=[bare] * 2)
    assert method.rewards(batch, batch.reward).tolist() == [0.5, 0.5]


def test_it_needs_the_world_with_thoughts(tmp_path):
    spec = make_spec(tmp_path, task={"name": "search"}, methods=[{"name": "atom-searcher"}])
    assert "task.options.thoughts" in [problem.field for problem in stacking.check_stack(spec, entries_for(spec)).problems]


@pytest.mark.training
def test_two_real_steps(two_steps, written_episodes):
    trained = two_steps("atom-searcher", base="grpo", task__name="search", task__options={"thoughts": True}, **written_episodes)
    assert [step["atom-searcher/weight"] for step in trained.steps] == [0.5, 0.25]
    for rollout in trained.rollouts:
        if rollout.rewards["correct"] and rollout.rewards["evidence"] == 1:
            assert rollout.shaped["atom-searcher"] == pytest.approx(1.0)
        assert (rollout.shaped["atom-searcher"] == -1) == (not rollout.rewards["format"])
