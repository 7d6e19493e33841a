"""DPO on pairs from a file and on pairs sampled from the policy itself."""

import json
from collections import defaultdict

import pytest

from tests.trainers.conftest import events_in, make_spec
from trainers.attempt import train
from trainers.contract.events import AttemptFinished, Metrics, Phase, Rollout
from trainers.data import pairs

pytestmark = pytest.mark.training

PROMPTS, EACH = 48, 4


@pytest.fixture(scope="module")
def sampled(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dpo")
    spec = make_spec(folder, "dpo", training__sampled_prompts=PROMPTS, training__samples_per_prompt=EACH, training__max_steps=3)
    assert train.run_training(spec, folder) == train.FINISHED
    return folder


def test_every_sampled_answer_is_reported_once(sampled):
    rollouts = [event for event in events_in(sampled) if isinstance(event, Rollout)]
    assert {(event.phase, event.step) for event in rollouts} == {("sampled", 0)}
    assert sorted((event.group, event.sample) for event in rollouts) == [(group, sample) for group in range(PROMPTS) for sample in range(EACH)]
    assert any(event.name == "sampling pairs" and event.done == event.total == PROMPTS for event in events_in(sampled) if isinstance(event, Phase))


def test_pairs_prefer_a_right_answer_to_a_wrong_one_of_the_same_prompt(sampled):
    answers = defaultdict(dict)
    for event in events_in(sampled):
        if isinstance(event, Rollout):
            answers[event.prompt[0].content][event.completion] = event.rewards["correct"]
    rows, _ = pairs.read_sampled_pairs(sampled / pairs.FILE)
    assert len(rows) == sum({0.0, 1.0} <= set(scores.values()) for scores in answers.values()) > 0
    for row in rows:
        scores = answers[row["prompt"][0]["content"]]
        assert (scores[row["chosen"][0]["content"]], scores[row["rejected"][0]["content"]]) == (1.0, 0.0)


def test_it_learns_to_tell_them_apart(sampled):
    steps = [event.values for event in events_in(sampled) if isinstance(event, Metrics)]
    assert [len(steps), steps[0]["loss"]] == [3, pytest.approx(0.693147, abs=1e-4)]  # the policy is its own reference at first
    assert steps[-1]["rewards/margins"] > steps[0]["rewards/margins"]


def test_sampling_that_was_interrupted_goes_on_with_the_same_pairs(tmp_path, sampled):
    """Batches of 32 prompts: the first one is there, the second one torn."""
    whole = (sampled / pairs.FILE).read_bytes()
    first, second = whole.splitlines(keepends=True)
    (tmp_path / pairs.FILE).write_bytes(first + second[: len(second) // 2])
    spec = make_spec(tmp_path, "dpo", training__sampled_prompts=PROMPTS, training__samples_per_prompt=EACH, training__max_steps=3)
    assert train.run_training(spec, tmp_path) == train.FINISHED
    assert (tmp_path / pairs.FILE).read_bytes() == whole
    assert {event.group for event in events_in(tmp_path) if isinstance(event, Rollout)} == set(range(32, PROMPTS))
    losses = [[event.values["loss"] for event in events_in(folder) if isinstance(event, Metrics)] for folder in (tmp_path, sampled)]
    assert losses[0] == losses[1]


def test_a_policy_that_is_never_right_has_nothing_to_prefer(tmp_path):
    spec = make_spec(tmp_path, "dpo", policy={"kind": "tiny", "cold_start": False}, training__sampled_prompts=8)
    assert train.run_training(spec, tmp_path) == train.FAILED
    (finished,) = [event for event in events_in(tmp_path) if isinstance(event, AttemptFinished)]
    assert "none of 8 prompts had both a right and a wrong answer" in finished.error
    assert "\n" not in finished.error


def test_it_trains_on_a_file_of_ones_own(tmp_path):
    file = tmp_path / "rows.jsonl"
    row = {"chosen": "<answer>2</answer>", "rejected": "<answer>3</answer>"}
    file.write_text("".join(json.dumps({"prompt": f"{i}+1?", **row}) + "\n" for i in range(12)))
    spec = make_spec(tmp_path / "run", "dpo", dataset={"path": str(file)}, training__max_steps=2)
    assert train.run_training(spec, tmp_path / "run") == train.FINISHED
    assert not (tmp_path / "run" / pairs.FILE).exists()
    assert len([event for event in events_in(tmp_path / "run") if isinstance(event, Metrics)]) == 2
