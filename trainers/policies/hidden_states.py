"""What a policy's last layer holds at places of given tokens, by forward passes without gradients."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainers.policies.padded_batches import iterate_padded_batches
from trainers.rollouts.engine import in_evaluation_mode

if TYPE_CHECKING:
    from trainers.methods.context import RunContext


@torch.no_grad()
def read_hidden_states(run: "RunContext", rows: Sequence[Sequence[int]], places: Sequence[Sequence[int]], model: Any = None) -> Tensor:
    """(n, D) float: of each row of ids the states at its ``places``, one row after the other; by the policy or by ``model``."""
    model = model if model is not None else run.model
    size, found = run.attempt.sampling_batch, list[Tensor]()
    for start, ids, mask in iterate_padded_batches(rows, size, run.tokenizer.pad_token_id, run.device):
        with in_evaluation_mode(model):
            made = model(input_ids=ids, attention_mask=mask, output_hidden_states=True, use_cache=False, logits_to_keep=1)
        found += [made.hidden_states[-1][row, list(asked)].float() for row, asked in enumerate(places[start : start + size])]
    return torch.cat(found) if found else torch.zeros(0, model.config.get_text_config().hidden_size, device=run.device)
