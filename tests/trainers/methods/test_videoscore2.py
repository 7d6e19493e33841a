"""VideoScore2 on text: the card's bands, rules that score an answer, and prompts that ask for scores."""

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.trainers.conftest import make_spec
from tests.trainers.methods.batches import rollout_batch
from tests.trainers.methods.stacks import SmallRun, small_run
from trainers.adapters.grpo import GRPOAdapter
from trainers.contract.events import Message
from trainers.contract.problems import SpecError
from trainers.methods.group.videoscore2 import (
    BANDS,
    KEY,
    Config,
    Judged,
    VideoScore2,
    blur_scores,
    judge_answer,
    parse_scores,
    reward_scores,
    write_judgement,
)
from trainers.tasks.base import Example
from trainers.tasks.mini_gsm import MiniGsm

SCORES = st.tuples(*[st.integers(1, 5)] * 3)
GOLD = ["3+3=6", "6+5=11"]


def rewards_of(texts, true, **config):
    examples = [Example([Message("user", "?")], "", {KEY: list(true)} if true else {}) for _ in texts]
    batch = rollout_batch([0.25] * len(texts), len(texts), texts=texts, examples=examples)
    return VideoScore2(Config(**config)).rewards(batch, batch.reward).tolist()


def test_the_worked_example():
    said = ["4 3 5", "4 2 5", "3 2 5", "3 2 4", "2 3 5", "4 3", "none"]
    texts = [f"<answer>{one}</answer>" for one in said]
    assert rewards_of(texts, (4, 3, 5)) == pytest.approx([1.0, 0.7, 0.4, 0.1, 0, 0, 0])
    assert rewards_of(texts, (4, 3, 5), reward="exact") == [1, 0, 0, 0, 0, 0, 0]
    assert rewards_of(texts, None) == [0.25] * len(texts)  # prompts of another kind keep their reward


@given(SCORES, SCORES)
def test_a_reward_is_the_band_of_the_distances(said, true):
    distances = [abs(one - other) for one, other in zip(said, true, strict=True)]
    (made,) = rewards_of([write_judgement("4 of 4", said)], true)
    assert made == pytest.approx(BANDS[sum(distances)] if max(distances) <= 1 else 0.0)
    assert rewards_of([write_judgement("", said)], true, reward="exact") == [float(said == true)]


def test_scores_are_three_digits_from_1_to_5():
    assert parse_scores("<think>4 of 4</think><answer>5 3 1</answer>") == (5, 3, 1)
    assert parse_scores("<answer>531</answer>") == (5, 3, 1)
    assert parse_scores("<answer> 5, 3, 1 </answer>") == (5, 3, 1)
    for text in ("", "<answer>5 3</answer>", "<answer>5 3 6</answer>", "<answer>5 3 1 2</answer>", "5 3 1", "<answer>" + "5 " * 9 + "</answer>"):
        assert parse_scores(text) is None


def test_answers_are_scored_by_rules():
    whole = "<think>3+3=6 6+5=11</think><answer>11</answer>"
    assert judge_answer(whole, GOLD, "11") == Judged(4, 2, 2, 0)
    assert judge_answer(whole, GOLD, "11").scores == (5, 5, 5)
    assert judge_answer("<think>3+3=6</think><answer>6</answer>", GOLD, "11").scores == (5, 3, 1)
    assert judge_answer("<think></think><answer>12</answer>", GOLD, "11").scores == (5, 1, 4)
    assert judge_answer("<think>3+3=6 6+5=11</think>11</answer>", GOLD, "11") == Judged(3, 2, 2, None)
    assert judge_answer("", GOLD, "11").scores == (1, 1, 1)
    assert judge_answer("", GOLD, "11").rationale == "0 of 4 0 of 2 -"
    assert judge_answer("<answer>Mon</answer>", [], "Mon").scores == (3, 1, 5)


@given(st.text(alphabet="<>/think answer0123456789+= ", max_size=60), st.text(max_size=3))
@settings(deadline=None)
def test_any_text_has_scores_in_range(text, reference):
    assert all(1 <= score <= 5 for score in judge_answer(text, GOLD, reference).scores)


@given(SCORES, st.integers(0, 99))
def test_an_annotator_is_off_by_one_in_one_score(scores, seed):
    blurred = blur_scores(scores, random.Random(seed))
    assert sum(abs(one - other) for one, other in zip(blurred, scores, strict=True)) == 1
    assert all(1 <= score <= 5 for score in blurred)


def test_a_missing_score_earns_nothing_in_either_reward():
    missing = torch.full((2, 3), float("nan"))
    assert reward_scores(missing, "banded").tolist() == reward_scores(missing, "exact").tolist() == [0, 0]


def test_prompts_show_an_answer_and_ask_for_scores_of_every_kind():
    run = small_run()
    rows = VideoScore2().data(MiniGsm().examples("train", 64, 0, "easy"), run)
    assert len(rows) == 64
    columns = list(zip(*(row.data[KEY] for row in rows), strict=True))
    assert all(len(set(column)) > 2 for column in columns)
    for row in rows:
        assert parse_scores(f"<answer>{row.reference}</answer>") == tuple(row.data[KEY])
        assert row.prompt[-1].content.endswith("1 to 5?")
    with pytest.raises(SpecError, match="none of 1 examples has any"):
        VideoScore2().data([Example([Message("user", "?")], "1")], run)


def test_rows_for_sft_are_rationales_with_scores_and_a_share_is_off(tmp_path):
    first = small_run()
    run = SmallRun(make_spec(tmp_path, "sft"), first.task, first.model, first.tokenizer)
    clean, blurred = (VideoScore2(Config(noise=noise)).data([{}] * 64, run) for noise in (0.0, 1.0))
    assert [row["prompt"] for row in clean] == [row["prompt"] for row in blurred]
    for row, other in zip(clean, blurred, strict=True):
        true, said = (parse_scores(one["completion"][0]["content"]) for one in (row, other))
        assert sum(abs(one - two) for one, two in zip(true, said, strict=True)) == 1


@pytest.fixture
def written_scores(monkeypatch):
    """Of every four members the first is right, the second off by one, the third says other scores, the last none."""

    def write(trainer, prompt_ids, *rest):
        tokenizer, made = trainer.processing_class, []
        for place, row in enumerate(trainer.rows):
            true = trainer.examples[row["example"]].data[KEY]
            near = blur_scores(true, random.Random(place))
            text = (write_judgement("", true), write_judgement("", near), write_judgement("", [6 - score for score in true]), "7 7 7")[place % 4]
            made.append([*tokenizer.encode(text, add_special_tokens=False), tokenizer.eos_token_id])
        return made, None

    monkeypatch.setattr(GRPOAdapter, "_generate_single_turn", write)


@pytest.mark.training
def test_two_real_steps(two_steps, written_scores):
    trained = two_steps("videoscore2", base="grpo", policy={"kind": "tiny", "cold_start": False})
    for step in trained.steps:
        assert sum(value for name, value in step.items() if name.startswith("videoscore2/band/")) == pytest.approx(1.0)
        assert step["videoscore2/exact"] >= 0.25
        assert step["videoscore2/given"] == 0.75
    for rollout in trained.rollouts:
        true = tuple(map(int, rollout.reference.split()))
        assert rollout.shaped["videoscore2"] == pytest.approx(rewards_of([rollout.completion], true)[0])
