"""The world ``number_traces``: what a text earns, and what demonstrations are like under each option."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.worlds.test_contract import CONTRACT
from trainers.contract.hyperparameters import SFT
from trainers.policies import tiny
from trainers.policies.sampling import chat_ids
from trainers.worlds.number_traces import BACK, NumberTraces, is_solution, make_path_example
from trainers.worlds.rewrites import RULES

EXAMPLE = make_path_example(4, 11, 2)
OPTIONS = st.fixed_dictionaries(
    {
        "dead_ends": st.integers(0, 4),
        "varied": st.booleans(),
        "contents": st.sampled_from(["right", "wrong", "shuffled"]),
        "answers_only": st.booleans(),
        "moves": st.integers(0, 4),
    }
)


@pytest.mark.parametrize(
    ("text", "scores"),
    [
        ("<think>4 +3 7 back 0 4 *2 8 +3 11</think><answer>*2 +3</answer>", (1, 1, 1)),
        ("<answer>*2 +3</answer>", (1, 1, 0)),
        ("<think>back</think><answer>+3 *2</answer>", (0, 1, 1)),
        ("<answer>*2 +3 +3 -1 -1 -1</answer>", (0, 1, 0)),  # too many moves
        ("<answer>11</answer>", (0, 0, 0)),
        ("<answer></answer>", (0, 0, 0)),
        ("<think>4 *2 8 +3 11</think>", (0, 0, 0)),
        ("*2 +3", (0, 0, 0)),
    ],
)
def test_what_a_text_earns(text, scores):
    assert tuple(reward.function(text, EXAMPLE) for reward in NumberTraces().rewards.values()) == scores


def test_a_number_out_of_range_is_no_way():
    assert not is_solution(make_path_example(99, 98, 1), "+3 -1")
    assert is_solution(make_path_example(99, 98, 1), "-1")


def follow_trace(text):
    """Checks every step and way back of a trace that is in order; the numbers along the path it ends with."""
    start, *words = text.partition("<think>")[2].partition("</think>")[0].split()
    path, backs = [int(start)], 0
    while words:
        if words[0] == BACK:
            (_, step, number), words = words[:3], words[3:]
            path, backs = path[: int(step) + 1], backs + 1
            assert path[-1] == int(number)
        else:
            (rule, number), words = words[:2], words[2:]
            assert RULES[rule](path[-1]) == int(number)
            path.append(int(number))
    return path, backs


@given(OPTIONS, st.integers(0, 30))
def test_demonstrations_are_as_the_options_say(options, seed):
    world = NumberTraces(options)
    example = world.example(random.Random(seed), "hard")
    text = world.demonstration(example, random.Random(seed))
    right = world.rewards["correct"].function(text, example)
    assert options["moves"] in (0, example.data["moves"])
    if options["answers_only"]:
        assert (right, "think" in text) == (1, False)
        return
    assert right == (options["contents"] != "wrong")
    assert world.rewards["format"].function(text, example) == 1
    if options["contents"] == "shuffled":
        return
    path, backs = follow_trace(text)
    assert (path[-1] == example.data["goal"]) == (options["contents"] == "right")
    assert backs <= options["dead_ends"]
    if example.data["moves"] > 2 and options["contents"] == "right" and not options["varied"]:
        assert backs == options["dead_ends"], "long ways have as many dead ends as there are asked for"


def test_varied_demonstrations_have_from_none_to_so_many_dead_ends():
    world, rng = NumberTraces({"dead_ends": 3, "varied": True}), random.Random(0)
    example = world.example(rng, "hard")
    assert {follow_trace(world.demonstration(example, rng))[1] for _ in range(60)} == {0, 1, 2, 3}


def test_gold_and_the_problem_read_from_its_prompt_are_right():
    world = NumberTraces()
    for example in world.examples("train", 20, 0, "medium"):
        assert world.rewards["correct"].function(world.gold(example), example) == 1
        assert world.read(example.prompt[0].content) == example
    assert world.read("From 4 to 11 in 3 moves.") is None, "there is a shorter way"


def test_demonstrations_under_all_options_fit_into_the_sequences_of_the_cold_start():
    world = NumberTraces({"dead_ends": 4, "moves": 4})
    tokenizer = tiny.build_tokenizer(tiny.find_family(world).texts, tiny.find_family(world).tags)
    rng = random.Random(0)
    for example in world.examples("train", 200, 0, "hard"):
        prompt, text = chat_ids(tokenizer, [example.prompt])[0], world.demonstration(example, rng)
        assert len(prompt) + len(tokenizer.encode(text, add_special_tokens=False)) < SFT().max_length


def test_options_change_neither_the_vocabulary_nor_the_untrained_policy_but_the_first_one():
    worlds = [NumberTraces(), NumberTraces({"dead_ends": 3}), NumberTraces({"answers_only": True})]
    assert {world.family for world in worlds} == {"number_traces"}
    assert len({world.cache_key for world in worlds}) == 3


@pytest.mark.parametrize("check", CONTRACT, ids=lambda check: check.__name__)
def test_what_every_world_keeps_holds_for_long_searches_too(check):
    check(NumberTraces({"dead_ends": 2, "moves": 3}))
