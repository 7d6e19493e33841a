"""GRPO through our adapter: every rollout reported once with the numbers training used, and training the same as TRL's own."""

from collections import Counter, defaultdict

import numpy as np
import pytest
import torch
from transformers import PrinterCallback
from trl import GRPOTrainer

from tests.trainers.conftest import SEARCH_STEPS, current, ensure_cold_start, events_in, make_spec
from trainers.adapters.groups import build_prompt_dataset
from trainers.adapters.grpo import grpo_config
from trainers.adapters.scoring import total_rewards
from trainers.attempt import train
from trainers.attempt.context import Attempt
from trainers.attempt.report import Reporter
from trainers.attempt.stop import StopRequest
from trainers.contract import arrays
from trainers.contract.events import AttemptFinished, AttemptStarted, Checkpoint, Metrics, Phase, Rollout, Saved
from trainers.contract.spool import SPOOL, SpoolWriter
from trainers.methods import stack
from trainers.policies import loading as policies
from trainers.tasks import registry

pytestmark = pytest.mark.training

STEPS, BATCH, GROUP, HELDOUT = 6, 16, 4, 12


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("grpo")
    spec = make_spec(
        folder,
        training__max_steps=STEPS,
        training__per_device_train_batch_size=BATCH,
        evaluation={"every": 3, "prompts": HELDOUT},
        limits={"save_every": 2, "keep_checkpoints": 2},
        task={"name": "mini_gsm", "rewards": {"working": 0.5}},
    )
    assert train.run_training(spec, folder) == train.FINISHED
    return folder


@pytest.fixture(scope="module")
def events(run_folder):
    return events_in(run_folder)


@pytest.fixture(scope="module")
def rollouts(events):
    return [event for event in events if isinstance(event, Rollout) and event.phase == "train"]


@pytest.fixture(scope="module")
def metrics(events):
    return {event.step: event for event in events if isinstance(event, Metrics) and "loss" in event.values}


def test_it_reports_every_rollout_of_every_step_once(rollouts):
    assert Counter((event.step, event.group, event.sample) for event in rollouts) == Counter(
        (step, group, sample) for step in range(1, STEPS + 1) for group in range(BATCH // GROUP) for sample in range(GROUP)
    )


def test_the_answers_of_a_group_answer_one_prompt(rollouts):
    prompts = defaultdict(set)
    for event in rollouts:
        prompts[event.step, event.group].add((event.prompt[0].content, event.reference))
    assert all(len(found) == 1 for found in prompts.values())
    assert len(prompts) == STEPS * BATCH // GROUP


def test_the_arrays_of_a_rollout_have_one_length_and_fit_its_text(rollouts):
    for event in rollouts:
        ids, lengths, logprobs, entropies = (arrays.unpack_array(data) for data in (event.ids, event.lengths, event.logprobs, event.entropies))
        assert len(ids) == len(lengths) == len(logprobs) == len(entropies) == event.length
        assert lengths.sum() == len(event.completion)
        assert (logprobs <= 0).all()
        assert (entropies >= -1e-3).all()


def test_the_statistics_are_those_of_the_policy_that_sampled(rollouts, run_folder):
    """The rollouts of step 1 come from the policy the run started from: scoring them again with it gives the same log-probabilities."""
    folder = ensure_cold_start()
    model, tokenizer = policies.load_model(folder, torch.float32), policies.load_tokenizer(folder)
    for event in [event for event in rollouts if event.step == 1]:
        prompt = tokenizer.apply_chat_template([{"role": "user", "content": event.prompt[0].content}], add_generation_prompt=True, return_dict=False)
        ids = arrays.unpack_array(event.ids).astype(np.int64).tolist()
        with torch.no_grad():
            logits = model(torch.tensor([prompt + ids])).logits[0, len(prompt) - 1 : -1]
        scores = torch.log_softmax(logits, -1)
        expected = scores[torch.arange(len(ids)), torch.tensor(ids)].numpy()
        assert np.allclose(arrays.unpack_array(event.logprobs), expected, atol=2e-2, rtol=2e-3)
        assert np.allclose(arrays.unpack_array(event.entropies), torch.special.entr(scores.exp()).sum(-1).numpy(), atol=2e-2, rtol=2e-3)


def test_metrics_and_rollouts_of_a_step_say_the_same(rollouts, metrics):
    for step, event in metrics.items():
        own = [rollout for rollout in rollouts if rollout.step == step]
        assert event.values["reward"] == pytest.approx(np.mean([rollout.reward for rollout in own]), abs=1e-6)
        for name in ("correct", "format", "working"):
            assert event.values[f"rewards/{name}/mean"] == pytest.approx(np.mean([rollout.rewards[name] for rollout in own]), abs=1e-6)
        entropies = np.concatenate([arrays.unpack_array(rollout.entropies).astype(np.float64) for rollout in own])
        assert event.values["entropy"] == pytest.approx(entropies.mean(), rel=5e-3)
        assert event.values["completions/mean_length"] == pytest.approx(np.mean([rollout.length for rollout in own]))
        clipped = np.mean([rollout.finish_reason == "length" for rollout in own])
        assert event.values["completions/clipped_ratio"] == pytest.approx(clipped)


def test_the_reward_is_the_weighted_sum_and_the_advantage_is_relative_to_the_group(rollouts):
    groups = defaultdict(list)
    for event in rollouts:
        assert event.reward == pytest.approx(event.rewards["correct"] + 0.5 * event.rewards["working"])
        groups[event.step, event.group].append(event)
    for members in groups.values():
        scores = np.array([event.reward for event in members])
        expected = (scores - scores.mean()) / (scores.std(ddof=1) + 1e-4)
        assert np.allclose([event.advantage for event in members], expected, atol=1e-4)


def test_it_measures_before_every_k_steps_and_after(events):
    measured = [event for event in events if isinstance(event, Metrics) and "heldout/reward" in event.values]
    assert [event.step for event in measured] == [0, 3, 6]
    for event in measured:
        own = [rollout for rollout in events if isinstance(rollout, Rollout) and rollout.phase == "heldout" and rollout.step == event.step]
        assert sorted(rollout.group for rollout in own) == list(range(HELDOUT))
        assert event.values["heldout/accuracy"] == event.values["heldout/correct"]
        assert event.values["heldout/reward"] == pytest.approx(np.mean([rollout.reward for rollout in own]))
        assert event.values["heldout/length"] == pytest.approx(np.mean([rollout.length for rollout in own]))


def test_it_tells_its_life_in_order(events, run_folder):
    kinds = [type(event) for event in events if isinstance(event, AttemptStarted | Checkpoint | Saved | AttemptFinished)]
    assert kinds == [AttemptStarted, Checkpoint, Checkpoint, Checkpoint, Saved, AttemptFinished]
    started = next(event for event in events if isinstance(event, AttemptStarted))
    assert (started.from_step, started.total_steps) == (0, STEPS)
    assert started.special_tokens[0] == "<|pad|>"
    assert {"loading", "training", "evaluating", "saving"} <= {event.name for event in events if isinstance(event, Phase)}
    assert [path.name for path in sorted((run_folder / "checkpoints").iterdir())] == ["checkpoint-4", "checkpoint-6"]  # the newest two
    saved = next(event for event in events if isinstance(event, Saved))
    assert saved.bytes == policies.compute_folder_size(run_folder / "final")
    assert not list(run_folder.rglob("*.bin"))


def test_the_counters_only_grow(metrics):
    tokens = [metrics[step].tokens for step in sorted(metrics)]
    assert tokens == sorted(set(tokens))
    assert all(event.values["speed/step_seconds"] > 0 and event.values["speed/tokens_per_second"] > 0 for event in metrics.values())


def test_the_exported_policy_is_the_trained_one(run_folder):
    start = policies.load_model(ensure_cold_start(), torch.float32)
    final = policies.load_model(run_folder / "final", torch.float32)
    saved = policies.load_model(run_folder / "checkpoints" / "checkpoint-6", torch.float32)
    assert all(torch.equal(one, other) for one, other in zip(final.parameters(), saved.parameters(), strict=True))
    assert any(not torch.equal(one, other) for one, other in zip(final.parameters(), start.parameters(), strict=True))
    policies.check_policy_folder(run_folder / "final")


@pytest.mark.parametrize(
    ("accumulation", "per_generation", "passes"),
    [(2, None, 1), (1, 2, 1), (1, 2, 2), (2, 1, 1), (1, 1, 3)],
    ids=["accumulated", "split over steps", "split and reused", "several batches a step", "reused"],
)
def test_it_reports_once_however_batches_are_split_and_reused(tmp_path, accumulation, per_generation, passes):
    steps, batch = 4, 8
    spec = make_spec(
        tmp_path,
        training__max_steps=steps,
        training__gradient_accumulation_steps=accumulation,
        training__steps_per_generation=per_generation,
        training__num_iterations=passes,
        limits={"save_every": 1, "keep_checkpoints": 10},
    )
    assert train.run_training(spec, tmp_path) == train.FINISHED
    events = events_in(tmp_path)
    rollouts = [event for event in events if isinstance(event, Rollout)]
    micro, slices = steps * accumulation, per_generation or accumulation
    first_passes = [number for number in range(micro) if number % (slices * passes) < slices]
    expected = Counter(number // accumulation + 1 for number in first_passes for _ in range(batch))
    assert Counter(event.step for event in rollouts) == expected
    assert len({(event.step, event.group, event.sample) for event in rollouts}) == len(rollouts)
    boundaries = [step for step in range(1, steps + 1) if step * accumulation % (slices * passes) == 0]
    saved = [event.step for event in events if isinstance(event, Checkpoint)]
    assert saved == sorted({*boundaries, steps})


def test_the_world_of_a_multi_turn_task_has_no_loss(tmp_path, monkeypatch):
    monkeypatch.setenv("LAB_COLD_START_STEPS", SEARCH_STEPS)
    spec = make_spec(tmp_path, task={"name": "kb"}, training__max_steps=2, training__max_completion_length=64, evaluation={"prompts": 8, "every": 0})
    assert train.run_training(spec, tmp_path) == train.FINISHED
    events = events_in(tmp_path)
    tokenizer = policies.load_tokenizer(tmp_path / "final")
    rollouts = [event for event in events if isinstance(event, Rollout)]
    assert Counter(event.phase for event in rollouts) == {"train": 16, "heldout": 16}
    searched = [event for event in rollouts if any(turn.role == "tool" for turn in event.turns)]
    assert len(searched) >= 4
    for event in searched:
        ids, mask = arrays.unpack_array(event.ids).astype(int).tolist(), arrays.unpack_array(event.mask).tolist()
        assert [(turn.start, turn.end) for turn in event.turns] == list(
            zip([0, *[turn.end for turn in event.turns[:-1]]], [turn.end for turn in event.turns], strict=True)
        )
        assert event.turns[-1].end == len(ids) == len(mask) <= 64
        assert event.length == sum(mask)
        for turn in event.turns:
            text = tokenizer.decode(ids[turn.start : turn.end])
            assert set(mask[turn.start : turn.end]) == {int(turn.role == "assistant")}
            assert (text.startswith("<information>") and text.endswith("</information>")) == (turn.role == "tool")
        entropies = arrays.unpack_array(event.entropies).astype(float)
        assert event.mean_entropy == pytest.approx(entropies[np.array(mask, bool)].mean(), rel=1e-2, abs=1e-3)
    assert {event.finish_reason for event in rollouts} <= {"stop", "length", "turns"}
    by_step = [event for event in rollouts if event.phase == "train" and event.step == 1]
    values = next(event.values for event in current(events, Metrics) if event.step == 1)
    assert values["reward"] == pytest.approx(np.mean([event.reward for event in by_step]))
    assert values["completions/mean_length"] == pytest.approx(np.mean([event.length for event in by_step]))


@pytest.mark.parametrize("beta", [0.0, 0.04])
def test_it_trains_exactly_as_trls_own_trainer(tmp_path, beta):
    spec = make_spec(tmp_path, training__beta=beta)
    assert train.run_training(spec, tmp_path) == train.FINISHED
    ours = [event.values for event in events_in(tmp_path) if isinstance(event, Metrics)]
    theirs = bare_trl(tmp_path / "bare", spec)
    names = ["loss", "reward", "grad_norm", "entropy", "completions/mean_length", *(["kl"] if beta else [])]
    assert [[values[name] for name in names] for values in ours] == [[values[name] for name in names] for values in theirs]


def bare_trl(folder, spec):
    task = registry.get_task("mini_gsm")
    examples = task.examples("train", spec.training.prompts, spec.seed, "easy")
    with SpoolWriter(folder / SPOOL) as writer:
        policy = policies.load_policy(ensure_cold_start(), spec)
        attempt = Attempt(spec, folder, task, policy, Reporter(writer, 1), StopRequest(folder, None))

        def reward(name):
            def function(completions, example, **rest):
                return [task.rewards[name].function(made[-1]["content"], examples[i]) for made, i in zip(completions, example, strict=True)]

            function.__name__ = name
            return function

        trainer = GRPOTrainer(
            model=policy.model,
            processing_class=policy.tokenizer,
            args=grpo_config(attempt, stack.build_stack(spec)),
            reward_funcs=[reward(name) for name in task.rewards],
            train_dataset=build_prompt_dataset(examples),
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    return [entry for entry in trainer.state.log_history if "loss" in entry]


def test_an_answer_that_nobody_can_score_moves_no_baseline():
    nan = float("nan")
    scores = torch.tensor([[1.0, 0.5], [0.0, nan], [nan, nan], [nan, nan], [nan, nan], [nan, nan]])
    assert total_rewards(scores, torch.tensor([1.0, 2.0]), 3).tolist() == [2.0, 0.0, 1.0, 0.0, 0.0, 0.0]
