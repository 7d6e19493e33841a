"""VTPerception-R1 on text: the card's numbers, conflicts, and DAPO on answer and form with the weights at 0."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.methods.batches import rollout_batch
from tests.trainers.worlds.test_described_facts import EXAMPLE
from trainers.methods.worlds.vtperception_r1 import (
    Config,
    VTPerceptionR1,
    band_coverage,
    contradicts_prompt,
    list_parts,
    measure_coverage,
    measure_support,
    penalize_repetition,
    score_terms,
)
from trainers.worlds.described_facts import DescribedFacts

WORLD = DescribedFacts()
KEYS = [("Leo", "friend", "Mia"), ("Mia", "city", "Oslo"), ("Mia", "job", "pilot"), ("Leo", "boss", "Max")]
NEED = "Leo friend Mia. Mia city Oslo."
PIECES = ["<describe>", "</describe>", "<think>", "</think>", "<answer>", "</answer>", "Leo friend Mia.", "Mia city Oslo.", "Mia city Rome.", "Oslo"]


def write(described, thought, answer):
    return f"<describe>{described}</describe><think>{thought}</think><answer>{answer}</answer>"


def make_rewards(texts, **config):
    scores = [WORLD.rewards["correct"].function(text, EXAMPLE) for text in texts]
    batch = rollout_batch(scores, len(texts), texts=texts, examples=[EXAMPLE] * len(texts))
    return VTPerceptionR1(Config(**config)).rewards(batch, batch.reward).tolist()


def test_the_cards_numbers():
    assert measure_coverage(KEYS, KEYS[:3]) == 0.75
    assert [band_coverage(one, 0.4, 0.8) for one in (0.75, 0.8, 0.4, 0.39)] == [0.5, 1.0, 0.5, 0.0]
    support = measure_support(KEYS[:2], [KEYS[0], KEYS[2]], "Oslo")
    assert support == pytest.approx(2 / 3)
    assert 1 + 1 + band_coverage(0.75, 0.4, 0.8) + 1 + 0 + support == pytest.approx(4.1667, abs=1e-4)


def test_rewards_of_a_group():
    texts = [
        write(NEED, NEED, "Oslo"),
        write("Leo friend Mia.", NEED, "Oslo"),  # the city is used and not described
        write("Leo friend Mia.", "Mia city Rome.", "Rome"),  # the prompt says otherwise
        write("", "", "Oslo"),
        "<answer>Oslo</answer>",
    ]
    repeated = penalize_repetition(texts[0])
    assert make_rewards(texts) == pytest.approx(
        [
            1 + 1 + 2 + 1 + repeated,
            1 + 1 + 0.5 + 1 + 1 / 3 + penalize_repetition(texts[1]),
            0 + 1 + 0.5 + 0 + 0 + penalize_repetition(texts[2]),
            2.0,
            0.0,
        ]
    )
    assert make_rewards(texts, coverage=0.0, support=0.0, repetition=0.0) == [2, 2, 1, 2, 0]


def test_a_fact_that_is_told_otherwise_is_a_conflict_and_one_that_is_not_told_is_none():
    assert contradicts_prompt([("Mia", "city", "Rome")], KEYS)
    assert not contradicts_prompt([("Mia", "boss", "Rome"), KEYS[0]], KEYS)


def test_repetition_costs():
    assert penalize_repetition("a b c d e f") == penalize_repetition("") == 0
    assert penalize_repetition("a b c d " * 3) == pytest.approx(4 / 9 - 1)


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
def test_any_text_earns_between_minus_one_and_five(text):
    terms = score_terms(text, EXAMPLE, 0.4, 0.8)
    assert all(0 <= value <= 1 for name, value in terms.items() if name != "repetition")
    assert -1 <= make_rewards([text])[0] <= 5
    assert (list_parts(text) is None) == (terms["format"] == 0)


def test_what_is_made_up_is_reported():
    method = VTPerceptionR1()
    texts = [write(NEED, "Mia city Rome.", "Rome"), "none"]
    batch = rollout_batch([0.0, 0.0], 2, texts=texts, examples=[EXAMPLE] * 2)
    method.rewards(batch, batch.reward)
    logged = method.collect()
    assert logged["invented"] == pytest.approx(1 / 3)
    assert (logged["format"], logged["facts"], logged["support"]) == (0.5, 1.0, 0.0)


@pytest.mark.training
def test_two_real_steps(two_steps, written_episodes):
    trained = two_steps("vtperception-r1", base="dapo", task={"name": "described_facts"}, **written_episodes)
    for rollout in trained.rollouts:
        expected = 5 + penalize_repetition(rollout.completion) if rollout.rewards["correct"] else 0
        if rollout.rewards["correct"] or not rollout.completion:
            assert rollout.shaped["vtperception-r1"] == pytest.approx(expected)
    assert {"vtperception-r1/described", "vtperception-r1/support"} <= set(trained.steps[0])
