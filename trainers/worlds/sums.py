"""Arithmetic with a calculator: small sums the policy can learn by heart, products it cannot. What pays is to know which is which.

``What is 34 * 6?`` wants ``<calc>34*6</calc>``, gets ``<information>204</information>`` and ends with ``<answer>204</answer>``; ``What is 3 + 5?``
wants the answer at once. The claim that calls go where they are needed is that of adaptive tool use (TAPO, Tool-Light).
"""

import random
import re
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from trainers.contract.events import Message
from trainers.tasks.base import Example
from trainers.worlds.base import POLICY, Said, State, Step, Tool, make_rewards
from trainers.worlds.tool_use import CORRECT, FORMAT, ToolWorld, write_answer, write_call, write_information

CALL = re.compile(r"(\d{1,4}) ?([+*-]) ?(\d{1,4})")  # ASCII digits alone: \d knows others, which int() would read too
LARGE = {"easy": (2, 1), "medium": (2, 2), "hard": (3, 2)}  # digits of the two factors of a product


class SumsConfig(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    large: float = Field(0.5, ge=0, le=1, title="Share of products", description="Share of prompts that ask for a product; others for a sum.")
    faults: float = Field(
        0.0,
        ge=0,
        le=1,
        title="Calculator faults",
        description="Share of calls that end in an error, the same for all of a group.",
    )


class Sums(ToolWorld):
    name = "sums"
    title = "Sums with a calculator"
    summary = "Small sums to know by heart and products for the calculator: a call where none is needed costs reward."
    Config = SumsConfig
    config: SumsConfig
    difficulties = {
        "easy": "One digit plus one digit, or two digits times one.",
        "medium": "One digit plus one digit, or two digits times two.",
        "hard": "One digit plus one digit, or three digits times two.",
    }
    demonstrations = (
        "Of mixed quality by design, so that reinforcement has strategies to choose between: half of all sums and half of all products are"
        " worked out with the calculator, the other half answered at once, products mostly wrong."
    )
    tools = (Tool("calc", "Works out one sum, difference or product of whole numbers."),)
    max_turns = 3
    max_turn_tokens = 14
    episode_tokens = 48

    def __init__(self, options: dict[str, Any] | None = None, seed: int = 0) -> None:
        super().__init__(options, seed)
        self.rewards = make_rewards(
            self,
            {
                "correct": CORRECT,
                "thrift": ("1 when it is right with no more calls than the prompt needs: none for a sum, one for a product.", 0.3),
                "format": FORMAT,
                "called": ("1 when the calculator was called for a product, or not called for a sum.", 0.0),
            },
        )

    def example(self, rng: random.Random, difficulty: str) -> Example:
        if rng.random() < self.config.large:
            digits = LARGE[difficulty]
            left, right = (rng.randrange(10 ** (count - 1) + 1, 10**count) for count in digits)
            sign, result, needed = "*", left * right, 1
        else:
            left, right = rng.randrange(1, 10), rng.randrange(1, 10)
            sign, result, needed = "+", left + right, 0
        data = {"left": left, "sign": sign, "right": right, "needed": needed}
        return Example([Message("user", f"What is {left} {sign} {right}?")], str(result), data)

    def begin_calls(self, example: Example) -> State:
        return {"calls": 0}

    def call_tool(self, example: Example, state: State, tool: str, argument: str, rng: random.Random) -> Step:
        failed = rng.random() < self.config.faults
        result = "error" if failed else calculate(argument)
        facts = {"tool": tool, "query": argument[:100], "error": result if result == "error" else ""}
        return Step({**state, "calls": state["calls"] + 1}, write_information(result), facts=facts)

    def outcome(self, example: Example, state: State) -> dict[str, dict[str, float | None]]:
        right, needed = state["answer"] == example.reference, example.data.get("needed")
        return {
            POLICY: {
                **self.score_answer(example, state),
                "thrift": None if needed is None else float(right and state["calls"] <= needed),
                "called": None if needed is None else float(min(state["calls"], 1) == needed),
            }
        }

    def way(self, example: Example, state: State) -> list[str]:
        self.check_open(state)
        calls = [write_product(example)] if example.data["needed"] > state["calls"] else []
        return [*calls, write_answer(example.reference)]

    def turns(self, example: Example, rng: random.Random, seat: str = POLICY) -> list[Said]:
        if rng.random() < 0.5:
            return self.tell_turns(example, [write_product(example), write_answer(example.reference)])
        slip = rng.choice((-10, -2, 0, 2, 10)) if example.data["needed"] else rng.choice((0, 0, 0, 1))
        return self.tell_turns(example, [write_answer(str(int(example.reference) + slip))])

    def read(self, text: str) -> Example | None:
        """``What is 34 * 6?``"""
        found = re.fullmatch(rf"What is {CALL.pattern}\?", text) if text.isascii() and len(text) < 40 else None
        if found is None or found[2] == "-":
            return None
        left, sign, right = int(found[1]), found[2], int(found[3])
        data = {"left": left, "sign": sign, "right": right, "needed": int(sign == "*")}
        return Example([Message("user", f"What is {left} {sign} {right}?")], calculate(f"{left}{sign}{right}"), data)


def write_product(example: Example) -> str:
    return write_call("calc", f"{example.data['left']}{example.data['sign']}{example.data['right']}")


def calculate(text: str) -> str:
    """The result of ``34*6``, or ``error``: read by hand, nothing of the policy's is ever evaluated."""
    found = CALL.fullmatch(text) if text.isascii() else None
    if found is None:
        return "error"
    left, right = int(found[1]), int(found[3])
    return str({"+": left + right, "-": left - right, "*": left * right}[found[2]])
