"""What ``bench/ranks.py`` trains in one process and in two: every base and method on every trainer it works on, at a size of seconds.

A method that is bound to a world trains there, as its effect case launches it; everything else on word problems.
"""

import importlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainers.catalog.entries import built_in_entries
from trainers.contract.spec import PARALLEL_TRAINERS, RunSpec, TaskChoice, parse_spec
from trainers.methods import registry

STEPS = 3
SIZES: dict[str, dict[str, Any]] = {
    "grpo": {"per_device_train_batch_size": 16, "num_generations": 4, "prompts": 64, "max_completion_length": 64},
    "rloo": {"per_device_train_batch_size": 16, "num_generations": 4, "prompts": 64, "max_completion_length": 64},
    "sft": {"per_device_train_batch_size": 8, "demonstrations": 64},
    "dpo": {"per_device_train_batch_size": 8, "sampled_prompts": 64},
    "kto": {"per_device_train_batch_size": 8, "sampled_prompts": 64},
    "reward": {"per_device_train_batch_size": 8, "sampled_prompts": 64},
}
SETTINGS: dict[str, dict[str, Any]] = {  # what a method wants of the run
    "kimi-k2.5": {"num_iterations": 2},
    "rover": {"num_iterations": 2},
    "llds": {"num_iterations": 2},
    "stackelberg-srs": {"beta": 0.04},
}
EARLIER = {"orthalign": "earlier"}  # methods that name another policy
EARLIER_POLICY = "earlier-policy"
WORD_PROBLEMS = {"name": "mini_gsm", "difficulty": "easy"}
LENGTHS = ("max_completion_length", "max_length")  # of an effect case's settings those that its world needs


@dataclass(frozen=True)
class Case:
    name: str
    trainer: str
    is_base: bool
    in_world: bool = False

    @property
    def key(self) -> str:
        return f"{self.name} on {self.trainer}"

    @property
    def needs_earlier_policy(self) -> bool:
        return self.name in EARLIER

    @property
    def launch(self) -> dict[str, Any]:
        """How the effect case launches the method; empty where it needs no world."""
        if not self.in_world:
            return {}
        module = importlib.import_module(f"bench.effect_cases.{registry.module_name(self.name)}")
        launch: dict[str, Any] = module.CASE.launch
        return launch

    @property
    def task(self) -> TaskChoice:
        return TaskChoice.model_validate(self.launch.get("task", WORD_PROBLEMS))

    def spec(self, processes: int, folder: Path) -> RunSpec:
        size, launch = SIZES[self.trainer], self.launch
        known = LENGTHS if self.trainer != "sft" else LENGTHS[1:]  # it generates nothing
        lengths = {name: launch[f"training__{name}"] for name in known if f"training__{name}" in launch}
        training = {"trainer": self.trainer, "max_steps": STEPS, "warmup_steps": 1, **size, **lengths, **SETTINGS.get(self.name, {})}
        training["per_device_train_batch_size"] = size["per_device_train_batch_size"] // processes
        earlier = {EARLIER[self.name]: str(folder.parent / EARLIER_POLICY)} if self.name in EARLIER else {}
        chosen = {"name": self.name, "config": {**launch.get("config", {}), **earlier}}
        base = {"base": {"name": launch["base"]}} if launch.get("base") and self.trainer == launch.get("trainer", "grpo") else {}
        return parse_spec(
            {
                **({"base": chosen} if self.is_base else {**base, "methods": [chosen]}),
                "task": self.task.model_dump(exclude_none=True),
                "training": training,
                "evaluation": {"prompts": 0},
                "limits": {"save_every": 1000},
                "resources": {"processes": processes},
                "output": str(folder),
                "device": "cpu",
                "precision": "fp32",
            }
        )


def list_cases(names: Sequence[str]) -> tuple[list[Case], dict[str, str]]:
    """What is trained, and what several processes are refused for, with the reason."""
    cases, refused = [], {}
    for name, entry in sorted(built_in_entries().items()):
        if names and name not in names:
            continue
        for trainer in entry["trains"] or [entry["trainer"]]:
            case = Case(name, trainer, entry["group"] == "bases", bool(entry.get("worlds")))
            if trainer not in PARALLEL_TRAINERS:
                refused[case.key] = f"{trainer} trains in one process"
            elif not entry["parallel"]:
                refused[case.key] = "its card says that it trains in one process"
            else:
                cases.append(case)
    return cases, refused


def name_task(task: TaskChoice) -> str:
    """A key for tasks that share a cold start and sampled pairs."""
    return json.dumps(task.model_dump(mode="json", exclude_none=True), sort_keys=True)
