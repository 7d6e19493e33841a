"""Cloning of right samples: which rows it trains on, what it measures of the samples, and two real steps."""

from types import SimpleNamespace

import pytest

from trainers.contract.events import Message
from trainers.methods.prompts.vb_vs_vf import ClonedRightSamples, Config, clone_completion
from trainers.policies.sampling import Completion
from trainers.tasks.base import Example, Reward


def make_run(texts, lengths, most=None):
    """A run whose samples are these texts of so many tokens."""

    def sample(examples, temperature, key):
        assert len(examples) == len(texts)
        return [Completion([1, 2], ids=[5] * length, mask=[1] * length, text=text) for text, length in zip(texts, lengths, strict=True)]

    reward = Reward(lambda text, example: float(text == example.reference), "", 1.0)
    task = SimpleNamespace(
        rewards={"correct": reward}, examples=lambda split, count, seed, difficulty: [make_example(place) for place in range(count)]
    )
    spec = SimpleNamespace(seed=0, task=SimpleNamespace(difficulty="easy"))
    training = SimpleNamespace(max_completion_length=most, max_length=100)
    return SimpleNamespace(task=task, sample=sample, training=training, attempt=SimpleNamespace(spec=spec))


def make_example(place):
    return Example([Message("user", f"{place}?")], str(place))


def test_right_samples_alone_become_rows_of_their_own_tokens():
    method = ClonedRightSamples(Config(prompts=2, samples=2))
    rows = method.sample_right_rows(make_run(["0", "x", "1", "1"], [3, 4, 5, 6]))
    assert [row["completion"][0]["content"] for row in rows] == ["0", "1", "1"]
    assert rows[0] == {
        "prompt": [{"role": "user", "content": "0?"}],
        "completion": [{"role": "assistant", "content": "0"}],
        "input_ids": [1, 2, 5, 5, 5],
        "completion_mask": [0, 0, 1, 1, 1],
    }


def test_without_a_right_sample_there_is_no_row():
    assert ClonedRightSamples(Config(prompts=1, samples=2)).sample_right_rows(make_run(["x", "y"], [3, 4])) == []


def test_the_worlds_words_are_not_cloned():
    row = clone_completion(make_example(0), Completion([1], ids=[5, 6, 7], mask=[1, 0, 1], text="0"))
    assert row["completion_mask"] == [0, 1, 0, 1]


def test_the_worked_example_of_the_statistics():
    """r of right samples 0.2, 0.4, 0.9, 0.5 of a budget of 10 tokens, four wrong ones."""
    method = ClonedRightSamples(Config(prompts=1, samples=8))
    method.sample_right_rows(make_run(["0"] * 4 + ["x"] * 4, [8, 6, 1, 5, 1, 1, 1, 1], most=10))
    logged = method.collect()
    assert logged == {"data_right": 0.5, "data_heterogeneity": pytest.approx(0.065), "data_concentration": pytest.approx(1 / 8)}


@pytest.mark.training
def test_two_supervised_steps_on_right_samples(two_steps, written_samples):
    trained = two_steps("vb-vs-vf", {"prompts": 8, "samples": 2}, trainer="sft", training__demonstrations=64, training__max_completion_length=30)
    assert trained.steps[0]["vb-vs-vf/data_right"] == 0.5
    assert trained.steps[0]["loss"] > 0
