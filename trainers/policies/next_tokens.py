"""What follows a text for each of some tokens: the state that each leaves behind, and the chances of what comes after it. For decoding by hand."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from trainers.rollouts.engine import in_evaluation_mode


@torch.no_grad()
def read_next_tokens(model: Any, prefix: Sequence[int], tokens: Sequence[int], temperature: float = 1.0) -> tuple[Tensor, Tensor]:
    """(n, D) float: the last layer where each of ``tokens`` stands after ``prefix``; (n, V): the chances of what follows it there."""
    device = next(model.parameters()).device
    rows = torch.tensor([[*prefix, token] for token in tokens], device=device)
    with in_evaluation_mode(model):
        made = model(input_ids=rows, output_hidden_states=True, use_cache=False, logits_to_keep=1)
    return made.hidden_states[-1][:, -1].float(), torch.softmax(made.logits[:, -1].float() / temperature, -1)
