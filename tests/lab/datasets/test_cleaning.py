"""Cleaners against sets whose wrong labels are known, and the cards' own examples."""

from __future__ import annotations

import random

import pytest

from lab.data.datasets.cleaning import LabelEvidence, estimate_label_posterior, score_suspicions
from lab.data.datasets.rules import Cleaning

NOISE = 0.3


def noisy(people: int, votes: int, functions: float = 0.0, pairs: int = 1000, seed: int = 0) -> tuple[list[LabelEvidence], list[bool]]:
    """Pairs whose truth is known. Each label is wrong with probability NOISE; reward functions are right with probability ``functions``.

    Returns the evidence about each label that the majority gives, and whether that label is wrong.
    """
    rng = random.Random(seed)
    found, wrong = [], []
    while len(found) < pairs:
        who = rng.sample(range(people), votes)
        truth = [1 if rng.random() > NOISE else -1 for _ in who]
        if not sum(truth):
            continue
        label = 1 if sum(truth) > 0 else -1
        rewards = {f"r{n}": label * (1.0 if rng.random() < functions else -1.0) for n in range(3)} if functions else {}
        found.append(LabelEvidence([(user, said * label) for user, said in zip(who, truth, strict=True)], rewards, seconds=5.0))
        wrong.append(label < 0)
    return found, wrong


def quality(evidence: list[LabelEvidence], wrong: list[bool], cleaning: Cleaning) -> tuple[float, float]:
    bad = [one.score > cleaning.threshold for one in score_suspicions(evidence, cleaning)]
    hits = sum(one and truth for one, truth in zip(bad, wrong, strict=True))
    return hits / max(1, sum(bad)), hits / sum(wrong)


@pytest.mark.parametrize(("name", "precision", "recall"), [("labellers", 0.75, 0.75), ("rewards", 0.7, 0.85)])
def test_three_labels_in_ten_flipped_are_found_far_beyond_chance(name: str, precision: float, recall: float) -> None:
    evidence, wrong = noisy(people=4, votes=1, functions=0.85)
    assert 0.25 < sum(wrong) / len(wrong) < 0.35  # what chance would give as precision
    found = quality(evidence, wrong, Cleaning(by=(name,)))
    assert found[0] > precision
    assert found[1] > recall


def test_a_labeller_who_is_often_wrong_is_known_by_the_others() -> None:
    rng = random.Random(1)
    evidence, wrong = [], []
    for _ in range(600):
        careless = -1 if rng.random() < 0.45 else 1
        others = [-1 if rng.random() < 0.05 else 1 for _ in range(2)]
        label = 1 if careless + sum(others) > 0 else -1
        evidence.append(LabelEvidence([(0, careless * label), (1, others[0] * label), (2, others[1] * label)]))
        wrong.append(label < 0)
    _, reliability = estimate_label_posterior(evidence)
    assert reliability["user 0"] == pytest.approx(0.55, abs=0.06)
    assert reliability["user 1"] == pytest.approx(0.95, abs=0.06)  # a little less: it is estimated with the truth unknown


def test_votes_and_gaps_of_the_card() -> None:
    votes = [LabelEvidence(rewards={f"r{n}": 1.0 if n < agree else -1.0 for n in range(6)}) for agree in (0, 2, 3, 6)]
    majority = [one.score > 0.5 for one in score_suspicions(votes, Cleaning(by=("rewards",)))]
    everybody = [one.score > 0.5 for one in score_suspicions(votes, Cleaning(by=("rewards",), vote="all"))]
    assert majority == [True, True, False, False]
    assert everybody == [True, False, False, False]
    gaps = [LabelEvidence(gap=gap) for gap in (-2, 0.1, 3, 1)]
    assert [one.score > 0.5 for one in score_suspicions(gaps, Cleaning(by=("gap",), gap_share=0.25))] == [True, False, False, False]


def test_labels_given_too_fast_are_suspect_and_ties_are_no_votes() -> None:
    cleaning = Cleaning(by=("speed", "labellers"), min_seconds=2)
    fast, slow = score_suspicions([LabelEvidence([(1, 0)], seconds=0.5), LabelEvidence([(1, 0)], seconds=2.0)], cleaning)
    assert fast.score == pytest.approx(0.875)
    assert slow.score == 0.5
    assert fast.reasons == ["judged in 0.5 s"]
    assert score_suspicions([], cleaning) == []
