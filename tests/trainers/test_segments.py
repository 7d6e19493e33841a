"""Steps of texts, the tokens that hold them, statistics within strata and likeness of texts."""

import time

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainers.maths.similarity import compute_cosines, compute_text_similarity, ngram_vectors
from trainers.maths.strata import compute_stratum_sizes, mean_within, std_within, strata_of, z_score_within
from trainers.tasks.base import Example
from trainers.tasks.kb import Kb
from trainers.tasks.mini_gsm import MiniGsm
from trainers.texts.segments import assign_tokens_to_spans, find_search_spans, gold_steps, step_texts

GOLD = "<think>3+3=6 6+5=11 11-1=10</think><answer>10</answer>"


def test_steps_are_equations_searches_lines_or_sentences():
    assert step_texts(GOLD) == ["3+3=6", "6+5=11", "11-1=10"]
    assert step_texts("<think>so 3+3=6 well</think>") == ["3+3=6"]
    assert step_texts("<search>Eva friend</search><information>Leo</information><search>open") == ["Eva friend"]
    assert step_texts("<think>\n1. one\n\n 2. two \n</think>") == ["1. one", "2. two"]
    assert step_texts("<think>First this. Then that!</think>") == ["First this.", "Then that!"]
    assert step_texts("<think></think><answer>3</answer>") == step_texts("<answer>3=3</answer>") == []


@pytest.mark.parametrize("kind", [MiniGsm, Kb])
def test_the_gold_answer_has_one_step_for_each_change_or_hop(kind):
    task = kind()
    for example in task.examples("train", 5, 0, "easy"):
        assert len(gold_steps(task, example)) == len(example.data.get("changes") or example.data["hops"])
    assert gold_steps(task, Example([], "3")) is None


@given(st.text(alphabet="ab= <>.\n", max_size=40), st.lists(st.integers(0, 5), max_size=30))
def test_every_character_of_a_step_is_in_a_token_that_holds_it(inside, lengths):
    text = f"<think>{inside}</think>"
    ends = [min(sum(lengths[: i + 1]), len(text)) for i in range(len(lengths))]
    spans = [(7 + i, 8 + i) for i in range(0, len(inside), 2)]
    before = 0
    for after, place in zip(ends, assign_tokens_to_spans(ends, spans), strict=True):
        touched = [i for i, (start, end) in enumerate(spans) if before < end and after > start and after > before]
        assert place == (touched[0] if touched else -1)
        before = after


def test_splitting_is_linear():
    began = time.process_time()
    for hostile in ("<search>" * 50_000, "<think>" + "a" * 300_000, "<think>" + " =" * 150_000, "<think>" + "." * 300_000):
        step_texts(hostile)
        find_search_spans(hostile)
    assert time.process_time() - began < 5


@given(st.lists(st.tuples(st.integers(0, 2), st.floats(-5, 5, width=32)), min_size=8, max_size=8))
def test_strata_are_scored_apart(rows):
    keys, values = torch.tensor([key for key, _ in rows]), torch.tensor([value for _, value in rows])
    strata = strata_of(keys, 4)
    for row in range(8):
        peers = [values[other] for other in range(8) if other // 4 == row // 4 and keys[other] == keys[row]]
        peers = torch.stack(peers)
        assert compute_stratum_sizes(strata)[row] == len(peers)
        assert mean_within(values, strata)[row].item() == pytest.approx(peers.mean().item(), abs=1e-5)
        spread = peers.std().item() if len(peers) > 1 and peers.amax() > peers.amin() else 0.0
        assert std_within(values, strata)[row].item() == pytest.approx(spread, abs=1e-5)
    assert z_score_within(torch.full((8,), 0.7), strata, 1e-8).tolist() == [0.0] * 8


def test_alike_texts():
    assert compute_text_similarity("3+3=6", "3+3=6") == pytest.approx(1.0)
    assert compute_text_similarity("", "") == pytest.approx(1.0)
    assert compute_text_similarity("3+3=6", "") < 0.1 < compute_text_similarity("3+3=6 6+5=11", "3+3=6 6-5=1") < 1
    made = compute_cosines(ngram_vectors(["a", "b", "\ud800"]))
    assert torch.isfinite(made).all()
    assert torch.allclose(made, made.T)
