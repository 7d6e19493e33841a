"""The example behind a stored prompt, with the task's own facts about it, found again where the run took it from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import cast

from trainers.contract.events import Message
from trainers.contract.hyperparameters import Rollouts
from trainers.contract.problems import SpecError
from trainers.contract.spec import RunSpec
from trainers.data import datasets, identity
from trainers.replay.stored_run import key_of
from trainers.tasks.base import Example, Split, Task

NO_FACTS = (
    "The task's own facts about this prompt were not found again (the data was changed, or a method rewrote the prompt): "
    "reward functions that need them may score differently, and the environment may answer differently."
)


def find_example(spec: RunSpec, task: Task, phase: str, prompt: list[Message], reference: str) -> tuple[Example, bool]:
    """(example, whether its facts are known). One that is not found again has prompt and reference alone."""
    wanted = key_of(prompt, reference)
    for example in iterate_run_examples(spec, task, phase):
        if key_of(example.prompt, example.reference) == wanted:
            return example, True
    return Example(prompt, reference), False


def iterate_run_examples(spec: RunSpec, task: Task, phase: str) -> Iterator[Example]:
    """Those of the phase first: a prompt of another one is found too (the playground samples what it is given)."""
    training, difficulty = spec.training, spec.task.difficulty
    counts = {"train": getattr(training, "prompts", 0), "heldout": spec.evaluation.prompts, "pairs": getattr(training, "sampled_prompts", 0)}
    order = sorted(counts, key=lambda split: split != ("pairs" if phase == "sampled" else phase))
    for split in order:
        if split == "train" and spec.dataset is not None:
            yield from read_dataset_examples(spec)
        elif counts[split]:
            yield from task.examples(cast(Split, split), counts[split], spec.seed, difficulty)


def read_dataset_examples(spec: RunSpec) -> list[Example]:
    """Of the run's own file, as training read it; none where it is gone, another one now, or holds no references."""
    if spec.dataset is None or not isinstance(spec.training, Rollouts):
        return []
    try:
        identity.check_dataset_digest(spec.dataset)
        return datasets.examples_from_rows(datasets.read_rows(Path(spec.dataset.path), spec.training.trainer))
    except (SpecError, OSError):
        return []
