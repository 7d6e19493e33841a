"""Whether a task's definition can be trained on: its reward functions and their parameters, checked in a child before a version is made."""

import json
from collections.abc import Iterator
from dataclasses import asdict

from trainers.contract.task_files import TaskDefinition
from trainers.rewards.definition_checks import find_definition_problems


def answer_definition_check(data: bytes) -> Iterator[str]:
    """The problems as one line of JSON, their fields below ``rewards.<number>.definition``. What scoring needs is checked where it runs."""
    definition = TaskDefinition.model_validate_json(data)
    found = [
        problem
        for number, column in enumerate(definition.rewards)
        for problem in find_definition_problems(column.definition, f"rewards.{number}.definition", here=False)
    ]
    yield json.dumps([asdict(problem) for problem in found], default=str)
