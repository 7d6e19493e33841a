"""A steering vector on the disk: one tensor in safetensors, and what it says of itself in JSON (``trainers/contract/steering_file.py``)."""

import os
from pathlib import Path
from typing import Any

import msgspec
import torch
from safetensors import SafetensorError
from safetensors import torch as safetensors
from torch import Tensor

from trainers.attempt.inputs import digest_weights, find_hub_revision
from trainers.contract.steering_file import FACTS_FILE, MOST_BYTES, VECTOR_FILE, SteeringFacts, make_steering_error, parse_steering_facts
from trainers.policies.steering_vector import list_decoder_layers

NAME = "vector"  # of the tensor
HEADER = 1 << 16  # bytes of a file besides its tensor's, at most
AGAIN = "make the vector again"


def save_steering_vector(folder: Path, vector: Tensor, facts: SteeringFacts) -> None:
    """Writes both files, each whole or not at all. A file that is there is replaced and never written into: it may be a link to another run's."""
    folder.mkdir(parents=True, exist_ok=True)
    tensor = vector.detach().float().cpu().contiguous()
    for name, data in ((VECTOR_FILE, safetensors.save({NAME: tensor})), (FACTS_FILE, msgspec.json.format(msgspec.json.encode(facts)) + b"\n")):
        part = folder / f".{name}.partial"
        part.write_bytes(data)
        os.replace(part, folder / name)


def load_steering_vector(folder: Path) -> tuple[Tensor, SteeringFacts]:
    """(D,) float32, and its facts. Raises SpecError for what is not there, too large, no vector of that size, or not finite."""
    try:
        with (folder / FACTS_FILE).open("rb") as file:
            facts = parse_steering_facts(file.read(MOST_BYTES + 1))
        with (folder / VECTOR_FILE).open("rb") as file:
            data = file.read(4 * facts.hidden_size + HEADER + 1)
        if len(data) > 4 * facts.hidden_size + HEADER:
            raise make_steering_error(f"{VECTOR_FILE} is larger than a vector of {facts.hidden_size} values", AGAIN)
        vector = safetensors.load(data).get(NAME)
    except OSError as error:
        raise make_steering_error(f"the vector's files cannot be read: {error.strerror or error}", AGAIN) from None
    except SafetensorError as error:
        raise make_steering_error(f"{VECTOR_FILE} is not readable: {error}", AGAIN) from None
    if vector is None or vector.dtype != torch.float32 or vector.shape != (facts.hidden_size,):
        raise make_steering_error(f"{VECTOR_FILE} holds no vector of {facts.hidden_size} numbers", AGAIN)
    if not bool(vector.isfinite().all()):
        raise make_steering_error(f"{VECTOR_FILE} holds values that are not finite", AGAIN)
    return vector, facts


def check_vector_fits(facts: SteeringFacts, model: Any, folder: Path) -> None:
    """Raises SpecError where the vector was made from another policy than ``model``, loaded from ``folder``: by its shape, or by its weights."""
    other = "choose the policy that the vector was made from"
    if misfit := facts.describe_misfit(len(list_decoder_layers(model)), model.config.get_text_config().hidden_size):
        raise make_steering_error(f"the vector {misfit}", other)
    known, found = (facts.weights, digest_weights(folder)) if facts.weights else (facts.revision, find_hub_revision(folder))
    if known and found and known != found:
        raise make_steering_error("the vector was made from a policy with other weights", other)
