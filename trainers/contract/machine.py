"""What a machine has that a run may need: memory, a GPU, and packages that are not installed everywhere."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

PACKAGES = {"bitsandbytes": "bitsandbytes", "flash_attn": "flash-attn", "liger_kernel": "liger-kernel", "vllm": "vllm"}  # module → what pip installs
GPU_DEVICES = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg")
HERE = "this machine"


@dataclass(frozen=True)
class Machine:
    """``name``: what to call it in a sentence. ``memory``: bytes of its GPU, or its own where it has none; 0 where nobody knows. ``packages``:
    modules of PACKAGES that it has."""

    name: str
    gpu: bool
    memory: int = 0
    packages: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def describe_this_machine() -> Machine:
    """Without its memory: no package that could ask a GPU is imported."""
    return Machine(HERE, any(Path(device).exists() for device in GPU_DEVICES), packages=list_optional_packages())


def parse_machine(given: dict[str, Any]) -> Machine:
    return Machine(given["name"], given["gpu"], given["memory"], tuple(given["packages"]))


def list_optional_packages() -> tuple[str, ...]:
    return tuple(module for module in PACKAGES if find_spec(module) is not None)
