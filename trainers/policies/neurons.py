"""Neurons of a model's feed-forward layers at the last token of a text: read, and set to given values for a while.

A neuron is one input of the last linear map of a layer's feed-forward block (``down_proj`` of Llama and its kin). Neurons of all layers are counted
through, the first layer's first.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

NAMES = ("down_proj", "fc2", "dense_4h_to_h", "mlp.c_proj")  # of the last map of a feed-forward block, by family of models


class NoNeurons(LookupError):
    """The model has no feed-forward block that is known here."""


def list_neuron_maps(model: Any) -> list[Any]:
    """The last maps of the feed-forward blocks, layer by layer. Raises NoNeurons."""
    found = [module for name, module in model.named_modules() if name.endswith(NAMES)]
    if not found:
        raise NoNeurons(f"{type(model).__name__} has no layer called {', '.join(NAMES)}")
    return found


def find_last_tokens(mask: Tensor) -> Tensor:
    """(B, T) attention mask -> (B,) the place of each row's last token."""
    places = torch.arange(mask.shape[1], device=mask.device)
    return (places * mask.bool()).argmax(1)


@torch.no_grad()
def read_activations(model: Any, ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """(B, T), (B, T) -> (B, N) activations of all neurons at the last token, and (B,) the scores of a reward model."""
    last, read = find_last_tokens(mask), list[Tensor]()
    rows = torch.arange(len(ids), device=ids.device)
    with hook_inputs(model, lambda number, given: read.append(given[rows, last].float())):
        scores: Tensor = model(input_ids=ids, attention_mask=mask, use_cache=False).logits
    return torch.cat(read, 1), scores[:, 0].float()


@contextmanager
def set_neurons(model: Any, places: Tensor, values: Tensor, mask: Tensor) -> Iterator[None]:
    """Inside, these neurons (k,) have these values (k,) at the last token of each row of the (B, T) mask."""
    sizes = [module.weight.shape[0] if type(module).__name__ == "Conv1D" else module.in_features for module in list_neuron_maps(model)]
    starts = torch.tensor([0, *sizes]).cumsum(0).tolist()
    last, rows = find_last_tokens(mask)[:, None], torch.arange(len(mask), device=mask.device)[:, None]

    def change(number: int, given: Tensor) -> Tensor | None:
        own = (places >= starts[number]) & (places < starts[number + 1])
        if not own.any():
            return None
        changed = given.clone()
        changed[rows, last, (places[own] - starts[number])[None]] = values[own].to(given.dtype)
        return changed

    with hook_inputs(model, change):
        yield


@contextmanager
def hook_inputs(model: Any, see: Callable[[int, Tensor], Tensor | None]) -> Iterator[None]:
    """Inside, ``see`` gets the number of each neuron map and its input (B, T, n), and may give another one."""

    def make_hook(number: int) -> Callable[..., Any]:
        def hook(module: Any, arguments: tuple[Tensor, ...]) -> Any:
            changed = see(number, arguments[0])
            return None if changed is None else (changed, *arguments[1:])

        return hook

    handles = [module.register_forward_pre_hook(make_hook(number)) for number, module in enumerate(list_neuron_maps(model))]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
