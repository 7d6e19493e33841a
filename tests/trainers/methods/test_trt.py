"""TRT: how the list of wrong answers grows, what is selected, and what stands in the prompt of the next round."""

import random
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.methods.turn_scripts import script_turns
from trainers.methods.worlds.trt import TRT, WRONG, Config, add_report, pick_most_frequent
from trainers.policies import tiny
from trainers.worlds.rewrites import Rewrites, draw_way, list_wrong_ways, make_example, reaches_goal

EXAMPLE = make_example(4, 11, 3, 2)  # *2 +3


def move(*rules):
    return [f"<move>{rule}</move>" for rule in rules]


def test_the_worked_example():
    answers, reports = ["12", "12", "15", "15", "9", "12", "15"], []
    for number, (before, now) in enumerate(pairwise(answers)):
        if now != before:
            reports = add_report(reports, (before, f"e{number}"), 2)
    assert [answer for answer, _ in reports] == ["12", "9", "15", "12"]
    third = add_report(reports, ("12", "e9"), 2)
    assert [one for one in third if one[0] == "12"] == [("12", "e9"), reports[0]]


@given(st.lists(st.sampled_from(["9", "12", "15"])), st.integers(1, 3))
def test_no_answer_has_more_reports_than_are_kept(answers, kept):
    reports = []
    for answer in answers:
        reports = add_report(reports, (answer, "why"), kept)
    assert all(count <= kept for count in Counter(answer for answer, _ in reports).values())
    assert {answer for answer, _ in reports} == set(answers)


def test_the_first_of_equally_frequent_answers_is_picked():
    assert pick_most_frequent(["a", "b", "b", "a"]) == 0
    assert pick_most_frequent(["a", "b", "b"]) == 1


def test_demonstrations_avoid_the_ways_in_their_lists():
    world, rng = Rewrites({"lists": True}), random.Random(0)
    examples = world.draw_demonstrations(200, 0, "easy")
    listed = [example for example in examples if "wrong" in example.data]
    assert 60 < len(listed) < 140
    for example in listed:
        ways = example.data["wrong"]
        assert example.prompt[-1].content.endswith(f" Not {', '.join(ways)}.")
        assert not any(reaches_goal(example, way.split()) for way in ways)
        assert " ".join(draw_way(example, rng, ways)) not in ways
    assert all("wrong" not in example.data for example in Rewrites().draw_demonstrations(50, 0, "easy"))


def test_without_the_option_vocabulary_and_policy_are_as_they_were():
    assert Rewrites().family == Rewrites({"lists": False}).family == "rewrites"
    assert Rewrites({"lists": True}).family != "rewrites"
    assert tiny.find_family(Rewrites()).tags == tiny.find_family(Rewrites({"lists": True})).tags


@pytest.fixture
def make_rounds(make_session, monkeypatch):
    """A session on one problem, whose episodes go the given ways, and the method."""

    def make(ways, **config):
        session = make_session(Rewrites({"lists": True}))
        session.examples, session.prompts = [EXAMPLE], [list(EXAMPLE.prompt)]
        said = iter([turn for way in ways for turn in move(*way)])
        script_turns(monkeypatch, lambda number, text: next(said))
        method = TRT(Config(**config))
        method.prepare(session.run)
        return session, method

    return make


def test_a_wrong_answer_that_is_given_up_stands_in_the_next_prompt(make_rounds):
    session, method = make_rounds([["-1"] * 3, ["+3"] * 3, ["*2", "+3"]])
    (made,) = method.rollout(session)
    assert session.is_right(made.row.leaf)
    assert session.prompts[0][0].content == "From 4 to 11 in 3 moves. Not -1 -1 -1."
    logged = method.collect()
    assert [logged[f"accuracy_{number}"] for number in range(1, 5)] == [0, 0, 1, 1]  # the fourth round writes nothing: the answer is done
    assert made.row.leaf.facts["answers"] == ["-1 -1 -1", "+3 +3 +3", "*2 +3"]
    assert session.run.store.items(WRONG)[0] == {"problem": EXAMPLE.prompt[0].content, "answer": "-1 -1 -1", "why": "ends at 1"}
    assert [answer for answer, _ in method.recall_reports(EXAMPLE)] == ["+3 +3 +3", "-1 -1 -1"]


def test_held_out_problems_teach_nothing(make_rounds):
    session, method = make_rounds([["-1"] * 3, ["+3"] * 3, ["*2", "+3"]])
    session.learns = False
    method.rollout(session)
    assert session.run.store.size(WRONG) == 0


def test_a_vote_neither_checks_nor_lists(make_rounds):
    session, method = make_rounds([["*2", "+3"], ["+3"] * 3, ["+3"] * 3, ["-1"] * 3], select="vote")
    (made,) = method.rollout(session)
    assert not session.is_right(made.row.leaf)  # two of four went wrong alike
    assert session.prompts[0] == EXAMPLE.prompt
    assert session.run.store.size(WRONG) == 0


def test_without_a_list_every_round_has_the_same_prompt(make_rounds):
    session, method = make_rounds([["-1"] * 3, ["+3"] * 3, ["*2", "+3"]], kept=0)
    (made,) = method.rollout(session)
    assert session.is_right(made.row.leaf)
    assert session.prompts[0] == EXAMPLE.prompt


def test_one_round_of_one_answer_is_the_frozen_policy(make_rounds):
    session, method = make_rounds([["-1"] * 3], rounds=1)
    assert method.rollout(session)[0].text.startswith("<move>-1</move>")
    assert list_wrong_ways(EXAMPLE, []) is EXAMPLE


@pytest.mark.training
def test_two_real_rounds(two_steps):
    settings = {"task": {"name": "rewrites", "options": {"lists": True}}, "policy": {"kind": "tiny", "cold_start": False}}
    trained = two_steps("trt", {"rounds": 2}, trainer="procedure", training__max_completion_length=48, training__prompts=8, **settings)
    for step in trained.steps:
        assert {"trt/accuracy_1", "trt/accuracy_2", "trt/right_to_wrong"} <= step.keys()
        assert step["trt/right_to_wrong"] == 0
    assert len(trained.rollouts) == 16
