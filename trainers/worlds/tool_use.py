"""Worlds in which a turn is the call of a tool, until one is the final answer."""

import random
from typing import Any

from trainers.tasks.base import Example
from trainers.worlds.base import State, Step, World, parse_answer, parse_call


class ToolWorld(World):
    """Subclass it and write ``call_tool`` and ``outcome``. A turn that is neither one call nor one answer ends the episode."""

    takes_answer = True

    def begin(self, example: Example) -> State:
        return {"answer": None, "errors": 0, **self.begin_calls(example)}

    def begin_calls(self, example: Example) -> State:
        """What the world keeps beside the answer and the number of turns it could not read."""
        raise NotImplementedError

    def call_tool(self, example: Example, state: State, tool: str, argument: str, rng: random.Random) -> Step:
        raise NotImplementedError

    def step(self, example: Example, state: State, seat: str, text: str, rng: random.Random) -> Step:
        if (call := parse_call(text, self.tools)) is not None:
            return self.call_tool(example, state, *call, rng)
        answer = parse_answer(text)
        if answer is None:
            return Step({**state, "errors": state["errors"] + 1}, done=True, facts={"error": "neither one call nor one answer"})
        return Step({**state, "answer": answer}, done=True, reward=float(answer == example.reference))

    def score_answer(self, example: Example, state: State) -> dict[str, float | None]:
        return {
            "correct": float(state["answer"] == example.reference),
            "format": float(state["answer"] is not None and not state["errors"]),
        }

    def check_open(self, state: State) -> None:
        """Raises LookupError for an episode that is over."""
        if state["answer"] is not None or state["errors"]:
            raise LookupError("the episode is over")


CORRECT = ("1 when the episode ends with the right answer between the tags.", 1.0)
FORMAT = ("1 when every turn is one call, and the last one an answer.", 0.0)


def write_call(tool: str, argument: Any) -> str:
    return f"<{tool}>{argument}</{tool}>"


def write_answer(answer: str) -> str:
    return f"<answer>{answer}</answer>"


def write_information(text: Any) -> str:
    return f"<information>{text}</information>"
