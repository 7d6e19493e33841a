"""Whether what a run takes, as the trainers estimate it, fits the workers that serve its queue."""

from __future__ import annotations

from typing import Any

from lab.lib.numbers import format_byte_size
from lab.training.workers.models import Worker

FIELD = "training.per_device_train_batch_size"
FIX = "make the batch or the completions smaller, turn on gradient checkpointing, or train LoRA adapters"


def compare_memory(report: dict[str, Any], queue: str, device: str) -> None:
    """Adds to a preflight's report how much the largest worker of the queue has, and a warning where that is too little."""
    model = report.get("model")
    if not model or not model["memory"]:
        return
    model["available"] = available = find_largest_memory(queue, device)
    total = model["memory"][-1]
    if not available or total["high"] <= available:
        return
    most, needed = format_byte_size(available), f"{format_byte_size(total['low'])} to {format_byte_size(total['high'])}"
    where = f"and the largest worker of the queue {queue} has {most}"
    verb = "does not fit" if total["low"] > available else "may not fit"
    message = f"the run {verb}: it is estimated to take {needed} of memory, {where}"
    report["warnings"].append({"field": FIELD, "value": None, "message": message, "fix": FIX, "given": False})


def find_largest_memory(queue: str, device: str) -> int:
    """Bytes; of a GPU, or of the machine where a run would train on its processor. 0 where no worker says."""
    workers = Worker.objects.serving(queue).training()
    return max((0 if device == "cuda" and not worker.gpu else choose_memory(worker, device) for worker in workers), default=0)


def choose_memory(worker: Worker, device: str) -> int:
    return worker.gpu_memory if worker.gpu and device != "cpu" else worker.memory
