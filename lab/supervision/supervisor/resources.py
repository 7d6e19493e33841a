"""What a trainer uses: its process tree by psutil, its GPUs by NVML where there are any."""

from __future__ import annotations

import time

import psutil

from lab.training.workers.gpus import measure_visible_gpus

SAMPLE_SECONDS = 5.0


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
        use = measure_visible_gpus()
        return {"system/gpu_percent": use.percent, "system/gpu_memory_bytes": float(use.memory)} if use else {}

    def summary(self) -> dict[str, float]:
        """Since the last ``taken``: means of percentages, peaks of bytes."""
        merged: dict[str, float] = {}
        for name in {name for sample in self.samples for name in sample}:
            values = [sample[name] for sample in self.samples if name in sample]
            merged[name] = max(values) if name.endswith("_bytes") else sum(values) / len(values)
        return merged

    def taken(self) -> None:
        self.samples.clear()
