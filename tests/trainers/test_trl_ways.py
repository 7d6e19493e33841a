"""Tools, environments and rollout functions of TRL in a task of one's own: trained as TRL trains them, and shown with their turns and masks."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset
from transformers import PrinterCallback
from trl import GRPOConfig, GRPOTrainer

from tests.trainers.conftest import current, events_in, make_spec
from tests.trainers.test_human import answering, longest_first
from tests.trainers.tool_policy import build_tool_policy, build_tool_tokenizer, script_turns
from tests.trainers.trl_tasks import SCRIPTS, TASKS, Vault
from trainers.adapters.arguments import build_common_arguments
from trainers.attempt import train
from trainers.attempt.context import Attempt
from trainers.attempt.report import Reporter
from trainers.attempt.stop import StopRequest
from trainers.attempt.telemetry import Pieces, to_storable_text
from trainers.contract import arrays
from trainers.contract.events import Metrics, Rollout
from trainers.contract.spec import HUMAN, RunSpec
from trainers.contract.spool import SPOOL, SpoolWriter
from trainers.policies import loading as policies
from trainers.policies.sampling import as_rows
from trainers.tasks import registry

pytestmark = pytest.mark.training

NAMES = ("loss", "grad_norm", "reward", "completions/mean_length", "completions/clipped_ratio")
LENGTH = 120  # tokens of a completion


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tool_policy(tmp_path_factory.mktemp("policy") / "tools")


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {name: registry.make_usable_task(kind, name) for name, kind in TASKS.items()}
    monkeypatch.setattr(registry, "load_task_registry", lambda: registry.Registry(found, {}))


def make_tool_spec(folder: Path, output: Path, task: str, **changes: Any) -> RunSpec:
    policy = {"kind": "folder", "path": str(folder)}
    settings = {"training__max_completion_length": LENGTH, "training__max_steps": 2, "training__learning_rate": 1e-2, **changes}
    return make_spec(output, base={"name": "grpo"}, policy=policy, task={"name": task, "difficulty": "easy"}, **settings)


def train_in_lab(spec: RunSpec, output: Path) -> tuple[list[dict[str, float]], list[Rollout]]:
    assert train.run_training(spec, output) == train.FINISHED
    events = current(events_in(output), Metrics)
    return [event.values for event in events if "loss" in event.values], current(events_in(output), Rollout)


def train_with_trl(spec: RunSpec, output: Path, folder: Path) -> list[dict[str, float]]:
    """TRL's own trainer on the same task, configured from its own documentation."""
    task: Any = registry.get_task(spec.task.name)
    training: Any = spec.training
    writer = SpoolWriter(output / SPOOL)
    attempt = Attempt(spec, output, task, policies.load_policy(folder, spec), Reporter(writer, 1), StopRequest(output, None))
    examples = task.examples("train", training.prompts, spec.seed, "easy")

    def correct(completions: Any, a: list[int], b: list[int], **rest: Any) -> list[float]:
        return [float(made[-1]["content"].split()[-1:] == [str(x * y)]) for made, x, y in zip(completions, a, b, strict=True)]

    def points(completions: Any, points: list[float], **rest: Any) -> list[float]:
        return points

    names = ("num_generations", "max_completion_length", "temperature", "beta", "num_iterations", "steps_per_generation")
    values = build_common_arguments(attempt) | {name: getattr(training, name) for name in names} | {"top_p": 1.0, "top_k": 0, "loss_type": "grpo"}
    trainer = GRPOTrainer(
        model=attempt.policy.model,
        processing_class=attempt.policy.tokenizer,
        args=GRPOConfig(**values, max_tool_calling_iterations=task.max_turns - 1),
        reward_funcs=[correct, points] if task.trl.rollout_func else [correct],
        train_dataset=Dataset.from_list([{"prompt": as_rows(example.prompt), **example.data} for example in examples]),
        tools=list(task.trl.tools) or None,
        environment_factory=task.trl.environment_factory,
        rollout_func=task.trl.rollout_func,
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    return [entry for entry in trainer.state.log_history if "loss" in entry]


def check_products(rollout: Rollout) -> None:
    roles = [turn.role for turn in rollout.turns]
    assert roles == ([], ["assistant", "tool", "assistant"])[rollout.sample < 2]
    assert rollout.finish_reason == ("stop", "stop", "stop", "length")[rollout.sample]
    assert rollout.rewards["correct"] == float(rollout.sample == 0)
    assert ("<tool_response>" in rollout.completion, "{'error': " in rollout.completion) == (rollout.sample < 2, rollout.sample == 1)


def check_vaults(rollout: Rollout) -> None:
    assert [turn.role for turn in rollout.turns] == ([], ["assistant", "environment", "assistant"])[rollout.sample < 2]
    assert rollout.prompt[-1].content.endswith("? The vault is closed.")
    assert rollout.rewards == {"correct": float(rollout.sample < 2), "Vault": (0.9, -0.1, 0.0, 0.0)[rollout.sample]}
    assert rollout.reward == pytest.approx(sum(value or 0.0 for value in rollout.rewards.values()))
    assert rollout.finish_reason == ("stop", "stop", "stop", "length")[rollout.sample]


def check_several(rollout: Rollout) -> None:
    in_safe = int(rollout.prompt[-1].content.split()[2]) % 2
    assert rollout.rewards["Safe"] == ((0.9, -0.1, 0.0, 0.0)[rollout.sample] if in_safe else None)
    assert rollout.prompt[-1].content.endswith("The vault is closed.") == bool(in_safe)


def check_played(rollout: Rollout) -> None:
    place = (rollout.group % 2) * 4 + rollout.sample
    assert rollout.completion == f"{place} or no, {place % 3}"
    assert [turn.role for turn in rollout.turns] == ["assistant", "environment", "assistant"]
    assert rollout.rewards["points"] == 0.5 * (place % 3)
    assert rollout.finish_reason == ("length" if rollout.sample == 3 else "stop")


CHECKS = {"products": check_products, "vaults": check_vaults, "several": check_several, "played": check_played}


@pytest.mark.parametrize("name", CHECKS)
def test_a_task_trains_as_trl_trains_it(tmp_path, monkeypatch, folder, tasks, name):
    """Held-out prompts are measured in between, which TRL's own run does not."""
    script_turns(monkeypatch, build_tool_tokenizer(), SCRIPTS.get(name, SCRIPTS["vaults"]))
    monkeypatch.setattr(Vault, "made", 0)
    spec = make_tool_spec(folder, tmp_path, name, evaluation={"prompts": 6, "every": 1})
    ours, rollouts = train_in_lab(spec, tmp_path)
    assert Vault.made == {"vaults": 8 + 6}.get(name, Vault.made)  # held-out prompts have environments of their own, and all are used again
    (tmp_path / "trl").mkdir()
    theirs = train_with_trl(spec, tmp_path / "trl", folder)
    found = [[[step[name] for name in NAMES] for step in steps] for steps in (ours, theirs)]
    assert found[0] == found[1]
    assert len(found[0]) == 2
    assert all(step["grad_norm"] > 0 for step in ours)
    assert len(rollouts) == 2 * 8 + 3 * 6
    check_tokens(rollouts, folder)
    for rollout in rollouts:
        if rollout.phase == "train":
            CHECKS[name](rollout)


def test_accumulation_two_passes_and_a_penalty_are_those_of_trl(tmp_path, monkeypatch, folder, tasks):
    """Two generation batches of the environment's are used twice each."""
    script_turns(monkeypatch, build_tool_tokenizer(), SCRIPTS["vaults"])
    changes = {"num_iterations": 2, "gradient_accumulation_steps": 2, "per_device_train_batch_size": 4, "beta": 0.04, "max_steps": 4}
    spec = make_tool_spec(folder, tmp_path, "vaults", **{f"training__{name}": value for name, value in changes.items()})
    ours, rollouts = train_in_lab(spec, tmp_path)
    (tmp_path / "trl").mkdir()
    theirs = train_with_trl(spec, tmp_path / "trl", folder)
    found = [[[step[name] for name in ("loss", "grad_norm", "kl")] for step in steps] for steps in (ours, theirs)]
    assert found[0] == found[1]
    assert [any(step[name] for step in ours) for name in ("grad_norm", "kl")] == [True, True]
    assert len(rollouts) == 2 * 8
    check_tokens(rollouts, folder)


def check_tokens(rollouts: list[Rollout], folder: Path) -> None:
    """Texts, masks, turns and statistics of every event agree with its tokens."""
    tokenizer = policies.load_tokenizer(folder)
    pieces = Pieces(tokenizer)
    for rollout in rollouts:
        ids = arrays.unpack_array(rollout.ids).tolist()
        text = tokenizer.decode(ids, skip_special_tokens=True)
        assert to_storable_text(text) == rollout.completion
        assert pieces.lengths(ids, text) == arrays.unpack_array(rollout.lengths).tolist()
        logprobs = arrays.unpack_array(rollout.logprobs)
        assert len(logprobs) == len(ids)
        assert logprobs.min() < 0
        if rollout.turns:
            mask = arrays.unpack_array(rollout.mask)
            assert rollout.turns[-1].end == len(ids) == len(mask)
            assert rollout.length == int(mask.sum()) < len(ids)
            for turn in rollout.turns:
                assert set(mask[turn.start : turn.end].tolist()) == {int(turn.role == "assistant")}


def test_what_tools_say_is_stored_as_text_and_every_end_has_its_reason(tmp_path, monkeypatch, folder, tasks):
    script_turns(monkeypatch, build_tool_tokenizer(), SCRIPTS["shouts"])
    telemetry = {"sampler_logprobs": False}
    _, rollouts = train_in_lab(make_tool_spec(folder, tmp_path, "shouts", training__max_steps=1, telemetry=telemetry), tmp_path)
    check_tokens(rollouts, folder)
    by_sample = {rollout.sample: rollout for rollout in rollouts}
    assert "</tool_response>\ufffd\u2400<script>alert(1)</script>" in by_sample[0].completion
    assert [by_sample[number].finish_reason for number in range(4)] == ["stop", "turns", "length", "stop"]
    assert [by_sample[number].rewards["correct"] for number in range(4)] == [0, 0, 0, 1]
    assert len(arrays.unpack_array(by_sample[2].ids)) == LENGTH


def test_people_and_an_environment_are_columns_side_by_side(tmp_path, monkeypatch, folder, tasks):
    """With the weights of the spec; people are shown the whole text."""
    script_turns(monkeypatch, build_tool_tokenizer(), SCRIPTS["vaults"])
    human = {"share": 1.0, "seconds": 60, "weight": 0.5}
    spec = make_tool_spec(folder, tmp_path, "vaults", training__max_steps=1, human=human, task__rewards={"Vault": 2.0})
    with answering(tmp_path, longest_first):
        _, rollouts = train_in_lab(spec, tmp_path)
    for rollout in rollouts:
        assert list(rollout.rewards) == ["correct", "Vault", HUMAN]
        assert None not in rollout.rewards.values()
        assert rollout.reward == pytest.approx(rollout.rewards["correct"] + 2 * rollout.rewards["Vault"] + 0.5 * rollout.rewards[HUMAN])
    longest = max(rollouts[:4], key=lambda rollout: len(rollout.completion))
    assert longest.rewards[HUMAN] == 1.0


def test_held_out_prompts_and_a_resume_change_nothing(tmp_path, folder, tasks):
    """Of a policy that samples: what random weights write is rewarded for its vowels."""
    changes = {"training__max_completion_length": 16, "limits__save_every": 1}
    plain, _ = train_in_lab(make_tool_spec(folder, tmp_path / "plain", "noise", **changes), tmp_path / "plain")
    changes |= {"evaluation": {"prompts": 3, "every": 1, "temperature": 0.0}, "telemetry": {"sampler_logprobs": True}}
    output = tmp_path / "measured"
    spec = make_tool_spec(folder, output, "noise", **changes)
    measured, rollouts = train_in_lab(spec, output)
    assert [[step[name] for name in NAMES] for step in plain] == [[step[name] for name in NAMES] for step in measured]
    assert all(step["sampling/sampling_logp_difference/max"] < 1e-4 for step in measured)
    heldout = [[rollout.completion for rollout in rollouts if rollout.phase == "heldout" and rollout.step == step] for step in range(3)]
    assert all(len(texts) == 3 for texts in heldout)
    shutil.rmtree(output / "checkpoints" / "checkpoint-2")
    shutil.rmtree(output / "final")
    resumed, again = train_in_lab(spec, output)
    assert [[step[name] for name in NAMES] for step in measured] == [[step[name] for name in NAMES] for step in resumed]
    assert sorted((one.step, one.phase, one.group, one.sample, one.completion) for one in rollouts) == sorted(
        (one.step, one.phase, one.group, one.sample, one.completion) for one in again
    )
