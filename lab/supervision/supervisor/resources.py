"""What a trainer uses: its process tree by psutil, its GPUs by NVML where there are any."""

from __future__ import annotations

import logging
import os
import time
from functools import cache

import psutil
import pynvml

log = logging.getLogger(__name__)

SAMPLE_SECONDS = 5.0


@cache
def gpu_handles() -> list[object]:
    """The GPUs this worker may use, by NVML; empty without a driver."""
    try:
        pynvml.nvmlInit()
        names = os.environ.get("CUDA_VISIBLE_DEVICES")
        if names is None:
            return [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        return [handle_of(name.strip()) for name in names.split(",") if name.strip() not in ("", "-1", "NoDevFiles")]
    except pynvml.NVMLError as error:
        log.debug("no GPU: %s", error)
        return []


def handle_of(name: str) -> object:
    """``name`` as in CUDA_VISIBLE_DEVICES: an index or a UUID."""
    return pynvml.nvmlDeviceGetHandleByIndex(int(name)) if name.isdigit() else pynvml.nvmlDeviceGetHandleByUUID(name)


class ResourceSampler:
    """Measures a process and its children every few seconds and keeps, until they are taken, the mean load and the peak memory."""

    def __init__(self, pid: int | None) -> None:
        self.pid = pid
        self.due = time.monotonic()
        self.known: dict[int, psutil.Process] = {}
        self.samples: list[dict[str, float]] = []
        self.peak_memory = 0.0  # bytes, over the whole life of the trainer

    def look(self) -> None:
        now = time.monotonic()
        if self.pid is None or now < self.due:
            return
        self.due = now + SAMPLE_SECONDS
        if sample := self._tree() | self._gpus():
            self.samples.append(sample)

    def _tree(self) -> dict[str, float]:
        try:
            root = self.known.setdefault(self.pid or 0, psutil.Process(self.pid))
            living = [root, *root.children(recursive=True)]
        except psutil.Error:
            return {}
        self.known = {process.pid: self.known.get(process.pid, process) for process in living}
        percent = memory = 0.0
        for process in self.known.values():  # the objects persist: a percentage is of the time since the last question
            try:
                percent += process.cpu_percent()
                memory += process.memory_info().rss
            except psutil.Error:
                continue  # ended meanwhile
        self.peak_memory = max(self.peak_memory, memory)
        return {"system/cpu_percent": percent, "system/memory_bytes": memory}

    def _gpus(self) -> dict[str, float]:
        try:
            handles = gpu_handles()
            if not handles:
                return {}
            busy = [pynvml.nvmlDeviceGetUtilizationRates(handle).gpu for handle in handles]
            used = sum(pynvml.nvmlDeviceGetMemoryInfo(handle).used for handle in handles)
            return {"system/gpu_percent": sum(busy) / len(busy), "system/gpu_memory_bytes": float(used)}
        except pynvml.NVMLError as error:
            log.warning("the GPU cannot be measured: %s", error)
            return {}

    def summary(self) -> dict[str, float]:
        """Since the last ``taken``: means of percentages, peaks of bytes."""
        merged: dict[str, float] = {}
        for name in {name for sample in self.samples for name in sample}:
            values = [sample[name] for sample in self.samples if name in sample]
            merged[name] = max(values) if name.endswith("_bytes") else sum(values) / len(values)
        return merged

    def taken(self) -> None:
        self.samples.clear()
