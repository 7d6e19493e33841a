"""Settings that need a GPU or a package which is not installed everywhere: refused in words where the machine that trains has not got it."""

from __future__ import annotations

import os
from collections.abc import Iterator

from trainers.checks.model_memory import computes_in_half
from trainers.contract.machine import PACKAGES, Machine
from trainers.contract.problems import Problem
from trainers.contract.spec import NO_SHARDING, RunSpec

# accelerate leaves FSDP out on CPUs without a word. Tests of sharding set this, and it takes the CPUs for accelerators that it knows nothing about.
SHARD_ON_CPU = "TEST_SHARD_ON_CPU"


def find_machine_problems(spec: RunSpec, machine: Machine) -> Iterator[Problem]:
    if spec.lora is not None and spec.lora.quantize:
        yield from find_missing("lora.quantize", True, "4-bit weights need", "bitsandbytes", "turn 4-bit weights off", spec, machine)
        if not computes_in_half(spec):
            yield Problem(
                "lora.quantize", True, "4-bit weights are computed with in bf16", "set precision to auto or bf16, or turn 4-bit weights off"
            )
    if spec.attn_implementation == "flash_attention_2":
        field, value = "attn_implementation", spec.attn_implementation
        yield from find_missing(field, value, "FlashAttention 2 needs", "flash_attn", "use sdpa", spec, machine)
        if not computes_in_half(spec):
            yield Problem(field, value, "FlashAttention 2 computes in bf16 only", "set precision to auto or bf16, or use sdpa")
    if spec.resources.sharding != NO_SHARDING and not machine.gpu and not os.environ.get(SHARD_ON_CPU):
        sharding = spec.resources.sharding
        yield Problem(
            "resources.sharding", sharding, f"weights are sharded over GPUs and {machine.name} has none", "use a GPU worker, or sharding none"
        )
    if spec.use_liger_kernel:
        yield from find_missing("use_liger_kernel", True, "Liger's kernels need", "liger_kernel", "turn Liger kernels off", spec, machine)


def find_missing(field: str, value: object, what: str, module: str, otherwise: str, spec: RunSpec, machine: Machine) -> Iterator[Problem]:
    """``what`` says what needs the package ``module`` and a GPU; ``otherwise`` is what to do without."""
    if spec.device == "cpu":
        yield Problem(field, value, f"{what} a CUDA GPU and the device is cpu", f"set device to auto or cuda, or {otherwise}")
        return
    if module not in machine.packages:
        name = PACKAGES[module]
        yield Problem(field, value, f"{name} is not installed on {machine.name}", f"pip install {name} there, or {otherwise}")
    if not machine.gpu:
        yield Problem(field, value, f"{what} a CUDA GPU and {machine.name} has none", f"use a GPU worker, or {otherwise}")
