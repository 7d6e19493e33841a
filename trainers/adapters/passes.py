"""What is known of a sampled batch only after the loss has seen it: a slice's numbers from its first pass, and from its last.

Log-probabilities, entropies and token weights are those of the first pass, the importance ratio and what was clipped those of the last. A batch that
is passed over once has both at the same time; else its rollouts wait here for their last pass, on the CPU. A run never stops, saves or resumes
between two passes, except that its last step may end there: ``flush`` hands out what waits as it is.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy.typing as npt
import torch
from torch import Tensor

from trainers.attempt.telemetry import Scored

if TYPE_CHECKING:
    from trainers.adapters.micro_batch import MicroBatch
    from trainers.adapters.rollouts import GenerationBatch

Arrays = dict[str, npt.NDArray[Any]]  # field of the rollout event -> (B, T)
CLIPPING = frozenset({"grpo", "bnpo", "dr_grpo", "dapo", "luspo", "rloo"})  # TRL's losses whose clip takes a token's gradient away


@dataclass
class Slice:
    scored: Sequence[Scored]
    arrays: Arrays
    stamp: dict[str, Any]
    batch: "GenerationBatch"
    rows: Sequence[int]  # of the batch


class Passes:
    """``write`` hands a slice to the spool."""

    def __init__(self, write: Callable[[Slice], None]) -> None:
        self.write = write
        self.waiting: dict[int, Slice] = {}  # by its place in the sampled batch

    def first(self, place: int, slice_: Slice) -> None:
        self.waiting[place] = slice_

    def last(self, place: int, arrays: Arrays) -> None:
        if (slice_ := self.waiting.pop(place, None)) is not None:
            slice_.arrays |= arrays
            self.write(slice_)

    def flush(self) -> None:
        for place in list(self.waiting):
            self.last(place, {})


def first_planes(micro: "MicroBatch", logprobs: Tensor, entropies: Tensor) -> dict[str, Tensor]:
    """(B, T) each: what the sampling policy and its reference said of the tokens, and the methods' weights."""
    planes = {"logprobs": micro.sampled_logprobs if micro.sampled_logprobs is not None else logprobs, "entropies": entropies}
    if micro.weights is not None:
        planes["weights"] = micro.weights
    if (reference := micro.inputs.get("ref_per_token_logps")) is not None:
        planes["reference_logprobs"] = reference
    if (sampler := micro.inputs.get("sampling_per_token_logps")) is not None:
        planes["sampler_logprobs"] = sampler.masked_fill(micro.inputs["completion_mask"] == 0, float("nan"))
    return planes


def last_planes(micro: "MicroBatch", epsilon: tuple[float, float], loss_type: str, level: str) -> dict[str, Tensor]:
    """(B, T) each: the importance ratio that TRL's loss formed and where its clip took the gradient away. Nothing where the ratio is 1 by
    construction: the policy that samples is the one that is updated. ``level``: token, sequence (the geometric mean of a completion's token ratios)
    or completion (their product)."""
    old = micro.inputs.get("old_per_token_logps")
    if old is None or micro.used_logprobs is None:
        return {}
    mask = micro.mask.float()
    log_ratio = (micro.used_logprobs - old) * mask
    if level == "completion":
        log_ratio = log_ratio.sum(1).unsqueeze(1) * mask
    elif level == "sequence":
        log_ratio = (log_ratio.sum(1) / mask.sum(1).clamp(min=1.0)).unsqueeze(1) * mask
    ratio = log_ratio.exp()
    planes = {"ratios": ratio}
    if loss_type in CLIPPING:
        advantages = micro.inputs["advantages"]
        advantages = advantages if advantages.dim() == 2 else advantages.unsqueeze(1)
        low, high = epsilon
        planes["clipped"] = (((ratio > 1 + high) & (advantages > 0)) | ((ratio < 1 - low) & (advantages < 0))).float() * mask
    return planes


def copy_planes_to_host(planes: dict[str, Tensor]) -> Arrays:
    """One copy from the device for all of them."""
    if not planes:
        return {}
    width = next(iter(planes.values())).shape
    stacked = torch.stack([plane.detach().float().expand(width) for plane in planes.values()]).cpu().numpy()
    return dict(zip(planes, stacked, strict=True))
