"""The GPUs of this machine as NVML reports them; a machine without them, or without the driver, has none."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Gpu:
    index: int  # as the driver counts them (by PCI bus), which is what CUDA_DEVICE_ORDER=PCI_BUS_ID makes CUDA do too
    name: str
    memory: int  # bytes

    def __str__(self) -> str:
        return f"{self.name}, {self.memory / 2**30:.0f} GiB"


def list_gpus() -> list[Gpu]:
    import pynvml

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
