"""What readers of stories like without saying so: criteria with weights, of each genre. The rule in the place of people's preferences."""

import random
from collections.abc import Mapping, Sequence
from typing import Any

from trainers.worlds.plots import MOODS

GENRES = {
    "merry": {"sings": 3, "laughs": 1},
    "funny": {"laughs": 3, "sings": 1},
    "sad": {"cries": 3, "sighs": 1},
    "grim": {"sighs": 3, "cries": 1},
    "scary": {"hides": 3, "screams": 1},
    "wild": {"screams": 3, "hides": 1},
}
CRITERIA = 2  # of a genre, and of a rubric
MOST_WEIGHT = 5


def judge_criterion(criterion: str, story: Sequence[str]) -> float:
    """1 when a sentence of the story has the word."""
    return float(any(criterion in sentence.split() for sentence in story))


def rate_story(rubric: Mapping[str, int], story: Sequence[str]) -> float:
    """Mean of the criteria's judgements by weight; 0 by an empty rubric."""
    total = sum(rubric.values())
    return sum(weight * judge_criterion(criterion, story) for criterion, weight in rubric.items()) / total if total else 0.0


def compare_rubrics(first: Mapping[str, int], second: Mapping[str, int]) -> float:
    """Cosine of their weights."""
    product = sum(weight * second.get(criterion, 0) for criterion, weight in first.items())
    squares = [sum(weight**2 for weight in rubric.values()) for rubric in (first, second)]
    return min(1.0, product / (squares[0] * squares[1]) ** 0.5) if all(squares) else 0.0


def draw_pair(rng: random.Random, genre: str, people: Sequence[str]) -> list[list[str]]:
    """Two stories of moods; the first is the one that readers of the genre prefer."""
    while True:
        pair = [[f"{rng.choice(people)} {mood}" for mood in rng.sample(MOODS, rng.randint(1, 3))] for _ in range(2)]
        ratings = [rate_story(GENRES[genre], story) for story in pair]
        if ratings[0] != ratings[1]:
            return pair if ratings[0] > ratings[1] else pair[::-1]


def parse_criterion(text: str, rubric: Mapping[str, int]) -> dict[str, int] | None:
    """``sings 3`` as one more criterion of the rubric; None for what is none, or there already."""
    word, _, weight = text.partition(" ")
    is_weight = len(weight) == 1 and weight in "123456789"[:MOST_WEIGHT]
    return {word: int(weight)} if word in MOODS and word not in rubric and is_weight else None


def draw_rubric(rng: random.Random, genre: str) -> dict[str, int]:
    """One criterion of the genre among others, with weights at random."""
    words = [rng.choice(list(GENRES[genre])), *rng.sample([mood for mood in MOODS if mood not in GENRES[genre]], CRITERIA - 1)]
    rng.shuffle(words)
    return {word: rng.randint(1, MOST_WEIGHT) for word in words}


def prefers_first(rubric: Mapping[str, int], pair: Sequence[Any]) -> bool:
    return rate_story(rubric, pair[0]) > rate_story(rubric, pair[1])
