"""Agentar-Scale-SQL: the card's numbers, queries graded by what SQLite returns, choices that have one right side, and the round robin."""

import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.methods.batches import rollout_batch
from trainers.maths.advantages import z_score
from trainers.maths.tournament import count_wins, group_by_result, pick_majority, pick_winner
from trainers.methods.context import RunContext
from trainers.methods.worlds.agentar_scale_sql import AgentarScaleSQL, Config, build_choices, grade_query, read_queries, run_candidate
from trainers.worlds.tables import Tables

WORLD = Tables()
EXAMPLES = WORLD.examples("train", 8, 0, "hard")
OTHERS = ["SELECT COUNT(*) FROM people", "SELECT x FROM nowhere", "SELECT name FROM people", "SELECT age FROM people"]
COUNT, BROKEN, *_ = OTHERS


def test_the_worked_examples():
    assert z_score(torch.tensor([1.0, 0.1, 0.1, 0]), 4, 0.0).tolist() == pytest.approx([1.4924, -0.4264, -0.4264, -0.6396], abs=1e-3)
    beaten = {(0, 1): True, (0, 2): True, (1, 2): False}  # A beats B, A beats C, C beats B
    wins = count_wins(3, lambda one, other: beaten[one, other])
    assert wins == [2, 0, 1]
    assert pick_winner(wins, [1, 5, 1]) == 0
    assert pick_majority([1, 5, 1]) == 1


@pytest.mark.parametrize("example", EXAMPLES[:3])
def test_a_query_is_graded_by_what_it_returns(example):
    grades = [grade_query(example, query) for query in (example.data["query"], COUNT, BROKEN, "", None)]
    assert grades == [1.0, 1.0 if example.reference == "6" else 0.1, 0.0, 0.1, 0.0]


def test_the_last_query_of_an_episode_counts():
    example, method = EXAMPLES[0], AgentarScaleSQL()
    method.prepare(RunContext(type("Attempt", (), {"task": WORLD})))
    good, bad = f"<sql>{example.data['query']}</sql>", f"<sql>{BROKEN}</sql>"
    texts = [WORLD.write_episode(example, turns) for turns in ([good], [bad, good], [good, bad], ["<answer>1</answer>"])]
    assert read_queries(WORLD, example, texts[1]) == [BROKEN, example.data["query"]]
    assert method.rewards(rollout_batch([0] * 4, 4, texts=texts, examples=[example] * 4), torch.zeros(4)).tolist() == [1, 1, 0, 0]
    assert method.collect() == {"fails": 0.5, "runs": 0.0, "right": 0.5}


@given(
    st.sampled_from(EXAMPLES),
    st.lists(st.sampled_from([COUNT, BROKEN, "SELECT name FROM people", "SELECT age FROM people"])),
    st.booleans(),
    st.integers(0, 9),
)
def test_a_choice_has_one_right_side_and_wrong_ones_once(example, queries, with_gold, seed):
    queries = [*queries, *([example.data["query"]] if with_gold else [])]
    choices = build_choices(example, queries, random.Random(seed))
    wrong = {result for query in queries if (result := run_candidate(example, query)) not in (None, example.reference)}
    assert len(choices) == (len(wrong) if any(grade_query(example, query) == 1 for query in queries) else 0)
    for choice in choices:
        told = choice.prompt[0].content
        right, other = ((1, 2), (2, 1))[choice.reference == "2"]
        assert f"returns {example.reference}." in told.split(f" {right}: ")[1].split(f" {other}: ")[0]
        assert told.startswith(example.prompt[0].content)


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=8), st.randoms())
def test_a_round_robin_shares_out_all_games_and_a_judge_who_knows_finds_the_right_class(results, rng):
    groups = group_by_result(results)
    assert sorted(place for group in groups for place in group) == list(range(len(results)))
    right = rng.randrange(len(groups))
    wins = count_wins(len(groups), lambda one, other: one == right or (other != right and rng.random() < 0.5))
    assert sum(wins) == len(groups) * (len(groups) - 1) // 2
    assert pick_winner(wins, [len(group) for group in groups]) == right


def test_the_selector_is_paid_for_the_right_name_alone():
    method = AgentarScaleSQL(Config(role="selector"))
    assert method.rewards(rollout_batch([1, 0], 2), torch.zeros(2)).tolist() == [1, 0]
    assert AgentarScaleSQL().data([1, 2], None) == [1, 2]


@pytest.mark.training
def test_two_real_steps(two_steps, written_episodes):
    trained = two_steps("agentar-scale-sql", base="grpo", task={"name": "tables", "difficulty": "easy"}, **written_episodes)
    shaped = {round(rollout.shaped["agentar-scale-sql"], 6) for rollout in trained.rollouts}
    assert {0.0, 1.0} <= shaped <= {0.0, 0.1, 1.0}
    for step in trained.steps:
        assert sum(step[f"agentar-scale-sql/{name}"] for name in ("fails", "runs", "right")) == pytest.approx(1)
