"""MaskSearch: the reward of spans and form, and when a stage ends."""

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.methods.batches import rollout_batch
from trainers.methods.history import History
from trainers.methods.worlds.masksearch import Config, MaskSearch, mix_rewards, weigh_by_stage
from trainers.worlds.paragraphs import Paragraphs, count_masks, score_spans

WORDS = st.lists(st.sampled_from(["Paris", "1889", "cat"]), min_size=1, max_size=4)


def test_the_worked_example():
    spans = score_spans("Paris 1890", "Paris 1889")
    assert spans == 0.5
    assert mix_rewards(spans, 1.0, 0.9, 0.1) == pytest.approx(0.55)


@given(WORDS, WORDS)
def test_spans_count_at_their_place(said, right):
    found = score_spans(" ".join(said), " ".join(right))
    assert 0 <= found <= 1
    assert (found == 1) == (said[: len(right)] == right)


@given(st.lists(st.integers(1, 4), min_size=1, max_size=20))
def test_stages_add_prompts_and_take_none_away(masks):
    weights = torch.stack([weigh_by_stage(masks, stage) for stage in range(1, 5)])
    assert (weights.diff(dim=0) >= 0).all()
    assert weights[-1].all()


def prepared(**config):
    world, method = Paragraphs({"masks": 4}), MaskSearch(Config(**config))
    run = SimpleNamespace(task=world, examples=[])
    method.prepare(run)
    run.examples = method.data(world.examples("train", 3, 0, "easy"), run)
    return method, run


def test_every_paragraph_stands_in_the_data_with_one_to_four_masks():
    method, run = prepared()
    assert [count_masks(example) for example in run.examples] == [1, 2, 3, 4] * 3
    assert [example.prompt[0].content.count("_") for example in run.examples] == [1, 2, 3, 4] * 3
    assert method.curriculum(History(12, 10)).tolist() == [1, 0, 0, 0] * 3
    assert prepared(staged=False)[0].curriculum(History(12, 10)).tolist() == [1] * 12


def test_rewards_of_a_group():
    method, run = prepared()
    example = run.examples[3]
    gold = run.task.gold(example)
    first = f"<fill>{example.reference.split()[0]}</fill><information>3</information><answer></answer>"
    texts = [gold, first, "none", gold[: gold.index("<answer>")]]
    made = method.rewards(rollout_batch([1, 0, 0, 0], 4, texts=texts, examples=[example] * 4), torch.zeros(4))
    assert made.tolist() == pytest.approx([1, 0.325, 0, 0])


def test_a_stage_ends_when_enough_of_its_most_masks_are_right_and_is_remembered():
    method, run = prepared(window=4, threshold=0.6)
    one, two = run.examples[0], run.examples[1]
    method.observe(rollout_batch([1, 1, 0, 0], 4, examples=[one] * 4))
    assert method.stage == 1
    method.observe(rollout_batch([1, 1, 1, 1], 4, examples=[two] * 4))
    assert method.stage == 1, "episodes with other numbers of masks do not count"
    method.observe(rollout_batch([1, 1, 1, 0], 4, examples=[one] * 4))
    assert (method.stage, method.recent) == (2, [])
    method.observe(rollout_batch([1, 0], 2, examples=[two] * 2))
    resumed = MaskSearch(Config(window=4))
    resumed.restore(method.state())
    assert (resumed.stage, resumed.recent) == (2, [True, False])


@pytest.mark.training
def test_two_real_steps(two_steps, written_episodes):
    config = {"window": 4, "threshold": 0.1}
    trained = two_steps("masksearch", config, base="dapo", task__name="paragraphs", task__options={"masks": 4}, **written_episodes)
    assert [step["masksearch/stage"] for step in trained.steps] == [1, 2]
    assert {round(rollout.shaped["masksearch"], 3) for rollout in trained.rollouts} == {0, 0.1, 1}
