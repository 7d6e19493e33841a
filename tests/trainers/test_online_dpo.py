"""Online DPO: both answers to a prompt are a group of two with their token statistics, and the step's metrics are those of its rollouts."""

from collections import Counter

import numpy as np
import pytest
import torch

from tests.trainers.conftest import ensure_cold_start, events_in, make_spec
from trainers.adapters.online_dpo import PENALISED
from trainers.attempt import train
from trainers.checks.preflight import run_preflight_checks
from trainers.contract import arrays
from trainers.contract.batches import compute_batch_figures
from trainers.contract.events import Metrics, Rollout
from trainers.contract.problems import SpecError
from trainers.policies import loading as policies


@pytest.mark.training
def test_every_answer_is_reported_with_what_its_pair_was_formed_from(tmp_path):
    base = {"name": "online-dpo", "config": {"missing_eos_penalty": 0.25}}
    changes = {"training__max_steps": 2, "training__gradient_accumulation_steps": 2, "training__max_completion_length": 24}
    spec = make_spec(tmp_path, "online-dpo", base=base, training__temperature=0.8, telemetry={"alternatives_share": 1.0}, **changes)
    assert train.run_training(spec, tmp_path) == train.FINISHED
    events = events_in(tmp_path)
    rollouts = [event for event in events if isinstance(event, Rollout)]
    assert len(rollouts) == compute_batch_figures(spec)["total_rollouts"] == 32
    assert Counter((event.step, event.group) for event in rollouts) == {(step, group): 2 for step in (1, 2) for group in range(8)}
    assert {event.finish_reason for event in rollouts} == {"stop", "length"}
    for event in rollouts:
        assert event.shaped[PENALISED] == pytest.approx(event.reward - 0.25 * (event.finish_reason == "length"))
        assert event.alternative_ids
        assert len(arrays.unpack_array(event.reference_logprobs)) == event.length
    for step in [event for event in events if isinstance(event, Metrics)]:
        own = [event for event in rollouts if event.step == step.step]
        values, sides = step.values, {}
        for event in own:
            sides.setdefault(event.group, []).append(event.shaped[PENALISED])
        assert values["reward"] == pytest.approx(np.mean([event.reward for event in own]))
        assert values["rewards/correct/mean"] == pytest.approx(np.mean([event.rewards["correct"] for event in own]))
        assert values["objective/scores_margin"] == pytest.approx(np.mean([abs(first - second) for first, second in sides.values()]), abs=1e-6)
        tokens = np.concatenate([arrays.unpack_array(event.entropies) for event in own])
        halves = [
            np.concatenate([arrays.unpack_array(event.entropies) for event in own if (event.group < 4) is first]).mean() for first in (True, False)
        ]
        assert len(tokens) == sum(event.length for event in own)
        assert values["entropy"] == pytest.approx(np.mean(halves), abs=5e-3)  # stored in half precision

    start, tokenizer = policies.load_model(ensure_cold_start(), torch.float32), policies.load_tokenizer(ensure_cold_start())
    event = rollouts[0]
    prompt = tokenizer.apply_chat_template([{"role": "user", "content": event.prompt[0].content}], add_generation_prompt=True, return_dict=False)
    ids = arrays.unpack_array(event.ids).astype(int).tolist()
    with torch.no_grad():
        scores = torch.log_softmax(start(torch.tensor([prompt + ids])).logits[0, len(prompt) - 1 : -1], -1)
    expected = scores[torch.arange(len(ids)), torch.tensor(ids)].numpy()
    assert np.allclose(arrays.unpack_array(event.logprobs), expected, atol=2e-2, rtol=2e-3)
    assert np.allclose(arrays.unpack_array(event.reference_logprobs), expected, atol=2e-2, rtol=2e-3)


@pytest.mark.training
def test_a_beta_edited_while_it_trains_is_the_losses(tmp_path):
    from trainers.contract.edits import REQUESTS, EditRequest

    spec = make_spec(tmp_path, "online-dpo", training__max_steps=2)
    (tmp_path / REQUESTS).parent.mkdir()
    (tmp_path / REQUESTS).write_text(EditRequest(key="a", changes={"training.beta": 0.7}).model_dump_json() + "\n")
    assert train.run_training(spec, tmp_path) == train.FINISHED
    assert [event.values["beta"] for event in events_in(tmp_path) if isinstance(event, Metrics)] == [0.7, 0.7]


def test_what_it_cannot_do_is_said_before(tmp_path):
    [problem] = run_preflight_checks(make_spec(tmp_path, "online-dpo", task={"name": "kb"})).problems
    assert problem.field == "training.trainer"
    with pytest.raises(SpecError, match="leaves no room for the prompt"):
        make_spec(tmp_path, "online-dpo", training__max_completion_length=128)
    with pytest.raises(SpecError, match="fewer prompts"):
        make_spec(tmp_path, "online-dpo", training__prompts=2)
