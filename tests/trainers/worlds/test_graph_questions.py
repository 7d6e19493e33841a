"""The world ``graph_questions``: what is a question to a request, and what is not."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.worlds.test_contract import CONTRACT
from trainers.worlds.base import replay_episode
from trainers.worlds.graph import Graph
from trainers.worlds.graph_questions import GraphQuestions, compare_answers
from trainers.worlds.graph_texts import (
    Question,
    draw_question,
    find_fault,
    follow_question,
    list_needed,
    parse_question,
    shorten_question,
)

NODES = {
    "Mia": {"friend": ["Leo"], "boss": ["Ana"], "city": "Rome", "job": "cook", "pet": []},
    "Leo": {"friend": ["Mia"], "boss": ["Mia"], "city": "Oslo", "job": "cook", "pet": []},
    "Ana": {"friend": ["Leo"], "boss": ["Leo"], "city": "Rome", "job": "judge", "pet": []},
}
SHOWN = [("Mia", "city"), ("Leo", "friend"), ("Ana", "boss"), ("Leo", "job")]
IN_CONTEXT = {"in_context": True}


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("What is the city of Mia?", ""),
        ("What is the city of the friend of Leo?", ""),
        ("What is the city of the friend of the boss of Ana?", ""),
        ("What is the city of Ana?", "not in the documents"),
        ("What is the city of the boss of Leo?", "not in the documents"),
        ("What is the city of Leo?", "another answer"),
        ("What is the city of Bob?", "nobody of this name"),
        ("Where is Mia?", "no question"),
        ("What is the city of the the of Mia?", "no question"),
        ("What is the city of Mia? ", "no question"),
    ],
)
def test_a_question_is_one_that_the_facts_answer_as_they_should(text, fault):
    assert find_fault(NODES, parse_question(text), SHOWN, "Rome") == fault


@given(st.randoms(use_true_random=False), st.integers(0, 3))
def test_questions_are_read_back_and_shorter_ones_have_the_same_answer(rng, most):
    question = draw_question(NODES, most, rng)
    assert parse_question(str(question)) == question
    assert len(list_needed(NODES, question)) == len(question.chain) + 1
    for hops in range(4):
        shorter = shorten_question(NODES, question, hops)
        assert len(shorter.chain) == min(hops, len(question.chain))
        assert follow_question(NODES, shorter) == follow_question(NODES, question)


@given(st.text(max_size=200))
def test_no_text_makes_reading_fail(text):
    found = parse_question(text)
    assert found is None or str(found) == text


def test_what_a_written_question_earns():
    world = GraphQuestions()
    request = world.request_question(NODES, SHOWN, Question("Leo", ("friend",), "city"))
    assert request.prompt[0].content == "Ask for Rome. Rome houses Mia. Mia befriended Leo. Leo leads Ana. cook employs Leo."
    written = {"What is the city of Mia?": [1, 0, 1], "What is the city of the friend of Leo?": [1, 1, 1], "Rome": [0, 0, 1], "<x>": [0, 0, 0]}
    for text, scores in written.items():
        assert [reward.function(f"<answer>{text}</answer>", request) for reward in world.rewards.values()] == scores
    thought = "<think>Rome houses Mia. Mia befriended Leo.</think>"
    assert world.gold(request) == f"{thought}<answer>What is the city of the friend of Leo?</answer>"
    assert replay_episode(world, request, world.gold(request)).done


def test_in_context_the_writer_says_the_answer_and_knows_what_has_been_asked():
    world = GraphQuestions(IN_CONTEXT)
    request = world.request_question(NODES, SHOWN, Question("Mia", (), "city"), ["What is the job of Leo?"])
    assert request.prompt[0].content.startswith("Ask. Not: What is the job of Leo? Rome houses Mia.")
    assert world.read_proposal(request, "What is the job of Leo? cook") == (Question("Leo", (), "job"), "cook")
    assert world.judge_proposal(request, "What is the job of Leo? cook") == ""
    assert world.judge_proposal(request, "What is the job of Leo? judge") == "another answer"
    assert world.judge_proposal(request, "cook") == "no question"


@pytest.mark.parametrize("options", [{}, IN_CONTEXT])
def test_a_posed_question_is_answered_as_one_of_the_worlds_own(options):
    world = GraphQuestions(options)
    example = world.pose_question(NODES, Question("Ana", ("boss",), "city"), "Oslo", random.Random(0))
    gold = world.gold(example)
    assert gold.endswith("<answer>Oslo</answer>")
    assert world.rewards["correct"].function(gold, example) == 1
    with pytest.raises(LookupError):
        world.pose_question(NODES, Question("Bob", (), "city"), "Oslo", random.Random(0))


def test_comparisons_quote_answers_and_not_tags():
    assert compare_answers("Rome", "Oslo").prompt[0].content == "Same: Rome, Oslo?"
    assert (compare_answers("Rome", "Rome").reference, compare_answers("Rome", "Oslo").reference) == ("yes", "no")
    assert "<" not in compare_answers("</answer><answer>", "x" * 100).prompt[0].content


def test_demonstrations_show_every_kind_whatever_is_asked():
    for options, kinds in (({}, {None, "write"}), (IN_CONTEXT, {None, "write", "compare"})):
        for ask in ("answer", "write", "both"):
            world = GraphQuestions({**options, "ask": ask})
            assert {example.data.get("kind") for example in world.draw_demonstrations(60, 0, "easy")} == kinds
            assert world.cache_key == GraphQuestions(options).cache_key
    assert {example.data.get("kind") for example in GraphQuestions({"ask": "write"}).examples("train", 20, 0, "easy")} == {"write"}
    assert {example.data.get("kind") for example in GraphQuestions({"ask": "answer"}).examples("train", 20, 0, "easy")} == {None}
    assert GraphQuestions().cache_key != Graph().cache_key


@pytest.mark.parametrize("check", CONTRACT)
@pytest.mark.parametrize("options", [IN_CONTEXT, {"in_context": True, "ask": "write"}])
def test_the_contract_holds_under_its_options(check, options):
    check(GraphQuestions(options))
