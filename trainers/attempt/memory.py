"""The memory of an attempt: what the estimate says now that device, precision and prompts are known, and the most that it took.

On a GPU the peak is what torch had allocated at most (``torch.cuda.max_memory_allocated``), which is what the estimate is about. On a CPU nothing
counts tensors alone: it is the peak of the whole process (``ru_maxrss``), Python and its libraries (about 0.6 GB) included.
"""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import torch

from trainers.attempt.context import Attempt
from trainers.checks.model_lookup import read_folder_facts
from trainers.checks.model_memory import estimate_training_memory
from trainers.contract.events import Memory
from trainers.contract.hyperparameters import Rollouts
from trainers.contract.memory import MemoryPart
from trainers.policies.sampling import prompt_ids

PROBED = 64  # prompts whose lengths are looked at


@contextmanager
def report_memory(attempt: Attempt, rows: Sequence[Any]) -> Iterator[None]:
    """Says what training is estimated to take, and afterwards, however it ends, what it took. ``rows``: what the run trains on."""
    estimate = estimate_attempt_memory(attempt, rows)
    device = attempt.policy.device

    def report() -> None:
        peak, measured = measure_peak_memory(device)
        attempt.reporter.event(Memory, parts=estimate, peak=peak, measured=measured, device_memory=find_device_memory(device))

    attempt.report_memory = report
    report()
    try:
        yield
    finally:
        report()


def estimate_attempt_memory(attempt: Attempt, rows: Sequence[Any]) -> list[MemoryPart]:
    """Empty where sizes are not known."""
    policy, spec = attempt.policy, attempt.spec
    facts = read_folder_facts(policy.folder, "folder")
    if facts is None:
        return []
    prompts = prompt_ids(policy.tokenizer, rows[:PROBED]) if isinstance(spec.training, Rollouts) else []
    known = spec.model_copy(update={"precision": "bf16" if policy.bf16 else "fp32", "device": policy.device.type})
    return estimate_training_memory(facts, known, max(map(len, prompts), default=0), find_device_memory(policy.device))


def measure_peak_memory(device: torch.device) -> tuple[int, Literal["cuda", "process"]]:
    """Bytes since the process began, and of what."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device), "cuda"
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit, "process"


def find_device_memory(device: torch.device) -> int:
    """Bytes of a GPU; 0 for a CPU."""
    return torch.cuda.get_device_properties(device).total_memory if device.type == "cuda" else 0
