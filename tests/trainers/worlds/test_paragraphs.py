"""The world ``paragraphs``: what is masked, how an episode goes, and what its demonstrations are worth."""

import random

from trainers.worlds.base import replay_episode
from trainers.worlds.paragraphs import Paragraphs, count_masks, unmask_example, write_example

FACTS = [["Eva", "friend", "Leo"], ["Leo", "city", "Rome"], ["Eva", "pet", "cat"], ["Ida", "boss", "Eva"]]


def scores(text: str) -> dict[str, float | None]:
    example = write_example(FACTS, [1, 0, 3, 2], [0, 3])
    return {name: reward.function(text, example) for name, reward in Paragraphs().rewards.items()}


def test_an_episode_by_hand() -> None:
    example = write_example(FACTS, [1, 0, 3, 2], [0, 3])
    assert example.prompt[0].content == "Fill in: Leo's city is _. Eva's friend is Leo. Ida's boss is Eva. Eva's pet is _."
    gold = (
        "<search>Leo's city</search><information>Leo's city is Rome.</information><fill>Rome</fill><information>1</information>"
        "<search>Eva's pet</search><information>Eva's pet is cat.</information><fill>cat</fill><information>0</information><answer></answer>"
    )
    assert Paragraphs().gold(example) == gold
    assert scores(gold) == {"correct": 1, "format": 1, "spans": 1, "evidence": 1}
    guessed = "<fill>Rome</fill><information>1</information><fill>dog</fill><information>0</information><answer></answer>"
    assert scores(guessed) == {"correct": 0, "format": 1, "spans": 0.5, "evidence": 0}
    assert scores("<answer>Rome cat</answer>") == {"correct": 0, "format": 1, "spans": 0, "evidence": 0}


def test_unmasking_shows_the_last_words_first() -> None:
    example = unmask_example(write_example(FACTS, [1, 0, 3, 2], [0, 3]), 1)
    assert example.prompt[0].content == "Fill in: Leo's city is _. Eva's friend is Leo. Ida's boss is Eva. Eva's pet is cat."
    assert (example.reference, example.data["evidence"]) == ("Rome", [1])


def test_masks_are_as_many_as_the_option_says() -> None:
    assert {count_masks(example) for example in Paragraphs({"masks": 3}).examples("train", 30, 0, "easy")} == {3}
    assert {count_masks(example) for example in Paragraphs().examples("train", 60, 0, "easy")} == {1, 2, 3, 4}


def test_demonstrations_with_many_masks_are_seldom_whole() -> None:
    world, rng = Paragraphs({"masks": 4}), random.Random(0)
    right: dict[bool, list[float]] = {True: [], False: []}
    for example in world.draw_demonstrations(400, 0, "easy"):
        text = "".join(said.text for said in world.turns(example, rng))
        assert replay_episode(world, example, text).done
        right[count_masks(example) > 2].append(world.rewards["correct"].function(text, example) or 0.0)
    few, many = (sum(right[key]) / len(right[key]) for key in (False, True))
    assert 0.45 < few < 0.7
    assert 0.15 < many < 0.35
