"""Every adapter with its plain base trains exactly as TRL's own trainer does, and so it does with a method that changes nothing.

TRL's side is configured here from its own documentation, not through the code under test.
"""

import itertools

import pytest
import torch
from datasets import Dataset
from transformers import PrinterCallback
from trl import (
    DPOConfig,
    DPOTrainer,
    GRPOConfig,
    GRPOTrainer,
    KTOConfig,
    KTOTrainer,
    RewardConfig,
    RewardTrainer,
    RLOOConfig,
    RLOOTrainer,
    SFTConfig,
    SFTTrainer,
)
from trl.experimental.cpo import CPOConfig, CPOTrainer
from trl.experimental.gkd import GKDConfig, GKDTrainer
from trl.experimental.online_dpo import OnlineDPOConfig, OnlineDPOTrainer
from trl.experimental.orpo import ORPOConfig, ORPOTrainer

from tests.trainers.conftest import DEVICE, ensure_cold_start, events_in, make_spec
from trainers.adapters.arguments import build_common_arguments
from trainers.adapters.groups import build_prompt_dataset
from trainers.adapters.kto import build_kto_dataset as labelled
from trainers.adapters.reward import build_reward_dataset as paired
from trainers.adapters.reward import reward_model
from trainers.adapters.sft import build_demonstrations
from trainers.attempt import train
from trainers.attempt.context import Attempt
from trainers.attempt.report import Reporter
from trainers.attempt.stop import StopRequest
from trainers.contract.events import Metrics, Rollout
from trainers.contract.problems import SpecError
from trainers.contract.spool import SPOOL, SpoolWriter
from trainers.data import pairs
from trainers.methods import stack as stacks
from trainers.methods.base import Method
from trainers.methods.card import Card
from trainers.policies import loading as policies
from trainers.policies import tiny
from trainers.tasks import registry

pytestmark = pytest.mark.training

EPSILON = 0.2
TOLERANCE = 1e-6 if DEVICE == "cpu" else 1e-4  # a GPU adds in whatever order its blocks end
TRL_SETTINGS = {
    "grpo": {"loss_type": "grpo"},
    "dr-grpo": {"loss_type": "dr_grpo", "scale_rewards": "none"},
    "dapo": {"loss_type": "dapo", "epsilon_high": 0.28},
    "gspo": {"loss_type": "grpo", "importance_sampling_level": "sequence", "epsilon": 3e-4, "epsilon_high": 4e-4},
    "cispo": {"loss_type": "cispo", "epsilon_high": 5.0},
}


class Nothing(Method):
    """Fills every hook of the loss with what changes nothing."""

    card = Card("nothing", "Nothing", "", "", "", "code", "", "core", "", ())
    trains = frozenset({"grpo", "dpo", "sft", "reward"})

    def rewards(self, batch, rewards):
        return rewards

    def advantages(self, batch, advantages):
        return advantages

    def token_weights(self, batch):
        return torch.ones_like(batch.mask)

    def loss(self, batch):
        return torch.zeros(())

    def pair_ratios(self, batch, chosen, rejected):
        return chosen, rejected

    def pair_loss(self, batch, score, base):
        return base(score)

    def pair_weights(self, batch, losses):
        return torch.ones_like(losses)

    def sft_weights(self, batch):
        return torch.ones_like(batch.mask)


class OwnsTheLoss(Nothing):
    """Says DAPO's loss itself, from the batch it is given."""

    def policy_loss(self, batch):
        ratio = torch.exp(batch.logprobs - batch.old_logprobs)
        low, high = batch.epsilon
        advantages = batch.token_advantages()
        terms = torch.min(ratio * advantages, ratio.clamp(1 - low, 1 + high) * advantages)
        return -(terms * batch.mask).sum() / batch.mask.sum()


def ours(spec, tmp_path, monkeypatch, method=None):
    if method is not None:
        build = stacks.build_stack
        monkeypatch.setattr(stacks, "build_stack", lambda spec: stacks.Stack(build(spec).base, [method]))
    assert train.run_training(spec, tmp_path) == train.FINISHED
    return [event.values for event in events_in(tmp_path) if isinstance(event, Metrics) and "loss" in event.values]


def attempt_in(folder, spec, start=None):
    task = registry.get_task("mini_gsm")
    policy = policies.load_policy(start or ensure_cold_start(), spec)
    return Attempt(spec, folder, task, policy, Reporter(SpoolWriter(folder / SPOOL), 1), StopRequest(folder, None))


def trained(trainer):
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    return [entry for entry in trainer.state.log_history if "loss" in entry]


def task_reward(task, examples, name):
    """A reward function of the task as TRL calls them."""

    def function(completions, example, **rest):
        return [task.rewards[name].function(made[-1]["content"], examples[i]) for made, i in zip(completions, example, strict=True)]

    function.__name__ = name
    return function


def trl_grpo(attempt, settings, kinds=(GRPOTrainer, GRPOConfig)):
    training = attempt.spec.training
    examples = attempt.task.examples("train", training.prompts, attempt.spec.seed, "easy")

    names = ("num_generations", "max_completion_length", "temperature", "beta", "num_iterations", "steps_per_generation")
    values = (
        build_common_arguments(attempt)
        | {name: getattr(training, name) for name in names}
        | {"epsilon": EPSILON, "top_p": 1.0, "top_k": 0}
        | settings
    )
    return trained(
        kinds[0](
            model=attempt.policy.model,
            processing_class=attempt.policy.tokenizer,
            args=kinds[1](**values, reward_weights=list(attempt.weights.values())),
            reward_funcs=[task_reward(attempt.task, examples, name) for name in attempt.task.rewards],
            train_dataset=build_prompt_dataset(examples),
        )
    )


def compare(one, other, names, exactly=True):
    found = [[[step.get(name, 0.0) for name in names] for step in steps] for steps in (one, other)]  # a reused batch has its reward once
    assert len(found[0]) == len(found[1]) > 0
    assert any(step["grad_norm"] > 0 for step in one)
    if exactly and DEVICE == "cpu":
        assert found[0] == found[1]
    for step, expected in zip(*found, strict=True):
        assert step == pytest.approx(expected, abs=TOLERANCE, rel=10 * TOLERANCE)


GRPO_NAMES = ("loss", "grad_norm", "reward", "entropy", "completions/mean_length")


@pytest.mark.parametrize("base", TRL_SETTINGS)
@pytest.mark.parametrize(
    ("beta", "passes", "accumulation"),
    [(0.0, 1, 2), (0.04, 2, 1)],
    ids=["accumulated", "KL and two passes"],
)
def test_grpo_bases(tmp_path, monkeypatch, base, beta, passes, accumulation):
    spec = make_spec(
        tmp_path,
        base={"name": base},
        training__beta=beta,
        training__num_iterations=passes,
        training__gradient_accumulation_steps=accumulation,
    )
    made = ours(spec, tmp_path, monkeypatch)
    theirs = trl_grpo(attempt_in(tmp_path / "trl", spec), TRL_SETTINGS[base])
    compare(made, theirs, [*GRPO_NAMES, *(["kl"] if beta else [])])
    lengths = [(step["completions/min_length"], step["completions/max_length"]) for step in made if "reward" in step]
    assert any(shortest < longest for shortest, longest in lengths)


@pytest.mark.parametrize(("beta", "passes", "normalise"), [(0.0, 1, False), (0.04, 2, True)], ids=["on policy", "KL, two passes, normalised"])
def test_rloo(tmp_path, monkeypatch, beta, passes, normalise):
    base = {"name": "rloo-trl", "config": {"normalize_advantages": normalise}}
    spec = make_spec(tmp_path, "rloo", base=base, training__beta=beta, training__num_iterations=passes, training__max_steps=2 * passes)
    made = ours(spec, tmp_path, monkeypatch)
    theirs = trl_grpo(attempt_in(tmp_path / "trl", spec), {"normalize_advantages": normalise}, (RLOOTrainer, RLOOConfig))
    compare(made, theirs, [*GRPO_NAMES, *(["kl"] if beta else [])])


def test_measuring_held_out_prompts_changes_nothing(tmp_path, monkeypatch):
    spec = make_spec(tmp_path, evaluation={"prompts": 8, "every": 1}, base={"name": "grpo"})
    theirs = trl_grpo(attempt_in(tmp_path / "trl", spec), TRL_SETTINGS["grpo"])
    compare(ours(spec, tmp_path, monkeypatch), theirs, GRPO_NAMES)


@pytest.mark.parametrize(("base", "beta", "passes"), [("dapo", 0.04, 2), ("gspo", 0.0, 2), ("cispo", 0.0, 2)])
def test_grpo_with_a_method_that_changes_nothing(tmp_path, monkeypatch, base, beta, passes):
    spec = make_spec(tmp_path, base={"name": base}, training__beta=beta, training__num_iterations=passes)
    theirs = trl_grpo(attempt_in(tmp_path / "trl", spec), TRL_SETTINGS[base])
    compare(ours(spec, tmp_path, monkeypatch, Nothing()), theirs, GRPO_NAMES, exactly=False)


@pytest.mark.parametrize("beta", [0.0, 0.04])
def test_grpo_with_a_method_that_says_the_loss_itself(tmp_path, monkeypatch, beta):
    """And the KL penalty of the base stays."""
    spec = make_spec(tmp_path, base={"name": "dapo"}, training__beta=beta, training__num_iterations=2)
    theirs = trl_grpo(attempt_in(tmp_path / "trl", spec), TRL_SETTINGS["dapo"])
    compare(ours(spec, tmp_path, monkeypatch, OwnsTheLoss()), theirs, GRPO_NAMES, exactly=False)


PAIR_NAMES = ("loss", "grad_norm", "rewards/margins", "logps/chosen")


@pytest.mark.parametrize(
    ("base", "accumulation", "method"),
    [*itertools.product(("dpo", "ipo"), (1, 2), (None,)), ("dpo", 2, Nothing), ("ipo", 1, Nothing)],
)
def test_pair_bases(tmp_path, monkeypatch, base, accumulation, method):
    spec = make_spec(tmp_path, "dpo", base={"name": base}, training__gradient_accumulation_steps=accumulation, training__beta=0.2)
    made = ours(spec, tmp_path, monkeypatch, method() if method else None)
    attempt = attempt_in(tmp_path / "trl", spec)
    settings = build_common_arguments(attempt) | {
        "beta": 0.2,
        "max_length": spec.training.max_length,
        "loss_type": ["sigmoid" if base == "dpo" else "ipo"],
    }
    rows, _ = pairs.read_sampled_pairs(tmp_path / pairs.FILE)
    theirs = trained(
        DPOTrainer(model=attempt.policy.model, processing_class=attempt.policy.tokenizer, args=DPOConfig(**settings), train_dataset=paired(rows))
    )
    compare(made, theirs, PAIR_NAMES, exactly=method is None)


REFERENCE_FREE = {
    "orpo": (ORPOTrainer, ORPOConfig, {}, {}),
    "cpo": (CPOTrainer, CPOConfig, {"likelihood": 0.5, "label_smoothing": 0.1}, {"loss_type": "sigmoid", "cpo_alpha": 0.5, "label_smoothing": 0.1}),
    "simpo": (CPOTrainer, CPOConfig, {"gamma": 0.3}, {"loss_type": "simpo", "cpo_alpha": 0.0, "simpo_gamma": 0.3}),
}


@pytest.mark.parametrize("base", REFERENCE_FREE)
def test_bases_without_a_reference(tmp_path, monkeypatch, base):
    kind, config, ours_of, theirs_of = REFERENCE_FREE[base]
    changes = {"training__max_steps": 2, "training__gradient_accumulation_steps": 2, "training__beta": 0.7, "training__warmup_steps": 0}
    spec = make_spec(tmp_path, "orpo" if base == "orpo" else "cpo", base={"name": base, "config": ours_of}, **changes)
    made = ours(spec, tmp_path, monkeypatch)
    attempt = attempt_in(tmp_path / "trl", spec)
    settings = build_common_arguments(attempt) | {"beta": 0.7, "max_length": spec.training.max_length} | theirs_of
    rows, _ = pairs.read_sampled_pairs(tmp_path / pairs.FILE)
    model, tokenizer = attempt.policy.model, attempt.policy.tokenizer
    theirs = trained(kind(model=model, processing_class=tokenizer, args=config(**settings), train_dataset=paired(rows)))
    compare(made, theirs, (*PAIR_NAMES, "nll_loss", "rewards/accuracies"))
    assert all(0 < step["entropy"] < 3 for step in made)
    events = [event for event in events_in(tmp_path) if isinstance(event, Metrics) and "loss" in event.values]
    assert 0 < events[0].tokens < events[1].tokens


@pytest.mark.parametrize(("loss", "lora"), [("sigmoid", None), ("ipo", {"r": 4, "alpha": 8})], ids=["sigmoid", "ipo with adapters"])
def test_online_dpo(tmp_path, monkeypatch, loss, lora):
    base = {"name": "online-dpo", "config": {"loss": loss, "missing_eos_penalty": 0.5}}
    changes = {"training__max_steps": 2, "training__warmup_steps": 0, "training__gradient_accumulation_steps": 2, "training__temperature": 0.8}
    spec = make_spec(tmp_path, "online-dpo", base=base, lora=lora, **changes)
    made = ours(spec, tmp_path, monkeypatch)
    attempt = attempt_in(tmp_path / "trl", spec)
    training, examples = spec.training, attempt.task.examples("train", spec.training.prompts, spec.seed, "easy")
    settings = build_common_arguments(attempt) | {
        "max_new_tokens": training.max_completion_length,
        "max_length": training.max_length,
        "temperature": 0.8,
        "beta": 0.1,
        "loss_type": loss,
        "missing_eos_penalty": 0.5,
        "reward_weights": list(attempt.weights.values()),
    }
    theirs = trained(
        OnlineDPOTrainer(
            model=attempt.policy.model,
            processing_class=attempt.policy.tokenizer,
            args=OnlineDPOConfig(**settings),
            reward_funcs=[task_reward(attempt.task, examples, name) for name in attempt.task.rewards],
            train_dataset=build_prompt_dataset(examples),
            peft_config=policies.build_lora_config(spec.lora) if lora else None,
        )
    )
    compare(made, theirs, (*PAIR_NAMES, "objective/scores", "objective/scores_margin", "objective/kl"))


@pytest.mark.parametrize(
    ("on_policy", "divergence", "sequence_level"), [(0.5, 0.5, False), (0.5, 0.0, True), (1.0, 1.0, False)], ids=["mixed", "teacher's", "on policy"]
)
def test_gkd(tmp_path, monkeypatch, on_policy, divergence, sequence_level):
    config = {"on_policy": on_policy, "divergence": divergence, "sequence_level": sequence_level}
    changes = {"training__max_steps": 3, "training__warmup_steps": 0, "training__gradient_accumulation_steps": 2, "training__temperature": 0.9}
    start_and_teacher = {"policy": {"kind": "tiny", "cold_start": False}, "teacher": {"kind": "tiny"}}
    spec = make_spec(tmp_path, "gkd", base={"name": "gkd", "config": config}, training__max_completion_length=12, **start_and_teacher, **changes)
    made = ours(spec, tmp_path, monkeypatch)
    attempt = attempt_in(tmp_path / "trl", spec, tiny.ensure_untrained_policy())
    settings = build_common_arguments(attempt) | {
        "max_length": spec.training.max_length,
        "max_new_tokens": 12,
        "temperature": 0.9,
        "lmbda": on_policy,
        "beta": divergence,
        "seq_kd": sequence_level,
    }
    rows = build_demonstrations(attempt.task, spec.training.demonstrations, spec.seed, "easy", attempt.policy.tokenizer)
    theirs = trained(
        GKDTrainer(
            model=attempt.policy.model,
            teacher_model=policies.load_model(ensure_cold_start(), torch.float32),
            processing_class=attempt.policy.tokenizer,
            args=GKDConfig(**settings),
            train_dataset=Dataset.from_list([{"messages": row["prompt"] + row["completion"]} for row in rows]),
        )
    )
    compare(made, theirs, ("loss", "grad_norm"))
    own, others = ([step[f"gkd/{name}"] for step in made] for name in ("on_policy", "teacher_written"))
    assert sum(own) == 3 if on_policy == 1 else 0 < sum(own) < 3
    assert sum(others) == (3 - sum(own) if sequence_level else 0)
    sampled = [event for event in events_in(tmp_path) if isinstance(event, Rollout) and event.phase == "train"]
    assert len(sampled) == sum(own) * 2 * 4


def test_kto(tmp_path, monkeypatch):
    spec = make_spec(tmp_path, "kto", training__learning_rate=1e-3, base={"name": "kto", "config": {"undesirable_weight": 0.5}})
    made = ours(spec, tmp_path, monkeypatch)
    attempt = attempt_in(tmp_path / "trl", spec)
    rows = [row for pair in pairs.read_sampled_pairs(tmp_path / pairs.FILE)[0] for row in pairs.kto_rows_from_pair(pair)]
    settings = build_common_arguments(attempt) | {"beta": 0.1, "max_length": spec.training.max_length, "undesirable_weight": 0.5}
    model, tokenizer = attempt.policy.model, attempt.policy.tokenizer
    theirs = trained(KTOTrainer(model=model, processing_class=tokenizer, args=KTOConfig(**settings), train_dataset=labelled(rows)))
    compare(made, theirs, ("loss", "grad_norm", "kl"))
    assert made[0]["loss"] != made[-1]["loss"]


@pytest.mark.parametrize("method", [None, Nothing])
def test_reward_model(tmp_path, monkeypatch, method):
    base = {"name": "reward-model", "config": {"centring": 0.01}}
    spec = make_spec(tmp_path, "reward", base=base, training__max_steps=20, training__learning_rate=3e-3)
    made = ours(spec, tmp_path, monkeypatch, method() if method else None)
    attempt = attempt_in(tmp_path / "trl", spec)
    settings = build_common_arguments(attempt) | {"max_length": spec.training.max_length, "center_rewards_coefficient": 0.01}
    rows, _ = pairs.read_sampled_pairs(tmp_path / pairs.FILE)
    model, tokenizer = reward_model(attempt), attempt.policy.tokenizer
    theirs = trained(RewardTrainer(model=model, processing_class=tokenizer, args=RewardConfig(**settings), train_dataset=paired(rows)))
    compare(made, theirs, ("loss", "grad_norm", "accuracy", "margin"))
    assert made[-1]["margin"] > made[0]["margin"]
    with pytest.raises(SpecError, match="reward model"):  # it is no policy to go on from
        policies.check_policy_folder(tmp_path / "final")


@pytest.mark.parametrize("method", [None, Nothing])
def test_sft(tmp_path, monkeypatch, method):
    spec = make_spec(tmp_path, "sft", training__gradient_accumulation_steps=2)
    made = ours(spec, tmp_path, monkeypatch, method() if method else None)
    attempt = attempt_in(tmp_path / "trl", spec)
    rows = build_demonstrations(attempt.task, spec.training.demonstrations, spec.seed, "easy", attempt.policy.tokenizer)
    settings = build_common_arguments(attempt) | {"max_length": spec.training.max_length, "packing": False, "completion_only_loss": True}
    model, tokenizer = attempt.policy.model, attempt.policy.tokenizer
    theirs = trained(SFTTrainer(model=model, processing_class=tokenizer, args=SFTConfig(**settings), train_dataset=Dataset.from_list(rows)))
    compare(made, theirs, ("loss", "grad_norm", "entropy"), exactly=method is None)
