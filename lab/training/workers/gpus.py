"""The GPUs of this machine as NVML reports them; a machine without them, or without the driver, has none."""

from __future__ import annotations

import logging
import os
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


def list_gpus() -> list[Gpu]:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        return [
            Gpu(index, decode_nvml_text(pynvml.nvmlDeviceGetName(handle)), int(pynvml.nvmlDeviceGetMemoryInfo(handle).total))
            for index, handle in enumerate(handles)
        ]
    except pynvml.NVMLError:
        return []
    finally:
        pynvml.nvmlShutdown()


def decode_nvml_text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


@cache
def list_visible_gpu_handles() -> list[object]:
    """The GPUs this process may use, by NVML; empty without a driver."""
    try:
        pynvml.nvmlInit()
        names = os.environ.get("CUDA_VISIBLE_DEVICES")
        if names is None:
            return [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        return [find_gpu_handle(name.strip()) for name in names.split(",") if name.strip() not in ("", "-1", "NoDevFiles")]
    except pynvml.NVMLError as error:
        log.debug("no GPU: %s", error)
        return []


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
