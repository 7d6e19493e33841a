"""What-if replay: a run's own recipe on its own stored rollouts gives what training stored; others are replayed or refused with the reason."""

import json
import math
import subprocess
import sys

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.conftest import events_in, make_spec
from trainers.adapters.scoring import total_rewards
from trainers.attempt import train
from trainers.contract import arrays
from trainers.contract.events import Rollout
from trainers.contract.problems import SpecError
from trainers.replay.recompute import ReplayRequest, answer_replay_request
from trainers.replay.stored_batch import StoredRollout, plain_advantages, split_loss_slices

FLOAT32 = 1e-5  # advantages
FLOAT16 = 2e-2  # token weights: log-probabilities and entropies are stored in float16

RECIPES = {
    "grpo": {"base": {"name": "grpo"}},
    "dr-grpo": {"base": {"name": "dr-grpo"}},
    "dapo": {},
    "rloo": {"base": {"name": "rloo"}},
    "rs-grpo": {"base": {"name": "dr-grpo"}, "methods": [{"name": "rs-grpo", "config": {"risk": 4.0}}]},
    "stacked": {"base": {"name": "grpo"}, "methods": [{"name": "rlsp"}, {"name": "stackelberg-srs"}]},
    "egspo": {"base": {"name": "grpo"}, "methods": [{"name": "egspo", "config": {"gate": "fixed", "nats": 0.4, "first": 0.5}}]},
    "e2c": {"base": {"name": "grpo"}, "methods": [{"name": "e2c-explore-execute", "config": {"weight": 3.0}}]},
}


def trained(folder, **overrides):
    spec = make_spec(folder, **{"training__max_steps": 2, "training__per_device_train_batch_size": 16, **overrides})
    assert train.run_training(spec, folder) == train.FINISHED
    return spec, [event for event in events_in(folder) if isinstance(event, Rollout) and event.phase == "train"]


def stored(events):
    return [
        StoredRollout(
            id=order,
            step=event.step,
            group=event.group,
            sample=event.sample,
            order=order,
            prompt=[(message.role, message.content) for message in event.prompt],
            reference=event.reference,
            completion=event.completion,
            rewards=event.rewards,
            finish_reason=event.finish_reason,
            ids=event.ids,
            lengths=event.lengths,
            logprobs=event.logprobs,
            entropies=event.entropies,
            mask=event.mask,
            reference_logprobs=event.reference_logprobs,
        )
        for order, event in enumerate(events)
    ]


def replay(spec, events, **changes):
    return answer_replay_request(ReplayRequest(spec.model_dump(mode="json") | changes, stored(events)))


def unpacked(data, count):
    return arrays.unpack_array(data) if data else np.ones(count)


def assert_equal(found, events):
    assert [one["id"] for one in sorted(found["rollouts"], key=lambda one: one["id"])] == list(range(len(events)))
    for one in found["rollouts"]:
        event = events[one["id"]]
        assert one["advantage"] == pytest.approx(event.advantage, abs=FLOAT32)
        if event.contributions:
            assert one["contributions"] == pytest.approx(event.contributions, abs=FLOAT32)
        assert one["shaped"] == pytest.approx(event.shaped, abs=FLOAT32)
        count = len(arrays.unpack_array(event.ids))
        assert np.allclose(unpacked(one["weights"], count), unpacked(event.weights, count), atol=FLOAT16)
        assert bool(one["token_advantages"]) == bool(event.token_advantages)


@pytest.mark.training
@pytest.mark.parametrize("name", RECIPES)
def test_a_runs_own_recipe_gives_the_advantages_that_training_stored(tmp_path, written_answers, name):
    spec, events = trained(tmp_path, **RECIPES[name])
    for step in (1, 2):
        own = [event for event in events if event.step == step]
        assert_equal(replay(spec, own), own)
    assert any(event.advantage for event in events)
    if name in ("egspo", "e2c"):
        assert any(len(set(np.round(arrays.unpack_array(event.weights), 3))) > 1 for event in events)


@pytest.mark.training
@pytest.mark.parametrize(
    ("accumulation", "per_generation", "passes"),
    [(2, None, 1), (1, 2, 1), (2, 1, 1), (1, 1, 2)],
    ids=["accumulated", "split over steps", "several batches a step", "reused"],
)
def test_it_knows_the_batches_and_slices_of_training(tmp_path, accumulation, per_generation, passes):
    """A quantile over a slice: the weights agree only where the rows were together in training too."""
    spec, events = trained(
        tmp_path,
        base={"name": "grpo"},
        methods=[
            {"name": "egspo", "config": {"gate": "quantile", "quantile": 0.5, "attenuation": "constant", "share": 0.25, "first": 0.0, "last": 0.0}}
        ],
        training__per_device_train_batch_size=8,
        training__gradient_accumulation_steps=accumulation,
        training__steps_per_generation=per_generation,
        training__num_iterations=passes,
    )
    span = 2 if per_generation == 2 else 1  # steps that one generation batch leads to
    own = [event for event in events if event.step <= span]
    found = replay(spec, own)
    together, apart = 0, 0
    for one in found["rollouts"]:
        event = own[one["id"]]
        assert one["advantage"] == pytest.approx(event.advantage, abs=FLOAT32)
        same = unpacked(one["weights"], 0) == unpacked(event.weights, 0)
        together, apart = together + same.sum(), apart + (~same).sum()
    assert apart <= 0.02 * together  # a token on the threshold may fall on its other side


@pytest.mark.training
def test_another_recipe_is_another_answer_and_the_same_request_the_same(tmp_path):
    spec, events = trained(tmp_path, base={"name": "grpo"}, training__max_steps=1)
    centred = replay(spec, events, base={"name": "dr-grpo", "config": {}})
    for one in centred["rollouts"]:
        event = events[one["id"]]
        group = [other.reward for other in events if other.group == event.group]
        assert one["advantage"] == pytest.approx(event.reward - np.mean(group), abs=FLOAT32)
    assert msgspec.json.encode(centred) == msgspec.json.encode(replay(spec, events, base={"name": "dr-grpo", "config": {}}))
    assert centred["scale"] == "none"
    said = replay(spec, events, methods=[{"name": "kimi-k2.5", "config": {}}])["methods"][1]
    assert said["replayed"] == ["rewards", "advantages"]
    assert said["state"]
    assert [one["hook"] for one in said["skipped"]] == ["policy_loss"]


@pytest.mark.training
@pytest.mark.parametrize(
    ("method", "why"),
    [
        ("mrpo", "hidden states"),
        ("cmdp-distill", "tokenizer"),
        ("ce-po", "policy"),
        ("grpo-ma", "while it was sampled"),
        ("critique-coder", ""),  # the data it would train on is not that of the stored prompts, but nothing is missing
        ("no-such-method", "no such method"),
    ],
)
def test_what_stored_rollouts_are_not_enough_for_is_refused_with_the_reason(tmp_path_factory, method, why):
    spec, events = plain_run(tmp_path_factory)
    if not why:
        assert replay(spec, events, methods=[{"name": method, "config": {}}])["ok"]
        return
    with pytest.raises(SpecError) as refusal:
        replay(spec, events, methods=[{"name": method, "config": {}}])
    assert why in str(refusal.value)
    assert {problem.field for problem in refusal.value.problems} == {"methods.0.name"}


kept = {}


def plain_run(tmp_path_factory):
    if not kept:
        kept["run"] = trained(tmp_path_factory.mktemp("plain"), base={"name": "grpo"}, training__max_steps=1)
    return kept["run"]


@pytest.mark.training
def test_a_group_that_is_not_whole_is_left_out_and_said(tmp_path_factory):
    spec, events = plain_run(tmp_path_factory)
    found = replay(spec, events[1:])
    missing = events[0].group
    assert {events[1:][one["id"]].group for one in found["rollouts"]} == {event.group for event in events} - {missing}
    assert found["notes"][0] == f"group {missing} is left out: 3 of its 4 members are stored"
    with pytest.raises(SpecError, match="no group"):
        replay(spec, events[:1])


@pytest.mark.training
def test_the_command_reads_json_and_prints_json(tmp_path_factory):
    spec, events = plain_run(tmp_path_factory)
    request = msgspec.json.encode(ReplayRequest(spec.model_dump(mode="json"), stored(events)))
    done = subprocess.run([sys.executable, "-m", "trainers", "replay", "-"], input=request, capture_output=True, check=False, timeout=120)
    assert done.returncode == 0
    assert json.loads(done.stdout)["rollouts"][0]["advantage"] == pytest.approx(replay(spec, events)["rollouts"][0]["advantage"])
    bad = subprocess.run([sys.executable, "-m", "trainers", "replay", "-"], input=b'{"spec": 1}', capture_output=True, check=False, timeout=120)
    assert bad.returncode == 2
    assert json.loads(bad.stdout)["problems"][0]["field"] == "request"


class Batch:
    def __init__(self, rewards, group_size):
        self.rewards = torch.tensor([[math.nan if value is None else value] for value in rewards])
        self.group_size = group_size
        self.reward = total_rewards(self.rewards, torch.ones(1), group_size)


scores = st.lists(st.one_of(st.none(), st.sampled_from([0.0, 1.0]), st.floats(-5, 5, width=32)), min_size=8, max_size=8)


@given(scores=scores, scale=st.sampled_from(["group", "batch", "none"]))
def test_plain_advantages_are_finite_and_an_unscored_answer_has_none(scores, scale):
    found = plain_advantages(Batch(scores, 4), scale)
    assert torch.isfinite(found).all()
    assert all(found[row] == 0 for row, score in enumerate(scores) if score is None)
    for start in (0, 4):
        known = [row for row in range(start, start + 4) if scores[row] is not None]
        own = np.array([scores[row] for row in known])
        if len(known) > 1 and scale == "group" and own.std() > 1e-2:
            expected = (own - own.mean()) / (own.std(ddof=1) + 1e-4)
            assert np.allclose(found[known].numpy(), expected, atol=1e-3)


@given(count=st.integers(1, 40), size=st.integers(1, 12))
def test_slices_hold_every_row_once_in_the_order_they_were_written(count, size):
    rows = [type("Row", (), {"order": (place * 7) % 41})() for place in range(count)]
    found = split_loss_slices(rows, size)
    orders = [rows[row].order for part in found for row in part]
    assert orders == sorted(row.order for row in rows)
    assert {len(part) for part in found[:-1]} <= {size}
