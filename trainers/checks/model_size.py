"""How many parameters a model has, without loading it: from the headers of its weights, else by building it on torch's meta device."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainers.contract.policy_folder import LARGEST_HEADER

DEEPEST = 1000  # layers; more are no model but a configuration that would keep the machine busy
WHOLE, INDEX = "model.safetensors", "model.safetensors.index.json"


def count_parameters_of_folder(folder: Path) -> int | None:
    """The sum over all tensors, None unless every file is there. Tied weights are stored, and counted, once."""
    try:
        if (folder / INDEX).is_file():
            names = sorted({str(name) for name in json.loads((folder / INDEX).read_bytes())["weight_map"].values()})
        else:
            names = [WHOLE] if (folder / WHOLE).is_file() else sorted(path.name for path in folder.glob("*.safetensors"))
        return sum(count_parameters_of_file(folder / name) for name in names) or None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def count_parameters_of_file(path: Path) -> int:
    """Of a safetensors file, by its header: eight bytes of length, then JSON with each tensor's shape."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > LARGEST_HEADER:
            raise ValueError("not a safetensors file")
        header = json.loads(file.read(length))
    return sum(math.prod(tensor["shape"]) for name, tensor in header.items() if name != "__metadata__")


def count_parameters_of_config(config: Mapping[str, Any]) -> int | None:
    """Of the model that a configuration describes, built without memory for its weights; None where transformers has no such architecture."""
    layers = config.get("num_hidden_layers", config.get("n_layer"))
    if not isinstance(layers, int) or layers > DEEPEST:
        return None
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    known = {key: value for key, value in config.items() if key not in ("auto_map", "model_type")}
    try:
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(AutoConfig.for_model(str(config.get("model_type")), **known), trust_remote_code=False)
    except Exception:  # what a configuration of anybody's makes of a class is not foreseeable
        return None
    return sum(parameter.numel() for parameter in model.parameters())
