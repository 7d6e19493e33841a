"""Where a policy looks: attention weights at given tokens, by forward passes without gradients."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainers.policies.padded_batches import iterate_padded_batches
from trainers.rollouts.engine import in_evaluation_mode

if TYPE_CHECKING:
    from trainers.methods.context import RunContext


@torch.no_grad()
def read_attention(run: "RunContext", rows: Sequence[Sequence[int]], layers: int, model: Any = None) -> list[Tensor]:
    """Of each row of T ids (T, T) float on the CPU: what each token looks at, by the policy or by ``model``.

    The mean over all heads of the last ``layers`` layers.
    """
    model = model if model is not None else run.model
    size, found = run.attempt.sampling_batch, list[Tensor]()
    for start, ids, mask in iterate_padded_batches(rows, size, run.tokenizer.pad_token_id, run.device):
        with in_evaluation_mode(model), in_eager_attention(model):
            made = model(input_ids=ids, attention_mask=mask, output_attentions=True, use_cache=False, logits_to_keep=1)
        mean = torch.stack([weights.float().mean(1) for weights in made.attentions[-layers:]]).mean(0).cpu()  # (B, T, T)
        found += [mean[place, : len(row), : len(row)] for place, row in enumerate(rows[start : start + size])]
    return found


@contextmanager
def in_eager_attention(model: Any) -> Iterator[None]:
    """Fused kernels give no attention weights; the implementation is put back afterwards."""
    before = model.config.get_text_config()._attn_implementation
    if before == "eager":
        yield
        return
    model.set_attn_implementation("eager")
    try:
        yield
    finally:
        model.set_attn_implementation(before)
