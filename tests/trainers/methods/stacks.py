"""Whole stacks on one small batch, without training: the hooks as the adapter calls them, and what is left of each method in the loss.

The policy is a Llama of one layer with random weights; its completions are written here. TRL's own term stands as the clipped surrogate, the mean
over tokens: what the stack's order may undo happens before it or beside it.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from tests.trainers.conftest import make_spec
from tests.trainers.methods.batches import rollout_batch
from trainers.adapters.micro_batch import MicroBatch
from trainers.adapters.rollouts import GenerationBatch, character_ends
from trainers.adapters.scoring import advantages_of
from trainers.attempt.telemetry import Pieces
from trainers.catalog.entries import built_in_entries
from trainers.judges import rewards
from trainers.maths import advantages as group_relative
from trainers.methods import registry
from trainers.methods.base import Base, Method
from trainers.methods.batch import RolloutBatch
from trainers.methods.context import RunContext
from trainers.methods.prompts.prompt_augmentation import TEMPLATES, apply_prompt_template
from trainers.methods.stack import Stack
from trainers.policies import tiny
from trainers.policies.sampling import Completion
from trainers.tasks.base import Example
from trainers.tasks.mini_gsm import MiniGsm

GROUP, GROUPS, STEP = 4, 3, 3
ROWS = GROUP * GROUPS
HEATING = "annealed-rlvr"
SETTINGS: dict[str, dict[str, Any]] = {  # where the default does nothing on a single batch, or asks for a folder
    "evol-rl": {"entropy_weight": 0.1},
    "kimi-k15": {"length_from": 0.0},
    "retro-star": {"tau": 1.0},
    "verl-effective-rank": {"stride": 2},
    "ce-po": {"share": 0.4},
    "orthalign": {"earlier": "unused"},
    "llds": {"gate": "response"},
    "cmdp-distill": {"budget": 0.122},
    "humanline": {"lowest": -20.0, "highest": 20.0},  # random logits are far from the reference: all tokens would be clipped
}
UNPREPARED = frozenset({"orthalign", "rep-geometry-rankme"})  # they act on gradients alone, and read folders or hundreds of prompts first


class SmallRun(RunContext):
    """A run without an attempt's folder: the policy is its own reference, slightly moved, and sampling answers from a list."""

    def __init__(self, spec: Any, task: Any, model: Any, tokenizer: Any) -> None:
        policy = SimpleNamespace(model=model, tokenizer=tokenizer, device=torch.device("cpu"), folder=Path())
        weights = dict.fromkeys(task.rewards, 1.0)
        attempt: Any = SimpleNamespace(spec=spec, training=spec.training, task=task, policy=policy, weights=weights, sampling_batch=8)
        super().__init__(attempt)
        self.moved: Any = None

    def frozen(self, folder: str) -> Any:
        if self.moved is None:
            self.moved = copy.deepcopy(self.model).eval().requires_grad_(False)
            with torch.random.fork_rng():
                torch.manual_seed(7)
                for value in self.moved.parameters():
                    value.add_(0.02 * torch.randn_like(value))
        return self.moved

    def sample(self, examples: Sequence[Example], temperature: float = 1.0, key: object = "", model: Any = None) -> list[Completion]:
        texts = [f"<think>1+{place % 5}=3</think><answer>3</answer>" if place % 3 == 1 else self.gold(one) for place, one in enumerate(examples)]
        return [Completion([], text=text) for text in texts]

    def gold(self, example: Example) -> str:
        return self.task.gold(example) if "start" in example.data else "<think></think><answer>7</answer>"


@cache
def small_run(trainer: str = "grpo") -> SmallRun:
    task = MiniGsm()
    texts = [task.gold(example) for example in task.examples("train", 8, 0, "easy")]
    tokenizer = tiny.build_tokenizer(texts)
    shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2, "intermediate_size": 32}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        ends = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id, "bos_token_id": None}
        model = LlamaForCausalLM(LlamaConfig(**shape, vocab_size=len(tokenizer), tie_word_embeddings=True, max_position_embeddings=512, **ends))
    spec = make_spec(Path("unused"), trainer, training__num_generations=GROUP) if trainer == "grpo" else make_spec(Path("unused"), trainer)
    run = SmallRun(spec, task, model, tokenizer)
    run.examples = task.examples("train", 8, 0, "easy")
    return run


def completions(examples: Sequence[Example], task: Any) -> list[str]:
    """Four answers to each example: right, right without working, wrong in two ways. To the last one the same wrong answer four times."""
    made = []
    for example in examples[:-1]:
        gold, right = task.gold(example), example.reference
        made += [
            gold,
            f"<think></think><answer>{right}</answer>",
            "3+4=7 7+9=16<answer>16 and more",
            f"<think>3+4=7 7+1=8 8+1={right}</think><answer>9</answer>",
        ]
    return made + ["<think>1+1=3</think><answer>3</answer>"] * GROUP


@cache
def plain_batch() -> RolloutBatch:
    """Three groups of four, the first asked in a template what a solution is worth, the second whether one is right; what methods need of forward
    passes is there."""
    run = small_run()
    asked = [example for example in run.examples[:GROUPS] for _ in range(GROUP)]
    facts: list[dict[str, Any]] = [{"retro": [0, row < GROUP], "rmt": [row // GROUP, row // GROUP]} for row in range(ROWS)]
    for own in facts[GROUP : 2 * GROUP]:
        own["critique"] = False
    for own in facts[:GROUP]:
        own["true_scores"] = [5, 3, 1]
    examples = [replace(one, data={**one.data, **own}) for one, own in zip(asked, facts, strict=True)]
    texts = completions(run.examples[:GROUPS], run.task)
    rows = [run.completion_ids(text) for text in texts]
    width = max(map(len, rows))
    ids = torch.tensor([row + [run.tokenizer.pad_token_id] * (width - len(row)) for row in rows])
    mask = torch.tensor([[1.0] * len(row) + [0.0] * (width - len(row)) for row in rows])
    scores = torch.tensor(
        [
            [rewards.apply_reward_function(run.task, name, text, one) or 0.0 for name in run.task.rewards]
            for one, text in zip(examples, texts, strict=True)
        ]
    )
    reward = scores.sum(1)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        hidden, reference = torch.randn(ROWS, width, 16), -torch.rand(ROWS, width)
        reference[-GROUP:] = reference[-1]
        behaviour = (reference - 0.1).tolist()
    made = rollout_batch(
        reward.tolist(),
        GROUP,
        mask=mask,
        texts=texts,
        examples=examples,
        example_ids=[row // GROUP for row in range(ROWS)],
        prompts=[apply_prompt_template(one.prompt, TEMPLATES["r1"]) if row < GROUP else one.prompt for row, one in enumerate(examples)],
        ids=ids,
        ends=character_ends(Pieces(run.tokenizer), rows, texts),
        reward_names=list(run.task.rewards),
        hidden=hidden * mask[..., None],
        logprobs=reference * mask,
        entropies=-reference * mask,
        reference_logprobs=reference * mask,
        prompt_ids=run.prompt_ids([one.prompt for one in examples]),
        notes=[
            {"thought_tokens": 4, "trained": True, "scale": 1.0, "difficulty": "medium", "age": row % 3, "behaviour": behaviour[row]}
            | {"ponder": row % 4, "state": hidden[row, 0].tolist()}
            for row in range(ROWS)
        ],
        step=STEP,
        max_tokens=width,
    )
    return replace(made, rewards=scores)


@cache
def prototype(name: str) -> Method:
    """A method ready for the batch. Heating is the annealed run in the middle of its burst."""
    kind = registry.load_method_class(name)
    method = kind(kind.Config.model_validate(SETTINGS.get(name, {})))
    run = small_run()
    if name not in UNPREPARED:
        method.prepare(run)
    if name == "rmt":
        method.data(run.examples[:GROUPS], run)
    if name == "faithrl":
        method.restore({"initial": [0.4, 0.3]})
    if name == "verl-effective-rank":
        method.restore({"baselines": {"er": 1.0, "erv": 0.1, "era": 0.1}, "previous": {"er": 1.0, "erv": 0.1, "era": 0.1}, "score": 0.0})
    if name == HEATING:
        method.restore({"started": STEP, "heated": [0], "solutions": {0: run.task.gold(run.examples[0])}})
    if name == "siren":
        method.restore({"anchor": 0.5})
    return method


def fresh(name: str, heating: bool) -> Method:
    """The method as the prototype is, its memory its own."""
    first = prototype(name)
    method = copy.copy(first)
    method.logged = {}
    method.restore(copy.deepcopy(first.state()))
    if name == HEATING and not heating:
        method.restore({"started": 0})
    return method


class PlainBase(Base):
    """The base where none is named: TRL's trainer, no hook."""

    card = registry.load_method_class("grpo").card
    trainer = "grpo"


@dataclass
class Outcome:
    """What is left of a stack: ``numbers`` (n,) is all that training would see of it; the others are for looking at rows."""

    numbers: Tensor
    advantages: Tensor  # (B,) or (B, T)
    gradients: list[Tensor]  # (B, T, V) of the loss with respect to the logits, in the first pass and in a later one
    reported: GenerationBatch

    def differs(self, other: "Outcome") -> bool:
        return not torch.allclose(self.numbers, other.numbers, rtol=1e-5, atol=1e-8)


def stack_of(names: Sequence[str], heating: bool = False) -> Stack:
    made = [fresh(name, heating) for name in names]
    base = next((one for one in made if isinstance(one, Base)), PlainBase())
    stack = Stack(base, [one for one in made if one is not base])
    stack.run = small_run()
    return stack


def outcome(names: Sequence[str], *, heating: bool = False, **changes: Any) -> Outcome:
    """The stack on the batch: advantages, then two passes of the loss. ``changes``: fields of the batch that are other ones."""
    stack, batch = stack_of(names, heating), replace(plain_batch(), **changes)
    batch.notes, batch.filtered, batch.kept = [dict(note) for note in batch.notes], [], None
    reported = GenerationBatch(batch.examples, batch.prompts, batch.texts, [], {})
    plain = group_relative.compute_trl_advantages(batch.reward, GROUP, "group")
    advantages = advantages_of(stack, batch, plain, "group", reported)
    for method in stack.filling("observe"):
        method.observe(batch)
    scoring = SimpleNamespace(rollout_batch=batch, token_weights=None, kept=batch.kept)
    small_run().model.zero_grad(set_to_none=True)
    passes = [one_pass(stack, batch, advantages, scoring, first) for first in (True, False)]
    gradients = [gradient for _, gradient in passes]
    spread = advantages if advantages.dim() == 2 else advantages[:, None].expand(batch.mask.shape)
    seen = [(one @ drawn_direction()).flatten() for one in gradients]  # the whole gradient would be slow to compare thousands of times
    parts = [batch.shaped, (spread * batch.mask).flatten(), *(loss[None] for loss, _ in passes), *seen]
    return Outcome(torch.cat([part.double() for part in parts]), advantages, gradients, reported)


@cache
def drawn_logits(first: bool) -> Tensor:
    """(B, T, V) of the policy that sampled, and of the one some updates later."""
    with torch.random.fork_rng():
        torch.manual_seed(2)
        sampled = torch.randn(*plain_batch().ids.shape, len(small_run().tokenizer))
        return sampled if first else sampled + 0.3 * torch.randn_like(sampled)


@cache
def drawn_direction() -> Tensor:
    """(V,)"""
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return torch.randn(len(small_run().tokenizer))


def one_pass(stack: Stack, batch: RolloutBatch, advantages: Tensor, scoring: Any, first: bool) -> tuple[Tensor, Tensor]:
    """The loss and its gradient with respect to the logits."""
    logits = drawn_logits(first).clone().requires_grad_()
    every = torch.log_softmax(logits, -1)
    logprobs = every.gather(2, batch.ids[..., None])[..., 0]
    sampled = torch.log_softmax(drawn_logits(True), -1).gather(2, batch.ids[..., None])[..., 0]
    trainer: Any = SimpleNamespace(
        scoring=scoring,
        state=SimpleNamespace(global_step=STEP - 1),
        args=SimpleNamespace(max_steps=batch.total_steps, steps_per_generation=1),
        max_completion_length=batch.max_tokens,
        accelerator=SimpleNamespace(num_processes=1),
        loss_type="dapo",
        epsilon_low=0.2,
        epsilon_high=0.28,
    )
    inputs = {
        "completion_mask": batch.mask,
        "num_items_in_batch": batch.mask.sum(),
        "advantages": advantages,
        "old_per_token_logps": sampled,
        "ref_per_token_logps": batch.reference_logprobs,
    }
    micro = MicroBatch(trainer, stack, inputs, torch.arange(ROWS), first)
    used = micro.after_forward(logprobs, -(every.exp() * every).sum(-1), logits)
    own = micro.inputs["advantages"]
    own = own if own.dim() == 2 else own[:, None]
    ratio = torch.exp(used - micro.inputs["old_per_token_logps"])
    gain = torch.min(ratio * own, ratio.clamp(0.8, 1.28) * own)
    loss = -(gain * batch.mask).sum() / batch.mask.sum() + micro.terms()
    (gradient,) = torch.autograd.grad(loss, logits)
    return loss.detach(), gradient


def names_on(trainer: str) -> list[str]:
    """The methods of a trainer that can train on any task, bases left out."""
    free = {name: entry for name, entry in built_in_entries().items() if not entry["worlds"]}
    return [name for name, entry in free.items() if entry["group"] != "bases" and trainer in entry["trains"]]
