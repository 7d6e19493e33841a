"""A finished run that has trained just what a cold start is, as the demo's first stage does, is the cold start of later runs: same weights."""

import fcntl
import logging
import shutil
from pathlib import Path

import torch

from trainers.attempt.cold_start import build_cold_start_config, describe_cold_start, find_cold_start_task
from trainers.contract.spec import RunSpec, TinyPolicy
from trainers.policies import tiny
from trainers.tasks import registry

log = logging.getLogger(__name__)


def share_as_cold_start(spec: RunSpec, final: Path) -> bool:
    """Puts the exported policy in ``final`` where later runs look for their cold start. Whether it did."""
    if spec.task.file is not None or not equals_cold_start(spec):
        return False
    task = registry.load_chosen_task(spec.task)
    if find_cold_start_task(task).options != task.options:  # it has trained on something else than a cold start does
        return False
    if is_being_trained(task.cache_key, spec.task.difficulty):
        return False

    def copy_final(start: Path, folder: Path) -> None:
        shutil.copytree(final, folder, dirs_exist_ok=True)

    try:
        tiny.cached_cold_start(task, spec.task.difficulty, copy_final, describe_cold_start(build_cold_start_config()))
    except OSError as error:  # the run itself is well
        log.warning("the policy could not be kept as a cold start: %s", error)
        return False
    return True


def equals_cold_start(spec: RunSpec) -> bool:
    """Whether the run trains what ``cold_start`` would, to the byte: on the CPU, from the same weights, on the same data in the same order."""
    usual = RunSpec(policy=TinyPolicy(cold_start=False), task=spec.task, training=build_cold_start_config(), output=spec.output)
    same = all(getattr(spec, part) == getattr(usual, part) for part in ("methods", "policy", "lora", "dataset", "training", "seed"))
    on_cpu = spec.device == "cpu" or (spec.device == "auto" and not torch.cuda.is_available())
    return same and on_cpu and (spec.base is None or spec.base.name == "sft")


def is_being_trained(cache_key: str, difficulty: str) -> bool:
    """Whether another process trains this cold start now; who finishes a run does not wait for it."""
    for path in tiny.get_cache_root().glob(f".cold-{cache_key}-{difficulty}-*.lock"):
        with path.open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
    return False
