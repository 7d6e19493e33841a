"""What a rollout says of the last pass over it, of the reference policy, and of why it is not in the loss."""

from collections import Counter

import numpy as np
import pytest
import torch

from tests.trainers.conftest import ensure_cold_start, events_in, make_spec
from trainers.adapters.passes import last_planes
from trainers.adapters.rollouts import CUT_OFF, UNSCORED, GenerationBatch
from trainers.attempt import train
from trainers.contract import arrays
from trainers.contract.events import Message, Metrics, Rollout
from trainers.policies import loading as policies
from trainers.policies.sampling import Completion
from trainers.tasks.base import Example

pytestmark = pytest.mark.training

AT_ONCE = {"training__warmup_steps": 0, "base": {"name": "grpo"}}  # with a warm-up the first update moves nothing


def trained(folder, **overrides):
    assert train.run_training(make_spec(folder, **overrides), folder) == train.FINISHED
    events = events_in(folder)
    return [event for event in events if isinstance(event, Rollout)], {event.step: event.values for event in events if isinstance(event, Metrics)}


def test_a_single_pass_stores_no_ratios_and_no_reference(tmp_path):
    rollouts, _ = trained(tmp_path, training__max_steps=2)
    assert {(event.ratios, event.clipped, event.reference_logprobs) for event in rollouts} == {(b"", b"", b"")}


def test_the_last_pass_says_ratios_and_what_was_clipped(tmp_path, written_answers):
    """A clip range of almost nothing: the shares that TRL logs in the last pass are those of the stored tokens."""
    rollouts, metrics = trained(
        tmp_path, training__max_steps=4, training__num_iterations=2, training__epsilon=1e-3, training__per_device_train_batch_size=16, **AT_ONCE
    )
    assert Counter(event.step for event in rollouts) == {1: 16, 3: 16}  # of the first update each led to
    seen = []
    for first in (1, 3):
        own = [event for event in rollouts if event.step == first]
        ratios = [arrays.unpack_array(event.ratios) for event in own]
        assert all(len(found) == event.length for found, event in zip(ratios, own, strict=True) if len(found))
        clipped, tokens = 0, 0
        for event, ratio in zip(own, ratios, strict=True):
            marks = arrays.unpack_array(event.clipped) if event.clipped else np.zeros(event.length)
            expected = ((ratio > 1 + 1e-3) & (event.advantage > 0)) | ((ratio < 1 - 1e-3) & (event.advantage < 0)) if len(ratio) else marks
            assert marks.tolist() == np.asarray(expected, float).tolist()
            clipped, tokens = clipped + marks.sum(), tokens + event.length
        assert clipped / tokens == pytest.approx(metrics[first + 1]["clip_ratio/region_mean"], abs=1e-6)
        seen.append(clipped)
    assert any(seen)  # a step whose answers are all alike moves nothing


def test_log_probabilities_stay_those_of_the_sampling_policy(tmp_path):
    rollouts, _ = trained(tmp_path, training__max_steps=2, training__num_iterations=2)
    start = policies.load_model(ensure_cold_start(), torch.float32)
    tokenizer = policies.load_tokenizer(ensure_cold_start())
    event = rollouts[0]
    prompt = tokenizer.apply_chat_template([{"role": "user", "content": event.prompt[0].content}], add_generation_prompt=True, return_dict=False)
    ids = arrays.unpack_array(event.ids).astype(int).tolist()
    with torch.no_grad():
        scores = torch.log_softmax(start(torch.tensor([prompt + ids])).logits[0, len(prompt) - 1 : -1], -1)
    assert np.allclose(arrays.unpack_array(event.logprobs), scores[torch.arange(len(ids)), torch.tensor(ids)].numpy(), atol=2e-2, rtol=2e-3)


def test_a_run_that_ends_between_two_passes_loses_nothing(tmp_path):
    rollouts, _ = trained(tmp_path, training__max_steps=3, training__num_iterations=2)
    assert Counter(event.step for event in rollouts) == {1: 8, 3: 8}
    assert all(event.logprobs and not event.ratios for event in rollouts if event.step == 3)


def test_a_run_that_fails_between_two_passes_loses_nothing(tmp_path, monkeypatch):
    from trainers.adapters.grpo import GRPOAdapter

    spec = make_spec(tmp_path, training__max_steps=4, training__num_iterations=2)
    reported = GRPOAdapter.report

    def failing(self, place, micro, first_pass, last_pass):
        if last_pass:
            raise RuntimeError("no more")
        reported(self, place, micro, first_pass, last_pass)

    monkeypatch.setattr(GRPOAdapter, "report", failing)
    assert train.run_training(spec, tmp_path) == train.FAILED
    assert Counter(event.step for event in events_in(tmp_path) if isinstance(event, Rollout)) == {1: 8}


@pytest.mark.feature(41)
def test_the_reference_is_stored_where_the_loss_has_it(tmp_path):
    rollouts, metrics = trained(tmp_path, training__max_steps=2, training__beta=0.04)
    first = [event for event in rollouts if event.step == 1]
    assert all(np.allclose(arrays.unpack_array(event.reference_logprobs), arrays.unpack_array(event.logprobs), atol=2e-2) for event in first)
    gaps, tokens = 0.0, 0
    for event in (event for event in rollouts if event.step == 2):
        gap = arrays.unpack_array(event.reference_logprobs).astype(float) - arrays.unpack_array(event.logprobs).astype(float)
        assert len(gap) == event.length
        gaps, tokens = gaps + (np.expm1(gap) - gap).sum(), tokens + len(gap)
    assert gaps / tokens == pytest.approx(metrics[2]["kl"], abs=1e-3)  # float16


class Micro:
    """What ``last_planes`` reads of a micro-batch."""

    def __init__(self, ratio, advantages, mask):
        self.inputs = {"old_per_token_logps": torch.zeros_like(ratio), "advantages": advantages}
        self.used_logprobs, self.mask = ratio.log(), mask


def test_only_the_clip_that_takes_a_gradient_away_counts():
    ratio = torch.tensor([[1.5, 0.5, 1.1], [1.5, 0.5, 1.5]])
    micro = Micro(ratio, torch.tensor([1.0, -1.0]), torch.tensor([[1, 1, 1], [1, 1, 0]]))
    planes = last_planes(micro, (0.2, 0.2), "grpo", "token")
    assert planes["clipped"].tolist() == [[1, 0, 0], [0, 1, 0]]
    assert planes["ratios"].tolist() == [pytest.approx([1.5, 0.5, 1.1]), pytest.approx([1.5, 0.5, 1.0])]
    assert "clipped" not in last_planes(micro, (0.2, 5.0), "cispo", "token")  # it clips the weight and keeps the gradient
    sequence = last_planes(micro, (0.2, 0.2), "grpo", "sequence")["ratios"]
    assert sequence[1].tolist() == pytest.approx([0.75**0.5, 0.75**0.5, 1.0])


@pytest.mark.parametrize(
    ("score", "notes", "filtered", "ids", "expected"),
    [
        (1.0, {}, [], [1, 9], ""),
        (None, {}, [], [1, 9], UNSCORED),
        (1.0, {}, [], [1, 2], CUT_OFF),
        (1.0, {"filtered": "a method's words"}, [], [1, 9], "a method's words"),
        (1.0, {}, ["others"], [1, 9], "others"),
    ],
)
def test_a_completion_that_is_not_in_the_loss_says_why(score, notes, filtered, ids, expected):
    batch = GenerationBatch([Example([Message("user", "q")], "a")], [[Message("user", "q")]], ["t"], [ids], {"correct": [score]})
    batch.advantages, batch.masks_cut_off, batch.filtered = [0.0], True, filtered
    batch.episodes = [Completion(prompt_ids=[1], ids=ids, mask=[1, 1], notes=notes)]
    assert batch.scored(0, 1, 1, {"correct": 1.0}, [9]).filtered == expected


@pytest.mark.parametrize(("reason", "ended"), [("stop", True), ("turns", True), ("length", False)])
def test_an_episode_of_a_world_ends_by_its_reason_not_by_its_last_token(reason, ended):
    batch = GenerationBatch([Example([Message("user", "q")], "a")], [[Message("user", "q")]], ["t"], [[1, 2]], {"correct": [1.0]})
    batch.advantages, batch.masks_cut_off = [0.0], True
    batch.episodes = [Completion(prompt_ids=[1], ids=[1, 2], mask=[1, 1], finish_reason=reason)]
    assert not batch.has_ended(0, [9])  # a task of one turn has an end token, or was cut off
    batch.ends_by_reason = True
    assert batch.has_ended(0, [9]) is ended
    assert batch.scored(0, 1, 1, {"correct": 1.0}, [9]).filtered == ("" if ended else CUT_OFF)
