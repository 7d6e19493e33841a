"""A few rows of what a run will train on, as a person should see them before launching it."""

import random
from dataclasses import dataclass
from typing import Any

from trainers.contract.hyperparameters import Demonstrated, Rollouts
from trainers.contract.spec import RunSpec
from trainers.data.datasets import Row
from trainers.tasks.base import Example, Task


@dataclass(frozen=True)
class TrainingSample:
    """A prompt (messages) with its reference answer; ``completion`` and ``rejected`` where the run learns from written answers."""

    prompt: list[dict[str, str]]
    reference: str = ""
    completion: str = ""
    rejected: str = ""


def samples_of(spec: RunSpec, task: Task, rows: list[Row] | None, examples: list[Example]) -> list[TrainingSample]:
    """The first rows of an SFT or DPO dataset; else the examples, with a demonstration of the task's for SFT."""
    if rows is not None and not isinstance(spec.training, Rollouts):
        return [sample_of(row) for row in rows[: len(examples)]]
    rng = random.Random(spec.seed)
    found = []
    for example in examples:
        prompt = [{"role": message.role, "content": message.content} for message in example.prompt]
        completion = task.demonstration(example, rng) if isinstance(spec.training, Demonstrated) else ""
        found.append(TrainingSample(prompt, example.reference, completion))
    return found


def sample_of(row: Row) -> TrainingSample:
    completion = row["completion"] if "completion" in row else row["chosen"]
    return TrainingSample(row["prompt"], "", join_message_texts(completion), join_message_texts(row.get("rejected", [])))


def join_message_texts(messages: list[dict[str, Any]]) -> str:
    return "\n".join(message["content"] for message in messages)
