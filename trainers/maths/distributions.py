"""Next-token distributions of a model on given texts."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from trainers.methods.batch import RolloutBatch
    from trainers.methods.context import RunContext


def next_token_logprobs(model: Any, prompts: Sequence[Sequence[int]], ids: Tensor, pad: int, temperature: float = 1.0) -> Tensor:
    """(B, T, V) log-probabilities that ``model`` chooses each of ``ids`` (B, T) from after the prompts, which are padded on the left."""
    width, count = max(len(prompt) for prompt in prompts), ids.shape[1]
    heads = torch.tensor([[pad] * (width - len(prompt)) + list(prompt) for prompt in prompts], device=ids.device)
    there = torch.tensor([[0] * (width - len(prompt)) + [1] * (len(prompt) + count) for prompt in prompts], device=ids.device)
    logits = model(input_ids=torch.cat([heads, ids], 1), attention_mask=there, logits_to_keep=count + 1, use_cache=False).logits
    return torch.log_softmax(logits[:, -count - 1 : -1].float() / temperature, -1)


@torch.no_grad()
def sampled_logprobs(run: "RunContext", batch: "RolloutBatch", size: int) -> Iterator[Tensor]:
    """(size, T, V) each: the policy's log-probabilities of a sampled batch at the sampling temperature, ``size`` rows at a time."""
    for start in range(0, len(batch.ids), size):
        rows = slice(start, start + size)
        yield next_token_logprobs(run.model, batch.prompt_ids[rows], batch.ids[rows], run.tokenizer.pad_token_id, run.training.temperature)
