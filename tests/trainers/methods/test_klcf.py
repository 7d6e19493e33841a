"""KLCF: the card's numbers, what counts as known, and one term alone."""

import random
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.methods.batches import rollout_batch
from trainers.methods.worlds.klcf import CHECKLIST, KLCF, Config, count_checklist, find_checklist, score_claims
from trainers.tasks.base import Example
from trainers.worlds.profiles import TOPICS, Profiles

FACTS = {"city": "Rome", "pet": "cat", "boss": "Max", "job": "cook", "food": "rice", "coach": "Ben"}
EXAMPLE = Example([], "", {"facts": FACTS, "asked": list(FACTS), "stable": ["city"], CHECKLIST: [["city", "Rome"], ["pet", "cat"]]})
WORLD = Profiles()
CLAIMS = st.lists(st.tuples(st.sampled_from(TOPICS), st.sampled_from(["Rome", "cat", "Max", "cook", "none"])), max_size=6)


def make_rewards(answers, **config):
    method = KLCF(Config(**config))
    method.prepare(SimpleNamespace(task=WORLD))
    texts = [f"<answer>{answer}</answer>" for answer in answers]
    batch = rollout_batch([0.0] * len(texts), len(texts), texts=texts, examples=[EXAMPLE] * len(texts))
    return method.rewards(batch, batch.reward).tolist()


def test_the_cards_numbers():
    checklist = [("city", "Rome"), ("pet", "cat"), ("boss", "Max"), ("job", "cook"), ("food", "rice")]
    claims = [("city", "Rome"), ("pet", "cat"), ("boss", "Max"), ("job", "judge")]
    assert count_checklist(claims, checklist) == (3, 1)
    scores = score_claims(claims, checklist, [True, True, False])
    assert (scores.recall, scores.precision) == (0.6, 0.75)
    assert scores.recall + scores.precision + 0.7 + 0.1 * 0.5 == pytest.approx(2.1)  # tru and gen as on the card


def test_rewards_of_a_group():
    answers = ["city Rome, pet cat", "city Rome, pet dog", "city Rome, boss Leo", "", "Rome"]
    assert make_rewards(answers) == pytest.approx([3.1, 0.5 + 0.5 + 0.5 + 0.1, 0.5 + 1 + 0.5 + 0.1, 0.1, 0.0])
    alone = {"precision": 0.0, "general": 0.0}
    assert make_rewards(answers, truth=0.0, **alone) == [1, 0.5, 0.5, 0, 0]
    assert make_rewards(answers, recall=0.0, **alone) == [1, 0.5, 0.5, 0, 0]


@given(CLAIMS, CLAIMS)
def test_scores_are_shares_and_a_further_false_claim_pays_nothing(claims, checklist):
    checklist = list({topic: (topic, value) for topic, value in checklist}.values())
    truths = [FACTS.get(topic) == value for topic, value in claims]
    before = score_claims(claims, checklist, truths)
    after = score_claims([*claims, ("sister", "nobody")], checklist, [*truths, False])
    for name in ("recall", "precision", "truth"):
        assert 0 <= getattr(after, name) <= getattr(before, name) <= 1
    assert score_claims(None, checklist, []).general == 0


def test_an_item_said_both_ways_contradicts():
    assert count_checklist([("city", "Rome"), ("city", "Oslo")], [("city", "Rome")]) == (0, 1)


def test_known_is_what_is_true_and_said_often_enough():
    answers = [[("city", "Rome"), ("pet", "dog")], [("city", "Rome"), ("job", "cook")], [], [("city", "Oslo"), ("pet", "dog")]]
    assert find_checklist(answers, EXAMPLE, 0.5) == [("city", "Rome")]
    assert find_checklist(answers, EXAMPLE, 0.0) == [("city", "Rome"), ("job", "cook")]
    assert find_checklist([[]], EXAMPLE, 0.0) == []


def test_questions_get_their_checklists_and_those_of_which_nothing_is_known_are_left_out():
    rows = WORLD.examples("train", 6, 0, "easy")
    texts = [WORLD.gold(example) if place % 2 and member < 3 else "<answer></answer>" for place, example in enumerate(rows) for member in range(4)]

    def sample(asked, temperature, key):
        assert asked == [example for example in rows for _ in range(4)]
        return [SimpleNamespace(text=text) for text in texts]

    run = SimpleNamespace(task=WORLD, rng=lambda *key: random.Random(0), sample=sample)
    method = KLCF(Config(samples=4))
    kept = method.data(rows, run)
    assert [example.prompt for example in kept] == [example.prompt for example in rows[1::2]]
    for example in kept:
        assert [topic for topic, _ in example.data[CHECKLIST]] == sorted(example.data["stable"])
    assert method.collect()["questions_known"] == 0.5
    texts[:] = [""] * len(texts)
    assert len(method.data(rows, run)) == 6


@pytest.mark.training
def test_two_real_steps(two_steps, written_episodes):
    settings = {"samples": 4, "least": 0.25, "prompts": 16}
    trained = two_steps("klcf", settings, base="grpo", task={"name": "profiles"}, **written_episodes)
    for rollout in trained.rollouts:
        scores = rollout.rewards
        if scores["correct"]:
            assert rollout.shaped["klcf"] == pytest.approx(3.1)
        elif not scores["format"]:
            assert rollout.shaped["klcf"] == 0
    assert {"klcf/recall", "klcf/truth", "klcf/false_claims", "klcf/checklist"} <= set(trained.steps[0])
