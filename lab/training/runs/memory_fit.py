"""Whether what a run takes, as the trainers estimate it, fits the workers that serve its queue, and what to change where it does not."""

from __future__ import annotations

from typing import Any

from lab.lib.numbers import format_byte_size
from lab.training.workers.models import Worker
from trainers.contract.machine import Machine

FIELD = "training.per_device_train_batch_size"
FIX = "make the batch or the completions smaller, or choose a smaller model"


def compare_memory(report: dict[str, Any], queue: str) -> None:
    """Adds a warning to a preflight's report where the largest worker of the queue has too little memory, with what would fit."""
    model = report.get("model")
    if not model or not model["memory"]:
        return
    available, total, remedy = model["available"], model["memory"][-1], model["remedy"]
    if not available or total["high"] <= available:
        return
    most, needed = format_byte_size(available), f"{format_byte_size(total['low'])} to {format_byte_size(total['high'])}"
    where = f"and the largest worker of the queue {queue} has {most}"
    verb = "does not fit" if total["low"] > available else "may not fit"
    message = f"the run {verb}: it is estimated to take {needed} of memory, {where}"
    warning = {"field": FIELD, "value": None, "message": message, "fix": FIX, "given": False}
    if remedy:
        taken = f"{format_byte_size(remedy['low'])} to {format_byte_size(remedy['high'])}"
        warning |= {"fix": f"{remedy['words']}: {taken}", "label": f"Use {remedy['words']}", "changes": remedy["changes"]}
    report["warnings"].append(warning)


def find_machine(queue: str, device: str) -> Machine | None:
    """The worker of the queue with the most memory: of a GPU, or of the machine where a run would train on its processor. None without a worker."""
    workers = [worker for worker in Worker.objects.serving(queue).training() if worker.gpu or device != "cuda"]
    if not workers:
        return None
    largest = max(workers, key=lambda worker: choose_memory(worker, device))
    return Machine(f"worker {largest.name}", bool(largest.gpu), choose_memory(largest, device), tuple(largest.packages or ()))


def choose_memory(worker: Worker, device: str) -> int:
    return worker.gpu_memory if worker.gpu and device != "cpu" else worker.memory
