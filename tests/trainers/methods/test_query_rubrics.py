"""Query-specific rubrics: the card's numbers, what a rubric earns, and that the readers' own weights are never paid for."""

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.conftest import make_spec
from tests.trainers.methods.batches import rollout_batch
from trainers.catalog.entries import entries_for
from trainers.contract import stacking
from trainers.contract.events import Message
from trainers.methods.worlds.query_rubrics import (
    Config,
    QueryRubrics,
    compute_effect_size,
    judge_pair,
    rate_discrimination,
    read_rubric,
    reward_rubric,
    score_report,
)
from trainers.tasks.base import Example
from trainers.worlds.criteria import GENRES, rate_story
from trainers.worlds.plots import MOODS
from trainers.worlds.stories import Stories

TASK = {"name": "stories", "difficulty": "easy", "options": {"write": "rubric"}}
WORLD = Stories(TASK["options"])
PAIR = [["Mia sings"], ["Mia laughs", "Leo cries"]]
EXAMPLE = Example([Message("user", "Write 2 criteria for a merry story.")], "first", {"genre": "merry", "pair": PAIR, "steps": 2})
RUBRICS = st.dictionaries(st.sampled_from(MOODS), st.integers(1, 5), min_size=1, max_size=4)
STORIES = st.lists(st.sampled_from(MOODS).map(lambda mood: f"Mia {mood}"), max_size=4)


def write(*criteria):
    return "".join(said.text for said in WORLD.tell_turns(EXAMPLE, [f"<step>{criterion}</step>" for criterion in criteria]))


def test_the_worked_example():
    scores = score_report([2, 1], [1, 0.5]), score_report([2, 1], [0.5, 1])
    assert scores == pytest.approx((0.8333, 0.6667), abs=1e-4)
    assert reward_rubric(scores[0] > scores[1], 0.5, True, 0.4) == pytest.approx(1.2)
    assert reward_rubric(True, 1.0, False, 0.4) == -1
    assert compute_effect_size(torch.tensor([1.0, 0.0]), torch.tensor([0.5, -0.5])) == pytest.approx(1.0)
    assert compute_effect_size(torch.ones(2), torch.ones(2)) == 0


@given(RUBRICS, STORIES, STORIES)
def test_scores_are_those_of_the_readers_rule(rubric, preferred, other):
    judged = judge_pair(rubric, [preferred, other])
    assert score_report(list(rubric.values()), judged[0]) == pytest.approx(rate_story(rubric, preferred))
    assert score_report(list(rubric.values()), judged[1]) == pytest.approx(rate_story(rubric, other))
    quality = rate_discrimination(*judged)
    assert 0 <= quality <= 1
    if score_report(list(rubric.values()), judged[0]) > score_report(list(rubric.values()), judged[1]):
        assert quality > 0


@pytest.mark.parametrize(
    ("text", "reward"),
    [
        (write("sings 3", "laughs 1"), 1 + 0.4),
        (write("sings 1", "hides 5"), 1 + 0.2),  # hides says nothing of either report
        (write("cries 2", "sings 1"), 0.4),
        (write("hides 1", "screams 1"), 0.0),
        (write("sings 3", "sings 3"), -1),
        (write("sings 3", "flies 1"), -1),
        ("<step>sings 3</step>", -1),
        ("<step>sings 3</step><information>good</information><step>laughs 1</step>", -1),
        ("sings", -1),
        ("", -1),
    ],
)
def test_what_a_rubric_earns(text, reward):
    method = QueryRubrics()
    method.prepare(SimpleNamespace(task=WORLD))
    batch = rollout_batch([0, 0], 2, texts=[text, text], examples=[EXAMPLE] * 2)
    assert method.rewards(batch, batch.reward).tolist() == pytest.approx([reward] * 2)
    logged = method.collect()
    assert logged["readable"] == (reward >= 0)
    assert logged["preferred"] == (reward >= 1)


def test_the_readers_weights_are_not_paid_for():
    """Two rubrics of which one has their weights earn the same where both prefer as readers do."""
    assert read_rubric(WORLD, EXAMPLE, write("sings 3", "laughs 1")) == GENRES["merry"]
    method = QueryRubrics(Config(quality=0.0))
    method.prepare(SimpleNamespace(task=WORLD))
    texts = [write("sings 3", "laughs 1"), write("sings 5", "hides 1")]
    batch = rollout_batch([0, 0], 2, texts=texts, examples=[EXAMPLE] * 2)
    assert method.rewards(batch, torch.tensor([1.5, 0.7])).tolist() == [1, 1]


@pytest.mark.parametrize(("kind", "problems"), [("rubric", []), ("story", ["task.options.write"])])
def test_it_needs_the_world_of_rubrics(tmp_path, kind, problems):
    spec = make_spec(tmp_path, task={"name": "stories", "options": {"write": kind}}, methods=[{"name": "query-rubrics"}])
    assert [problem.field for problem in stacking.check_stack(spec, entries_for(spec)).problems] == problems


@pytest.mark.training
def test_two_real_steps(two_steps, written_episodes):
    trained = two_steps("query-rubrics", base="grpo", task=TASK, **written_episodes)
    for rollout in trained.rollouts:
        paid = rollout.shaped["query-rubrics"]
        assert paid == -1 or (paid >= 1) == (rollout.rewards["correct"] == 1)
    assert {rollout.shaped["query-rubrics"] for rollout in trained.rollouts} >= {-1.0}
    assert all(0 < step["query-rubrics/readable"] < 1 for step in trained.steps)
