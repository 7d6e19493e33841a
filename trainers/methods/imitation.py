"""Imitation alongside RL: cross-entropy on gold answers, for methods that combine both in one loss."""

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainers.contract.events import Message
from trainers.maths.reduce import masked_mean

if TYPE_CHECKING:
    from trainers.methods.batch import LossBatch
    from trainers.methods.context import RunContext
    from trainers.tasks.base import Example


def gold_answer(run: "RunContext", example: "Example") -> str | None:
    """The task's gold completion; None for an example of a user's dataset that has no solution to show."""
    try:
        return run.task.gold(example)
    except LookupError:
        return None


def cross_entropy(run: "RunContext", prompts: Sequence[Sequence[Message]], texts: Sequence[str]) -> Tensor:
    """Scalar, with gradient: mean negative log-likelihood of the tokens of ``texts``, end token included."""
    logprobs, mask = run.logprobs(run.prompt_ids(prompts), [run.completion_ids(text) for text in texts])
    return -masked_mean(logprobs, mask)


def different_examples(batch: "LossBatch") -> dict[int, "Example"]:
    """Indices of the distinct training examples in the sampled batch, each once."""
    return dict(zip(batch.rollout.example_ids, batch.rollout.examples, strict=True))


def gold_loss(run: "RunContext", batch: "LossBatch") -> Tensor | None:
    """Cross-entropy on the gold answers of a micro-batch's prompts; None where no prompt has one. One forward pass of at most B rows.

    Averaged over the micro-batches, it is the mean over the tokens of the sampled batch's gold answers, each counted once.
    """
    examples = different_examples(batch)
    golds = {number: run.completion_ids(gold) for number, example in examples.items() if (gold := gold_answer(run, example)) is not None}
    weights = {number: weight for number, weight in batch.weights_of(batch.rollout.example_ids).items() if number in golds}
    if not weights:
        return None
    logprobs, mask = run.logprobs(run.prompt_ids([examples[number].prompt for number in weights]), [golds[number] for number in weights])
    weight = mask.new_tensor(list(weights.values()))[:, None]
    return -masked_mean(logprobs, mask * weight, sum(map(len, golds.values())))


def train_on_texts(
    run: "RunContext", model: Any, rows: Sequence[tuple[Sequence[Message], str]], steps: int, learning_rate: float, rng: random.Random, size: int = 32
) -> float:
    """Supervised training of another model than the policy on (prompt, text), ``size`` rows a step; returns the loss of the last step, nats a token.

    Leaves the model frozen and in evaluation mode.
    """
    prompts, texts = run.prompt_ids([prompt for prompt, _ in rows]), [run.completion_ids(text) for _, text in rows]
    model.requires_grad_(True).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, weight_decay=0.0)
    last = 0.0
    for step in range(steps):
        for group in optimizer.param_groups:  # linearly down to 0
            group["lr"] = learning_rate * (1 - step / steps)
        some = [rng.randrange(len(rows)) for _ in range(min(size, len(rows)))]
        logprobs, mask = run.logprobs([prompts[row] for row in some], [texts[row] for row in some], model)
        loss = -masked_mean(logprobs, mask)
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        last = loss.item()
    model.requires_grad_(False).eval()
    return last
