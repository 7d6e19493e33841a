"""The outputs of forward passes that TRL's losses run and throw away."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def record_outputs(*models: Any) -> Iterator[list[Any]]:
    """The outputs of every forward pass of ``models`` inside the block, in order. A model given as None is left out."""
    outputs: list[Any] = []
    handles = [model.register_forward_hook(lambda module, args, output: outputs.append(output)) for model in models if model is not None]
    try:
        yield outputs
    finally:
        for handle in handles:
            handle.remove()
