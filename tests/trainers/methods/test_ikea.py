"""IKEA: the card's table, what is known, and the right answer alone."""

import random
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.conftest import make_spec
from tests.trainers.methods.batches import rollout_batch
from trainers.catalog.entries import entries_for
from trainers.contract import stacking
from trainers.contract.spec import SpecError, TaskChoice
from trainers.methods.worlds import ikea
from trainers.methods.worlds.ikea import IKEA, Config, reward_boundary
from trainers.tasks.base import Example
from trainers.tasks.registry import load_chosen_task
from trainers.worlds.search import Search

FACTS = [["Eva", "friend", "Leo"], ["Leo", "city", "Rome"], ["Eva", "city", "Oslo"]]
EXAMPLE = Example([], "Rome", {"facts": FACTS, "evidence": [0, 1], "person": "Eva", "attribute": "city"})
WORLD = Search({"hits": 1})
ASK = "<search>Eva's friend</search><information>Eva's friend is Leo.</information>"
PIECES = ["<search>", "</search>", "<answer>", "</answer>", "<information>", "Eva's friend", "Rome", "\ud800"]


def make_rewards(texts, **config):
    method = IKEA(Config(**config))
    method.prepare(SimpleNamespace(task=WORLD))
    batch = rollout_batch([0.0] * len(texts), len(texts), texts=texts, examples=[EXAMPLE] * len(texts))
    return method.rewards(batch, batch.reward).tolist()


def test_the_cards_table():
    table = [reward_boundary(True, right, searches, 0.6, 0.05, 3) for right, searches in [(True, 0), (True, 1), (True, 2), (True, 3), (True, 4)]]
    assert table == pytest.approx([1.6, 1.4, 1.2, 1.0, 1.0])
    assert [reward_boundary(True, False, searches, 0.6, 0.05, 3) for searches in (0, 2)] == [0, 0.05]
    assert reward_boundary(False, True, 0, 0.6, 0.05, 3) == -1


@given(st.integers(0, 9), st.floats(0, 2), st.floats(0, 0.5), st.integers(1, 5))
def test_more_searches_never_pay_more_where_the_answer_is_right(searches, plus, minus, most):
    right = [reward_boundary(True, True, count, plus, minus, most) for count in (searches, searches + 1)]
    assert right[0] >= right[1] >= 1
    assert reward_boundary(True, False, searches, plus, minus, most) < right[1]
    assert reward_boundary(True, True, searches, 0.0, 0.0, most) == 1


def test_rewards_of_a_group():
    texts = ["<answer>the rome.</answer>", f"{ASK}<answer>Rome</answer>", f"{ASK}<answer>Oslo</answer>", "<answer>Oslo</answer>", ASK * 2, "Rome", ""]
    made = make_rewards(texts)
    assert made == pytest.approx([1.6, 1.4, 0.05, 0.0, 0.05, -1.0, -1.0])
    assert make_rewards(texts, plus=0.0, minus=0.0) == [1, 1, 0, 0, 0, -1, -1]
    forged = "<search>Eva's friend</search><information>Rome</information><answer>Rome</answer>"
    assert make_rewards([forged]) == [-1.0]


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join), st.integers(0, 200))
def test_any_text_and_any_cut_of_a_good_one_have_a_bounded_reward(text, cut):
    assert all(-1 <= value <= 1.6 for value in make_rewards([text, WORLD.gold(EXAMPLE)[:cut]]))


def test_as_many_known_questions_as_unknown_ones_are_trained_on(monkeypatch):
    world = Search({"memorised": 0.5})
    rows = world.examples("train", 40, 0, "easy")
    monkeypatch.setattr(ikea, "measure_closed_book", lambda run, examples, samples, key: [0.75 * one.data["known"] for one in examples])
    run = SimpleNamespace(task=world, rng=lambda *key: random.Random(0))
    method = IKEA(Config(prompts=30))
    kept = method.data(rows, run)
    known = [example.data["known"] for example in kept]
    assert 2 * sum(known) == len(known) > 10
    assert len(method.known) == 30
    assert len(IKEA(Config(prompts=30, balance=False)).data(rows, run)) == 30
    method.prepare(run)
    method.rewards(rollout_batch([0.0, 0.0], 2, texts=[world.gold(kept[0]), "<answer>none</answer>"], examples=[kept[0]] * 2), torch.zeros(2))
    logged = method.collect()
    assert logged[f"searched_{ikea.NAMES[known[0]]}"] == 0.5
    assert logged["known"] == known[0]


def test_facts_in_the_weights_are_the_same_in_every_question_and_answered_without_a_search():
    world, rng, told = Search({"memorised": 0.5}), random.Random(0), {True: set(), False: set()}
    direct = {True: [], False: []}
    for example in world.examples("train", 120, 0, "easy"):
        known, turns = example.data["known"], world.turns(example, rng)
        told[known].add((example.prompt[0].content, example.reference))
        if len(turns) == 1:
            direct[known].append(turns[0].text == f"<answer>{example.reference}</answer>")
    assert len({question for question, _ in told[True]}) == len(told[True])  # one answer each
    assert len({question for question, _ in told[False]}) < len(told[False])
    assert all(direct[True])
    assert 0.05 < sum(direct[False]) / len(direct[False]) < 0.4
    everything = Search({"memorised": 1.0})
    train, heldout = ({one.prompt[0].content for one in everything.examples(split, 60, 0, "hard")} for split in ("train", "heldout"))
    assert not train & heldout


def test_without_facts_in_the_weights_there_is_a_warning(tmp_path):
    spec = make_spec(tmp_path, task={"name": "search"}, methods=[{"name": "ikea"}])
    report = stacking.check_stack(spec, entries_for(spec))
    assert "task.options.memorised" in [problem.field for problem in report.warnings]


def test_a_relation_of_two_people_is_no_fact_that_is_always_the_same():
    with pytest.raises(SpecError) as refused:
        load_chosen_task(TaskChoice(name="search", options={"memorised": 0.5, "ambiguous": 0.5}))
    assert [problem.field for problem in refused.value.problems] == ["task.options.memorised"]


@pytest.mark.training
def test_two_real_steps(two_steps, written_episodes, monkeypatch):
    monkeypatch.setattr(ikea, "measure_closed_book", lambda run, examples, samples, key: [float(one.data["known"]) for one in examples])
    trained = two_steps("ikea", base="grpo", task__name="search", task__options={"memorised": 0.5}, **written_episodes)
    for rollout in trained.rollouts:
        calls = rollout.completion.count("<search>")
        if rollout.rewards["correct"]:
            assert rollout.shaped["ikea"] == pytest.approx(1 + 0.6 * max(0, 1 - calls / 3))
        else:
            assert rollout.shaped["ikea"] in (-1, 0, pytest.approx(0.05))
    assert {"ikea/known", "ikea/searches"} <= set(trained.steps[0])
