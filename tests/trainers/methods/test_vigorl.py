"""ViGoRL: the authors' numbers, what a place is, and the right answer alone."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.conftest import make_spec
from tests.trainers.methods.batches import rollout_batch
from trainers.catalog.entries import entries_for
from trainers.contract import stacking
from trainers.contract.events import Message
from trainers.methods.worlds.vigorl import (
    Config,
    ViGoRL,
    count_distinct_places,
    is_supported,
    list_quotes,
    mix_grounding,
    score_grounding,
)
from trainers.tasks.base import Example
from trainers.worlds.reader import Line, Reader

PLACES = st.lists(st.integers(1, 12), max_size=10)
LINES = [Line(1, 0, "city", "Rome"), Line(2, 0, "food", "soup"), Line(3, 1, "pet", "owl"), Line(4, 1, "city", "Lima")]
CHUNKS = ["1: The city is Rome. 2: The food is soup.", "3: The pet is owl. 4: The city is Lima."]
DATA = {
    "question": "Which city?",
    "chunks": CHUNKS,
    "lines": [[["city", "Rome"], ["food", "soup"]], [["pet", "owl"], ["city", "Lima"]]],
    "target": "city",
    "needed": ["city", "Lima"],
    "late": False,
}
EXAMPLE = Example([Message("user", f"Which city? Part 1 of 2: {CHUNKS[0]}")], "Lima", DATA)
WORLD = Reader({"numbered": True})
GOLD = WORLD.gold(EXAMPLE)
PIECES = ["<memory>", "</memory>", "<answer>", "</answer>", "city Lima 4", " 99999", "²", "<information>", "\ud800"]


def make_rewards(texts, **config):
    method = ViGoRL(Config(**config))
    method.prepare(SimpleNamespace(task=WORLD))
    batch = rollout_batch([0.0] * len(texts), len(texts), texts=texts, examples=[EXAMPLE] * len(texts))
    return method.rewards(batch, batch.reward).tolist(), method.collect()


def test_the_worked_examples():
    assert mix_grounding(1.0, score_grounding(0, True, 0.0), 0.5) == 0.5
    assert mix_grounding(1.0, score_grounding(3, True, 0.2), 0.6) == pytest.approx(1.16)
    assert score_grounding(3, False, 0.2) == 0
    assert count_distinct_places([4, 1, 4, 2], 1) == 3
    assert count_distinct_places([4, 1, 5, 2], 2) == 2


@given(PLACES, st.integers(1, 5))
def test_saying_a_place_again_adds_nothing_and_a_wider_distance_counts_no_more(places, distance):
    found = count_distinct_places(places, distance)
    assert count_distinct_places([*places, *places], distance) == found
    assert count_distinct_places(places, distance + 1) <= found <= len(set(places))
    assert count_distinct_places(places, 1) == len(set(places))


@given(PLACES, st.booleans(), st.floats(0, 1), st.floats(0, 1), st.booleans())
def test_the_reward_is_that_of_the_answer_without_weight_on_places(places, formed, weight, bonus, right):
    grounding = score_grounding(count_distinct_places(places, 1), formed, bonus)
    assert mix_grounding(float(right), grounding, 1.0) == right
    assert 0 <= mix_grounding(float(right), grounding, weight) <= 1 + bonus * len(places) + 1e-9
    assert score_grounding(count_distinct_places(places, 1), formed, 0.0) in (0, 1)


def test_a_number_is_a_place_where_its_line_has_been_read():
    assert [line.number for line in list_quotes("city Lima 4 1 9 x2 ²", LINES)] == [4, 1]
    assert list_quotes("city Lima 4", LINES[:2]) == []


@pytest.mark.parametrize(
    ("memory", "supported"),
    [
        ("city Lima 4", True),
        ("city Lima 3", False),
        ("city Lima", False),
        ("city", None),
        ("food soup 2 city Lima 1", False),
        ("soup Lima 2 4", True),
    ],
)
def test_a_step_is_supported_by_the_lines_it_quotes(memory, supported):
    assert is_supported(memory, LINES) is supported


def test_rewards_of_a_group():
    assert GOLD.count("city Rome 1") == 1
    wrong = GOLD.replace("<answer>Lima", "<answer>Rome")
    early = GOLD.replace("city Rome 1", "city Rome 4").replace("city Lima 4", "city Lima")  # line 4 has not been read in the first turn
    made, logged = make_rewards([GOLD, wrong, early, "<answer>Lima</answer>", "Lima"])
    assert made == pytest.approx([0.6 + 0.4 * 1.2, 0.4 * 1.2, 0.6, 0.6, 0.0])
    assert logged == pytest.approx({"distinct": 4 / 5, "quotes": 4 / 5, "grounded": 2 / 5, "unsupported": 2 / 6})
    assert make_rewards([GOLD, wrong, early, "Lima"], weight=1.0)[0] == [1, 0, 1, 0]
    assert make_rewards([GOLD, early], weight=0.5, bonus=0.0)[0] == [1.0, 0.5]


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join), st.integers(0, len(GOLD)))
def test_any_text_and_any_cut_of_a_good_one_have_a_bounded_reward(text, cut):
    made, _ = make_rewards([text, GOLD[:cut]])
    assert all(0 <= value <= 0.6 + 0.4 * (1 + 0.2 * 3) for value in made)


def test_it_needs_numbered_lines(tmp_path):
    spec = make_spec(tmp_path, task={"name": "reader"}, methods=[{"name": "vigorl"}])
    assert "task.options.numbered" in [problem.field for problem in stacking.check_stack(spec, entries_for(spec)).problems]


@pytest.mark.training
def test_two_real_steps(two_steps, written_episodes):
    trained = two_steps("vigorl", base="grpo", task__name="reader", task__options={"numbered": True}, **written_episodes)
    for step in trained.steps:
        assert 0 < step["vigorl/grounded"] < 1
    for rollout in trained.rollouts:
        assert rollout.shaped["vigorl"] == pytest.approx(0.0) or rollout.rewards["format"]
        assert rollout.shaped["vigorl"] >= 0.6 * rollout.rewards["correct"] - 1e-6
