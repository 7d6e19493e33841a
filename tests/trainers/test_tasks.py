"""What every built-in task promises: its gold answer, its split, its determinism, and scoring that survives any text."""

import random
import time
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainers.contract.events import Message
from trainers.methods.question_slots import QuestionSlot
from trainers.tasks.base import Example, Task, digest_example, digest_prompt
from trainers.tasks.registry import BUILT_IN

TASKS = [kind() for kind in BUILT_IN]
SETTINGS = [(task, difficulty) for task in TASKS for difficulty in task.difficulties]

tags = st.sampled_from(["<think>", "</think>", "<answer>", "</answer>", "<search>", "</search>", "<information>", "</information>"])
words = st.sampled_from(["3+3=6", "11-1=10", "10", "Tue+2=Thu", "Monday", "Leo friend", "Leo", "none", " ", "\n", "=", "<", "\0", "\ud800", "٣+٣=٦"])
completions = st.lists(st.one_of(tags, words, st.text(st.characters(), max_size=8)), max_size=14).map("".join)


def examples_for(task: Task, seed: int = 0, count: int = 40, difficulty: str = "easy") -> list[Example]:
    return task.examples("train", count, seed, difficulty)


def test_an_example_has_the_digest_of_its_prompt_and_data_and_a_slot_that_of_the_question_it_took():
    example = Example([Message("user", "2+2?")], "4", {"steps": 1})
    assert digest_example(example) == digest_prompt(example.prompt, example.data) == bytes.fromhex("7dab671289a12353c007157fdbdd5ac9")
    other = replace(example, data={"steps": 2})
    assert digest_example(other) != digest_example(example)
    assert example == Example(example.prompt, "4", {"steps": 1}), "a digest that is kept is no part of an example"
    slot = QuestionSlot(list(example.prompt), "4", dict(example.data))
    assert digest_example(slot) == digest_example(example)
    slot.take(other)
    assert digest_example(slot) == digest_example(other)


@pytest.mark.parametrize(("task", "difficulty"), SETTINGS, ids=lambda value: getattr(value, "name", value))
def test_the_gold_answer_gets_the_full_reward_of_every_function(task, difficulty):
    for example in task.examples("train", 200, 3, difficulty):
        gold = task.gold(example)
        assert {name: reward.function(gold, example) for name, reward in task.rewards.items()} == dict.fromkeys(task.rewards, 1.0)


@pytest.mark.parametrize(("task", "difficulty"), SETTINGS, ids=lambda value: getattr(value, "name", value))
def test_heldout_and_pair_examples_never_occur_in_training(task, difficulty):
    train = {digest_example(example) for seed in range(3) for example in task.examples("train", 1500, seed, difficulty)}
    heldout = {digest_example(example) for example in task.examples("heldout", 500, 0, difficulty)}
    pairs = {digest_example(example) for example in task.examples("pairs", 500, 0, difficulty)}
    assert len(train) > 1000
    assert len(heldout) == 500
    assert not train & heldout
    assert not train & pairs
    assert not heldout & pairs


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_examples_follow_from_the_seed_and_heldout_ones_do_not(task):
    assert examples_for(task, seed=5) == examples_for(task, seed=5)
    assert examples_for(task, seed=5) != examples_for(task, seed=6)
    assert task.examples("heldout", 20, 1, "easy") == task.examples("heldout", 20, 2, "easy")


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_asking_for_more_examples_keeps_the_first_ones(task):
    assert examples_for(task, count=50)[:20] == examples_for(task, count=20)


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_an_unknown_difficulty_is_refused_with_the_known_ones(task):
    with pytest.raises(ValueError, match="use one of easy, medium, hard"):
        task.examples("train", 1, 0, "impossible")


def test_a_task_with_few_examples_repeats_them_instead_of_searching_for_ever():
    class Coin(type(TASKS[0])):
        def example(self, rng, difficulty):
            return Example([], rng.choice("abcdefghijklmnopqrstuvwxyz"), {"side": rng.randint(0, 40)})

    assert len(Coin().examples("heldout", 300, 0, "easy")) == 300


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
@given(text=completions)
@settings(max_examples=300, deadline=None)
def test_scoring_any_text_gives_a_number_between_0_and_1_or_no_opinion(task, text):
    for example in examples_for(task, count=3):
        for reward in task.rewards.values():
            value = reward.function(text, example)
            assert value is None or 0.0 <= value <= 1.0


HOSTILE = [
    "<think>" * 25_000,
    "<think>" + "1" * 200_000 + "+1=2</think><answer>3</answer>",
    "<think>" + "3+3=6 " * 33_000 + "</think><answer>6</answer>",
    "<think>" + " " * 200_000,
    "<search>" * 25_000,
    "<search>" + "a" * 200_000 + "</search>",
    ("<search>Leo friend</search><information>none</information>") * 4_000 + "<answer>Rome</answer>",
    "<answer>" + "</answer>" * 22_000,
    "\0" * 200_000,
    "\ud800" * 200_000,
    "<" * 200_000,
]


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: ascii(text[:16]))
def test_hostile_completions_are_scored_quickly(task, text):
    example = examples_for(task, count=1)[0]
    started = time.process_time()
    scores = {name: reward.function(text, example) for name, reward in task.rewards.items()}
    task.respond(example, text)
    assert time.process_time() - started < 0.25
    assert scores["correct"] == 0.0


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_brevity_has_no_opinion_on_silence_or_a_wrong_answer(task):
    brevity = task.rewards["brevity"].function
    example, other = examples_for(task, count=1)[0], "no such answer"
    assert brevity("", example) is None
    assert brevity("<think></think><answer></answer>", example) is None
    assert brevity(f"<answer>{other}</answer>", example) is None


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_correctness_alone_makes_the_default_reward(task):
    weights = {name: reward.weight for name, reward in task.rewards.items()}
    assert next(iter(weights)) == "correct"
    assert weights.pop("correct") == 1.0
    assert all(abs(weight) <= 0.1 for weight in weights.values())


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_examples_of_a_dataset_without_data_are_scored_by_their_reference(task):
    example = Example(examples_for(task, count=1)[0].prompt, "Monday")
    form = "<answer>Monday</answer>" if task.name == "kb" else "<think></think><answer>Monday</answer>"
    scores = {name: reward.function(form, example) for name, reward in task.rewards.items()}
    assert scores.pop("correct") == 1.0
    assert scores.pop("format") == 1.0
    assert set(scores.values()) == {None}
    with pytest.raises(LookupError):
        task.gold(example)


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_demonstrations_have_the_mixed_quality_they_are_said_to_have(task):
    """The share of right ones is the careful share plus lucky guesses; every demonstration is well formed."""
    rng, examples = random.Random(0), task.examples("train", 3000, 0, "easy")
    texts = [task.demonstration(example, rng) for example in examples]
    right = sum(task.rewards["correct"].function(text, example) for text, example in zip(texts, examples, strict=True)) / len(texts)
    formed = sum(task.rewards["format"].function(text, example) for text, example in zip(texts, examples, strict=True)) / len(texts)
    gold = sum(text == task.gold(example) for text, example in zip(texts, examples, strict=True)) / len(texts)
    careful = {"mini_gsm": 0.40, "kb": 0.25, "calendar": 0.40}[task.name]
    assert f"{careful * 100:.0f} %" in task.demonstrations
    assert "mixed quality" in task.demonstrations
    assert abs(gold - careful) < 0.03
    assert careful < right < careful + 0.16
    assert formed == 1.0
