"""The world ``two_languages``: one set of problems in either language, held-out prompts in both, and what each column says."""

import random
from collections import Counter

import pytest

from tests.trainers.worlds.test_contract import CONTRACT
from trainers.attempt.cold_start import find_cold_start_task
from trainers.attempt.shared_cold_start import share_as_cold_start
from trainers.contract.spec import RunSpec
from trainers.policies import tiny
from trainers.tasks.base import Example, digest_example
from trainers.tasks.mini_gsm import SIZES
from trainers.worlds.two_languages import LANGUAGES, TwoLanguages, write_problem

BOTH = TwoLanguages()
OF = {language: TwoLanguages({"language": language}, 3) for language in LANGUAGES}
DATA = {"start": 3, "changes": [3, -1], "who": "Max", "item": 0, "verbs": [2, 3]}


@pytest.mark.parametrize("keeps", CONTRACT)
@pytest.mark.parametrize("world", OF.values(), ids=OF)
def test_it_keeps_what_every_world_keeps_in_one_language_too(keeps, world):
    keeps(world)


def test_a_problem_in_either_language():
    english, esperanto = (write_problem(DATA, language) for language in LANGUAGES)
    assert english.prompt[0].content == "Max has 3 apples, gets 3, drops 1. How many?"
    assert esperanto.prompt[0].content == "Max havas 3 pomojn, ricevas 3, faligas 1. Kiom?"
    assert BOTH.gold(english) == BOTH.gold(esperanto) == "<think>3+3=6 6-1=5</think><answer>5</answer>"
    assert english.reference == esperanto.reference == "5"


def test_the_languages_share_no_word_but_names_and_have_as_many():
    for part in ("items", "gains", "losses"):
        assert len({len(getattr(language, part)) for language in LANGUAGES.values()}) == 1
    words = [
        {word for part in (one.items, one.gains, one.losses, (one.has, one.ask)) for text in part for word in text.split()}
        for one in LANGUAGES.values()
    ]
    assert not words[0] & words[1]


@pytest.mark.parametrize("difficulty", SIZES)
def test_whatever_is_trained_the_problems_are_the_same(difficulty):
    first, second = (world.examples("train", 60, 3, difficulty) for world in OF.values())
    assert {example.data["language"] for example in first} == {"english"}
    assert {example.data["language"] for example in second} == {"esperanto"}
    assert [problem_of(example) for example in first] == [problem_of(example) for example in second]


def problem_of(example: Example) -> dict:
    return {name: value for name, value in example.data.items() if name != "language"}


def test_held_out_prompts_are_in_both_languages_and_their_problems_in_no_other_split():
    held = BOTH.examples("heldout", 300, 0, "easy")
    assert all(world.examples("heldout", 300, 9, "easy") == held for world in OF.values())
    assert min(Counter(example.data["language"] for example in held).values()) > 100
    known = {digest_example(write_problem(problem_of(example), "english")) for example in held}
    for world in (BOTH, *OF.values()):
        for split in ("train", "pairs"):
            others = world.examples(split, 300, 0, "easy")
            assert not known & {digest_example(write_problem(problem_of(example), "english")) for example in others}


def test_columns_speak_of_their_own_language_alone():
    example = write_problem(DATA, "esperanto")
    right, wrong = BOTH.gold(example), "<answer>4</answer>"
    assert score(BOTH, right, example) == {"correct": 1, "english": None, "esperanto": 1, "trained": 1, "format": 1}
    assert score(OF["english"], right, example) == {"correct": 1, "english": None, "esperanto": 1, "trained": None, "format": 1}
    assert score(OF["esperanto"], wrong, example) == {"correct": 0, "english": None, "esperanto": 0, "trained": 0, "format": 1}
    assert score(OF["esperanto"], "5", example) == {"correct": 0, "english": None, "esperanto": 0, "trained": 0, "format": 0}


def score(world: TwoLanguages, text: str, example: Example) -> dict:
    return {name: reward.function(text, example) for name, reward in world.rewards.items()}


def test_one_cold_start_serves_all_and_shows_both_languages_in_mixed_quality():
    starts = [find_cold_start_task(world) for world in (BOTH, *OF.values())]
    assert {world.cache_key for world in starts} == {"two_languages"}
    assert len({tiny.find_family(world).policy_name for world in (BOTH, *OF.values())}) == 1
    rng = random.Random(0)
    told = [(example, starts[1].demonstration(example, rng)) for example in starts[1].draw_demonstrations(600, 0, "easy")]
    assert min(Counter(example.data["language"] for example, _ in told).values()) > 200
    right = sum(BOTH.rewards["correct"].function(text, example) for example, text in told) / len(told)
    assert 0.4 < right < 0.55  # those that are worked out, and guesses that happen to be right


def test_demonstrations_in_one_language_are_right():
    world, rng = OF["esperanto"], random.Random(0)
    for example in world.draw_demonstrations(50, 0, "easy"):
        assert world.demonstration(example, rng) == world.gold(example)


def test_a_run_in_one_language_is_nobodys_cold_start(tmp_path, monkeypatch):
    monkeypatch.setenv("LAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("LAB_COLD_START_STEPS", "2")
    from trainers.attempt.cold_start import build_cold_start_config

    task = {"name": "two_languages", "options": {"language": "english"}}
    policy = {"kind": "tiny", "cold_start": False}
    spec = RunSpec(policy=policy, task=task, training=build_cold_start_config(), device="cpu", output=str(tmp_path))
    assert not share_as_cold_start(spec, tmp_path)
    assert not (tmp_path / "cache").exists()
