"""Batches with given numbers, for calling hooks without a trainer."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from trainers.adapters.dpo import sum_token_ratios
from trainers.contract.events import Message
from trainers.methods.batch import LossBatch, PairBatch, RolloutBatch, TokenBatch
from trainers.tasks.base import Example


def rollout_batch(rewards: Sequence[float], group_size: int, **fields: Any) -> RolloutBatch:
    """One reward function, T = 3 tokens written by the policy in each row unless ``mask`` says otherwise."""
    count = len(rewards)
    reward = torch.tensor(rewards, dtype=torch.float32)
    mask = fields.pop("mask", torch.ones(count, 3))
    texts = fields.pop("texts", ["abc"[: mask.shape[1]] for _ in range(count)])
    examples = [Example([Message("user", f"question {row // group_size}")], "answer") for row in range(count)]
    known: dict[str, Any] = {
        "examples": examples,
        "example_ids": [row // group_size for row in range(count)],
        "prompts": [example.prompt for example in examples],
        "texts": texts,
        "ids": torch.arange(mask.numel()).view_as(mask),
        "mask": mask,
        "ends": [[min(len(text), place + 1) for place in range(mask.shape[1])] for text in texts],
        "finished": torch.ones(count, dtype=torch.bool),
        "reward_names": ["correct"],
        "rewards": reward[:, None],
        "reward": reward,
        "shaped": reward,
        "group_size": group_size,
        "step": 1,
        "total_steps": 10,
        "max_tokens": mask.shape[1],
        "seed": 0,
        "notes": [{} for _ in range(count)],
    }
    return RolloutBatch(**known | fields)


def loss_batch(logprobs: Tensor, advantages: Tensor, group_size: int = 2, **fields: Any) -> LossBatch:
    """Log-probabilities (B, T) and advantages (B,) or (B, T); old log-probabilities equal unless given."""
    mask = fields.pop("mask", torch.ones_like(logprobs))
    rollout = fields.pop("rollout", None) or rollout_batch([0.0] * len(logprobs), group_size, mask=mask.detach())
    known: dict[str, Any] = {
        "rollout": rollout,
        "rows": torch.arange(len(logprobs)),
        "logprobs": logprobs,
        "old_logprobs": logprobs.detach().clone(),
        "entropies": torch.zeros_like(logprobs),
        "mask": mask,
        "advantages": advantages,
        "step": 1,
        "total_steps": 10,
        "max_tokens": logprobs.shape[1],
        "first_pass": True,
        "epsilon": (0.2, 0.2),
    }
    return LossBatch(**known | fields)


def pair_batch(chosen: Tensor, rejected: Tensor, beta: float = 0.1, **fields: Any) -> PairBatch:
    """Token log-ratios (B, T) of chosen and rejected: the reference is 0 everywhere."""
    known: dict[str, Any] = {
        "rows": [{} for _ in range(len(chosen))],
        "indices": list(range(len(chosen))),
        "chosen_ids": torch.zeros(chosen.shape, dtype=torch.long),
        "rejected_ids": torch.zeros(rejected.shape, dtype=torch.long),
        "chosen_mask": torch.ones_like(chosen),
        "rejected_mask": torch.ones_like(rejected),
        "chosen_logprobs": chosen,
        "rejected_logprobs": rejected,
        "chosen_reference": torch.zeros_like(chosen),
        "rejected_reference": torch.zeros_like(rejected),
        "beta": beta,
        "step": 1,
        "total_steps": 10,
        "reduce": sum_token_ratios,
    }
    return PairBatch(**known | fields)


def token_batch(logprobs: Tensor, **fields: Any) -> TokenBatch:
    known: dict[str, Any] = {
        "rows": [{} for _ in range(len(logprobs))],
        "ids": torch.zeros(logprobs.shape, dtype=torch.long),
        "mask": torch.ones_like(logprobs),
        "logprobs": logprobs,
        "entropies": torch.zeros_like(logprobs),
        "step": 1,
        "total_steps": 10,
    }
    return TokenBatch(**known | fields)
