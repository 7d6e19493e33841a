"""Stored rollouts as the tensors that methods see: the batch that training saw, and the slices that went through its loss."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import torch
from torch import Tensor

from trainers.adapters.scoring import total_rewards
from trainers.contract import arrays
from trainers.contract.events import Message
from trainers.contract.hyperparameters import GRPO
from trainers.contract.problems import Problem, SpecError
from trainers.contract.spec import RunSpec
from trainers.maths.advantages import EPSILON, compute_trl_advantages
from trainers.methods.batch import LossBatch, RolloutBatch
from trainers.methods.stack import Stack
from trainers.replay.stored_run import MissingPart, StoredExamples, StoredRun

NOTED = "what the rollout hook noted about each completion while it was sampled, which is not stored"


class StoredRollout(msgspec.Struct, frozen=True):
    """One stored rollout. Arrays (T,) are packed by ``trainers.contract.arrays``. ``order``: its place among the rollouts as they were written."""

    id: int
    step: int
    group: int
    sample: int
    order: int
    prompt: list[tuple[str, str]]
    reference: str
    completion: str
    rewards: dict[str, float | None]
    finish_reason: str
    ids: bytes
    lengths: bytes
    logprobs: bytes
    entropies: bytes
    mask: bytes = b""
    reference_logprobs: bytes = b""


@dataclass
class StoredRecipe:
    spec: RunSpec
    training: GRPO
    stack: Stack
    examples: StoredExamples
    scale: Any  # TRL's scale_rewards of the base
    epsilon: tuple[float, float]
    notes: list[str] = field(default_factory=list)


def batch_of(recipe: StoredRecipe, rows: list[StoredRollout]) -> RolloutBatch:
    """The batch that training saw. Raises SpecError when a rollout has no tokens."""
    run = recipe.stack.context
    if bare := [one for one in rows if not one.ids]:
        raise SpecError([Problem("rollouts", bare[0].id, "its tokens are not stored", "choose a step whose tokens are")])
    tokens = [arrays.unpack_array(one.ids).astype(np.int64) for one in rows]
    masks = [arrays.unpack_array(one.mask) if one.mask else np.ones(len(own)) for one, own in zip(rows, tokens, strict=True)]
    mask = pad_stored_rows(masks).float()
    assert isinstance(run, StoredRun)
    scores = torch.tensor([[nan_of(one.rewards.get(name)) for name in run.weights] for one in rows])
    reward = total_rewards(scores, torch.tensor(list(run.weights.values())), recipe.training.num_generations)
    prompts = [[Message(role, content) for role, content in one.prompt] for one in rows]
    known = [recipe.examples.of(prompt, one.reference) for prompt, one in zip(prompts, rows, strict=True)]
    notes: Any = [MissingPart(NOTED) if recipe.stack.fills("rollout") else {} for _ in rows]
    return RolloutBatch(
        examples=[example for _, example in known],
        example_ids=[number for number, _ in known],
        prompts=prompts,
        texts=[one.completion for one in rows],
        ids=pad_stored_rows(tokens).long(),
        mask=mask,
        ends=[np.cumsum(arrays.unpack_array(one.lengths).astype(np.int64)).tolist() for one in rows],
        finished=torch.tensor([one.finish_reason in ("stop", "") for one in rows]),
        reward_names=list(run.weights),
        rewards=scores,
        reward=reward,
        shaped=reward,
        group_size=recipe.training.num_generations,
        step=min(one.step for one in rows),
        total_steps=recipe.training.max_steps,
        max_tokens=recipe.training.max_completion_length,
        seed=recipe.spec.seed,
        logprobs=unpack_measurements([one.logprobs for one in rows], mask),
        entropies=unpack_measurements([one.entropies for one in rows], mask),
        reference_logprobs=unpack_measurements([one.reference_logprobs for one in rows], mask),
        prompt_ids=MissingPart("the prompt's token ids for a forward pass of the policy, which a replay does not load"),  # type: ignore[arg-type]
        notes=notes,
    )


def plain_advantages(batch: RolloutBatch, scale: Any) -> Tensor:
    """(B,): TRL's advantages of the rewards before any method. An answer that nobody could score counts in no mean and no deviation."""
    unscored = batch.rewards.isnan().all(1)
    if not unscored.any():
        return compute_trl_advantages(batch.reward, batch.group_size, scale)
    groups = batch.reward.masked_fill(unscored, float("nan")).view(-1, batch.group_size)
    centred = groups - groups.nanmean(1, keepdim=True)
    if scale == "none":
        return centred.flatten().nan_to_num(0.0)
    known = (~groups.isnan()).sum(1, keepdim=True) if scale == "group" else (~groups.isnan()).sum()
    square = (centred**2).nansum(1, keepdim=True) if scale == "group" else ((groups - groups.nanmean()) ** 2).nansum()
    return (centred / ((square / (known - 1).clamp(min=1)).sqrt() + EPSILON)).flatten().nan_to_num(0.0)


def split_loss_slices(rows: Sequence[StoredRollout], size: int) -> list[list[int]]:
    """Rows of the batch that went through the loss together: they were written together."""
    order = sorted(range(len(rows)), key=lambda row: rows[row].order)
    starts = [*range(0, len(order), size), len(order)]
    return [order[start:end] for start, end in pairwise(starts)]


def slice_of(recipe: StoredRecipe, batch: RolloutBatch, advantages: Tensor, rows: Tensor, step: int) -> LossBatch:
    if batch.logprobs is None or batch.entropies is None:
        message = "the log-probabilities and entropies that token weights are worked out from are not stored"
        raise SpecError([Problem("rollouts", batch.step, message, "choose a step whose tokens are stored with them")])
    return LossBatch(
        rollout=batch,
        rows=rows,
        logprobs=batch.logprobs[rows],
        old_logprobs=batch.logprobs[rows],
        entropies=batch.entropies[rows],
        mask=batch.mask[rows],
        advantages=advantages[rows],
        step=step,
        total_steps=batch.total_steps,
        max_tokens=batch.max_tokens,
        first_pass=True,
        epsilon=recipe.epsilon,
        reference_logprobs=None if batch.reference_logprobs is None else batch.reference_logprobs[rows],
    )


def unpack_measurements(packed: Sequence[bytes], mask: Tensor) -> Tensor | None:
    """(B, T), 0 outside the mask; None when a rollout came without the measurement."""
    return pad_stored_rows([arrays.unpack_array(data) for data in packed]).float() * mask if all(packed) else None


def pad_stored_rows(rows: Sequence[Any]) -> Tensor:
    """(B, T), 0 on the right."""
    return torch.nn.utils.rnn.pad_sequence([torch.from_numpy(np.array(row)) for row in rows], batch_first=True)


def nan_of(score: float | None) -> float:
    return float("nan") if score is None else score
