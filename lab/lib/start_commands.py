"""Commands that start a worker for a queue: a scheduler's ``sbatch``, ``kubectl create``, ``sky jobs launch``. From LAB_START, written as JSON."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

QUEUE = re.compile(r"[\w.-]{1,50}")
MOST_WORKERS = 1000
LONGEST_PATIENCE = 7 * 86_400  # s
NO_RUNS = "analysis"  # the queue of short questions: no run waits there
KEYS = frozenset(("command", "most", "gpus", "patience", "environment"))


@dataclass(frozen=True)
class StartCommand:
    """``command`` starts one worker of ``queue`` and returns; it is run without a shell.

    ``most``: workers of the queue at once. ``gpus``: that such a worker has, and so how many processes a run of it may have.
    ``patience``: seconds after which a started worker that has not come is no longer waited for. ``environment``: names of variables that the
    command gets besides the base ones.
    """

    queue: str
    command: tuple[str, ...]
    most: int
    gpus: int = 1
    patience: int = 900
    environment: tuple[str, ...] = ()


def parse_start_commands(text: str) -> dict[str, StartCommand]:
    """Queue → its command. Raises ValueError with the fix."""
    if not text.strip():
        return {}
    try:
        queues = json.loads(text)
    except ValueError as error:
        raise ValueError(f'LAB_START is no JSON ({error}); write {{"queue": {{"command": ["sbatch", "worker.sbatch"], "most": 8}}}}') from None
    if not isinstance(queues, dict):
        raise ValueError("LAB_START must be an object: queue → its command")
    return {queue: parse_start_command(queue, given) for queue, given in queues.items()}


def parse_start_command(queue: str, given: Any) -> StartCommand:
    """Raises ValueError."""
    if not QUEUE.fullmatch(queue):
        raise ValueError(f"LAB_START: {queue!r} is not the name of a queue; use letters, digits, dots and dashes")
    if queue == NO_RUNS:
        raise ValueError(f"LAB_START: no run waits in the queue {queue}; let one worker of it run all the time")
    if not isinstance(given, dict) or not given.keys() <= KEYS:
        raise ValueError(f"LAB_START, queue {queue}: give an object with {', '.join(sorted(KEYS))}")
    names = given.get("environment", [])
    if not is_words(given.get("command")) or not given["command"]:
        raise ValueError(f'LAB_START, queue {queue}: command must be a list of words, such as ["sbatch", "/srv/lab/worker.sbatch"]')
    if not is_words(names):
        raise ValueError(f"LAB_START, queue {queue}: environment must be a list of names")
    numbers = {}
    for key, usual, highest in (("most", 1, MOST_WORKERS), ("gpus", 1, MOST_WORKERS), ("patience", 900, LONGEST_PATIENCE)):
        numbers[key] = given.get(key, usual)
        if type(numbers[key]) is not int or not 1 <= numbers[key] <= highest:
            raise ValueError(f"LAB_START, queue {queue}: {key} must be a whole number from 1 to {highest}")
    return StartCommand(queue, tuple(given["command"]), **numbers, environment=tuple(names))


def is_words(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(word, str) and word and "\0" not in word for word in value)
