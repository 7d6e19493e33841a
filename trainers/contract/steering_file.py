"""What a steering vector says of itself: a small JSON file beside the vector's own, both in the folder of the policy that they steer.

The lab reads it without torch. It is small by construction, so readers take no more than ``MOST_BYTES`` of it.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from trainers.contract.problems import Problem, SpecError

VECTOR_FILE, FACTS_FILE = "steering_vector.safetensors", "steering_vector.json"
MOST_BYTES = 64 << 10  # of the facts
MOST_ALPHA = 1000.0  # in either direction
METHOD = "palrs"  # whose runs leave one

Positions = Literal["mean", "last"]
SHA256 = Annotated[str, Meta(pattern=r"^([0-9a-f]{64})?$")]
Count = Annotated[int, Meta(ge=1, le=1_000_000_000)]


class SteeringFacts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a vector came from and what it fits.

    ``layer`` counts from 0, of ``layers`` decoder layers with outputs of ``hidden_size``. ``alpha``: the strength that its run chose. ``pairs``: how
    many the vector is the mean of. ``weights``: digest of the policy's weights (``trainers.attempt.inputs.digest_weights``), or else ``revision``,
    the commit of a hub model; ``dataset``: SHA-256 of the file of pairs. An empty text: not known.
    """

    layer: Annotated[int, Meta(ge=0, le=100_000)]
    layers: Count
    hidden_size: Count
    alpha: Annotated[float, Meta(ge=-MOST_ALPHA, le=MOST_ALPHA)]
    pairs: Count
    positions: Positions
    weights: SHA256 = ""
    revision: Annotated[str, Meta(max_length=200)] = ""
    dataset: SHA256 = ""
    version: Literal[1] = 1

    def describe_misfit(self, layers: int, hidden_size: int) -> str:
        """Why the vector cannot be added in a policy of this shape; empty where it can."""
        if (layers, hidden_size) == (self.layers, self.hidden_size):
            return ""
        return f"was made for {self.layers} layers of {self.hidden_size} values, and this policy has {layers} of {hidden_size}"


def parse_steering_facts(text: bytes) -> SteeringFacts:
    """Raises SpecError."""
    try:
        if len(text) > MOST_BYTES:
            raise msgspec.ValidationError(f"is larger than {MOST_BYTES} bytes")
        facts = msgspec.json.decode(text, type=SteeringFacts)
        if facts.layer >= facts.layers:
            raise msgspec.ValidationError(f"names layer {facts.layer} of {facts.layers}")
        return facts
    except msgspec.DecodeError as error:
        raise make_steering_error(f"{FACTS_FILE} cannot be read: {error}", "make the vector again") from None


def make_steering_error(message: str, fix: str) -> SpecError:
    return SpecError([Problem("steering", "", message, fix, given=False)])
