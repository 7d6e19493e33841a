"""Any task as a world, so that the moves work on all of them: the state is what was written so far. Imports no torch."""

import random
from dataclasses import dataclass

from trainers.contract.events import Message
from trainers.tasks.base import Example, Task
from trainers.worlds.base import State, Step, World


@dataclass(frozen=True)
class TaskWorld:
    """``Task.respond`` as a step: its world is a function of the text alone."""

    task: Task

    def begin(self, example: Example) -> State:
        return {"text": ""}

    def view(self, example: Example, state: State, seat: str) -> list[Message]:
        return example.prompt

    def step(self, example: Example, state: State, seat: str, text: str, rng: random.Random) -> Step:
        written = state["text"] + text
        answer = self.task.respond(example, written) if self.task.stop and written.endswith(tuple(self.task.stop)) else None
        return Step({"text": written + (answer or "")}, answer or "", done=answer is None)

    def draw_noise(self, example: Example, turn: int) -> random.Random:
        return random.Random(turn)


def find_world(task: Task) -> World | TaskWorld:
    return task if isinstance(task, World) else TaskWorld(task)
