"""Steering vectors: the mean difference between hidden states of chosen and rejected answers, added to one layer while a policy writes.

    h_l(x, y)  output of decoder layer l (the residual stream after it) at the last token of answer y to prompt x, or its mean over all of them
    v_l        mean over pairs of h_l(x, chosen) - h_l(x, rejected)
    h_l <- h_l + alpha v_l        at the prompt's last position, which the first token is written from, and at every position after it

(PaLRS, arXiv 2509.23982; which positions are read and changed is our reading.) Layers count from 0. States are read by hooks: the last of a model's
``hidden_states`` is behind the final norm, and is not what a hook on the last layer changes.

Shapes: N answers, B rows of a batch, S positions, L layers that are asked for, D hidden size.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from trainers.contract.steering_file import Positions
from trainers.policies.padded_batches import iterate_padded_batches

Answer = tuple[Sequence[int], int]  # ids of a prompt with its answer, and the place where the answer begins


class SteeringMismatch(ValueError):
    """The model has no such layer, or its layers another size."""


def list_decoder_layers(model: Any) -> nn.ModuleList:
    """The decoder layers of a causal language model, by whatever name. Raises SteeringMismatch where there is no such list."""
    count = model.config.get_text_config().num_hidden_layers
    for part in model.get_decoder().children():
        if isinstance(part, nn.ModuleList) and len(part) == count:
            return part
    raise SteeringMismatch(f"{type(model).__name__} has no list of {count} decoder layers")


def take_hidden(output: Any) -> Tensor:
    """(B, S, D) of a decoder layer's output, which is a tuple in some architectures."""
    hidden: Tensor = output[0] if isinstance(output, tuple) else output
    return hidden


@contextmanager
def record_layers(model: Any, layers: Sequence[int]) -> Iterator[dict[int, Tensor]]:
    """Inside, the outputs (B, S, D) that ``layers`` had in the newest forward pass, by layer."""
    known, seen = list_decoder_layers(model), dict[int, Tensor]()

    def note_output(layer: int) -> Any:
        return lambda module, inputs, output: seen.__setitem__(layer, take_hidden(output).detach())

    hooks = [known[layer].register_forward_hook(note_output(layer)) for layer in layers]
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()


def average_answer_states(hidden: Tensor, starts: Sequence[int], ends: Sequence[int], positions: Positions) -> Tensor:
    """(B, S, D) and of each row where its answer begins and ends -> (B, D) float32: the mean over the answer's tokens, or the last one's state."""
    place = torch.arange(hidden.shape[1], device=hidden.device)
    begin, end = (torch.tensor(list(values), device=hidden.device)[:, None] for values in (starts, ends))
    mask = ((place == end - 1) if positions == "last" else (place >= begin) & (place < end)).float()  # (B, S)
    total: Tensor = (torch.where(mask[..., None] > 0, hidden.float(), 0.0)).sum(1)
    return total / mask.sum(1, keepdim=True)


@torch.no_grad()
def sum_answer_states(model: Any, answers: Sequence[Answer], layers: Sequence[int], pad: int, size: int, positions: Positions) -> Tensor:
    """(L, D) float64: sum over the answers of their states, ``size`` of them in a forward pass. Answers have a token at least; the model is in
    evaluation mode.
    """
    total = torch.zeros(len(layers), model.config.get_text_config().hidden_size, dtype=torch.float64)
    ids = [list(row) for row, _ in answers]
    with record_layers(model, layers) as seen:
        for start, padded, mask in iterate_padded_batches(ids, size, pad, model.device):
            model(input_ids=padded, attention_mask=mask, use_cache=False)
            some = answers[start : start + size]
            for place, layer in enumerate(layers):
                states = average_answer_states(seen[layer], [begin for _, begin in some], [len(row) for row, _ in some], positions)
                total[place] += states.double().sum(0).cpu()
    return total


def compute_steering_vectors(
    model: Any, chosen: Sequence[Answer], rejected: Sequence[Answer], layers: Sequence[int], *, pad: int, size: int, positions: Positions = "last"
) -> Tensor:
    """(L, D) float32 on the CPU: v_l of each of ``layers``, in the model's own units. Every pair counts once, however long its answers are.

    Raises ValueError for no pairs, an answer without tokens, or sides of different number.
    """
    if not chosen or len(chosen) != len(rejected):
        raise ValueError(f"{len(chosen)} chosen and {len(rejected)} rejected answers are no pairs")
    if any(not 0 < begin < len(row) for row, begin in (*chosen, *rejected)):
        raise ValueError("an answer has no tokens, or no prompt before it")
    sums = [sum_answer_states(model, side, layers, pad, size, positions) for side in (chosen, rejected)]
    return ((sums[0] - sums[1]) / len(chosen)).float()


def add_vector(hidden: Tensor, push: Tensor, seen: int, starts: Tensor | None) -> Tensor:
    """(B, S, D) and (D,) -> (B, S, D): ``push`` added from where steering begins; positions before it are returned bit for bit.

    ``seen``: positions that the cache held before this pass. ``starts``: (B,) or (1,) places of the first steered position of each row; None: the
    last position of a pass without a cache before it, and all positions of the passes after it.
    """
    place = seen + torch.arange(hidden.shape[1], device=hidden.device)  # (S,)
    if starts is None:
        where = (place >= (hidden.shape[1] - 1 if not seen else 0))[None]
    else:
        where = place >= starts.to(hidden.device)[:, None]  # (B, S)
    return torch.where(where[..., None], hidden + push, hidden)


@contextmanager
def steer_layer(model: Any, layer: int, vector: Tensor, alpha: float, starts: Tensor | None = None) -> Iterator[None]:
    """Inside, ``alpha`` times ``vector`` (D,) is added to the output of ``layer`` in every forward pass. With alpha 0 nothing is hooked.

    ``starts`` (see ``add_vector``) says where each row is steered from: one less than where the answer begins, for texts that are scored. It may be
    left out around ``generate`` with its cache, whose prompts are padded on the left. Raises SteeringMismatch.
    """
    if not alpha:
        yield
        return
    layers, size = list_decoder_layers(model), model.config.get_text_config().hidden_size
    if not 0 <= layer < len(layers):
        raise SteeringMismatch(f"there is no layer {layer}: the policy has {len(layers)}")
    if vector.shape != (size,):
        raise SteeringMismatch(f"the vector has shape {tuple(vector.shape)} and the policy's layers put out {size} values")
    seen = [0]

    def note_cache(module: Any, inputs: Any, kwargs: dict[str, Any]) -> None:
        cache = kwargs.get("past_key_values")
        seen[0] = int(cache.get_seq_length()) if cache is not None else 0

    def add(module: Any, inputs: Any, output: Any) -> Any:
        hidden = take_hidden(output)
        steered = add_vector(hidden, (alpha * vector).to(hidden), seen[0], starts)
        return (steered, *output[1:]) if isinstance(output, tuple) else steered

    hooks = [model.register_forward_pre_hook(note_cache, with_kwargs=True), layers[layer].register_forward_hook(add)]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
