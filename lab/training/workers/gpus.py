"""The GPUs of this machine as NVML reports them; a machine without them, or without the driver, has none."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import pynvml

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Gpu:
    index: int  # as the driver counts them (by PCI bus), which is what CUDA_DEVICE_ORDER=PCI_BUS_ID makes CUDA do too
    name: str
    memory: int  # bytes

    def __str__(self) -> str:
        return f"{self.name}, {self.memory / 2**30:.0f} GiB"


@dataclass(frozen=True)
class GpuUse:
    percent: float  # of the time a kernel ran, mean over the GPUs
    memory: int  # bytes, of all GPUs together


def list_gpus(visible: bool = False) -> list[Gpu]:
    """``visible``: only those that CUDA_VISIBLE_DEVICES names, where it is set: a scheduler sets it to what the job was given."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    try:
        every = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        return [describe_gpu(handle) for handle in (find_visible_handles() if visible else every)]
    except pynvml.NVMLError:
        return []
    finally:
        pynvml.nvmlShutdown()


def describe_gpu(handle: object) -> Gpu:
    """Raises NVMLError."""
    name, memory = decode_nvml_text(pynvml.nvmlDeviceGetName(handle)), int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)
    return Gpu(pynvml.nvmlDeviceGetIndex(handle), name, memory)


def describe_gpus(gpus: Sequence[Gpu]) -> str:
    """Such as ``4 × NVIDIA H100, 80 GiB``; empty without any."""
    counts = Counter(str(gpu) for gpu in gpus)
    return " + ".join(words if count == 1 else f"{count} × {words}" for words, count in counts.items())


def decode_nvml_text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


@cache
def list_visible_gpu_handles() -> list[object]:
    """The GPUs this process may use, by NVML; empty without a driver."""
    try:
        pynvml.nvmlInit()
        return find_visible_handles()
    except pynvml.NVMLError as error:
        log.debug("no GPU: %s", error)
        return []


def find_visible_handles() -> list[object]:
    """Raises NVMLError."""
    names = os.environ.get("CUDA_VISIBLE_DEVICES")
    if names is None:
        return [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
    return [find_gpu_handle(name.strip()) for name in names.split(",") if name.strip() not in ("", "-1", "NoDevFiles")]


def find_gpu_handle(name: str) -> object:
    """``name`` as in CUDA_VISIBLE_DEVICES: an index or a UUID."""
    return pynvml.nvmlDeviceGetHandleByIndex(int(name)) if name.isdigit() else pynvml.nvmlDeviceGetHandleByUUID(name)


def measure_visible_gpus() -> GpuUse | None:
    """What the GPUs of this process do now; None without GPUs, or where the driver does not answer."""
    handles = list_visible_gpu_handles()
    if not handles:
        return None
    try:
        busy = [pynvml.nvmlDeviceGetUtilizationRates(handle).gpu for handle in handles]
        return GpuUse(sum(busy) / len(busy), sum(int(pynvml.nvmlDeviceGetMemoryInfo(handle).used) for handle in handles))
    except pynvml.NVMLError as error:
        log.warning("the GPU cannot be measured: %s", error)
        return None
