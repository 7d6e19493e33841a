"""Arithmetic with a calculator: small sums the policy can learn by heart, products it cannot. What pays is to know which is which.

``What is 34 * 6?`` wants ``<calc>34*6</calc>``, gets ``<information>204</information>`` and ends with ``<answer>204</answer>``; ``What is 3 + 5?``
wants the answer at once. The claim that calls go where they are needed is that of adaptive tool use (TAPO, Tool-Light).

With the option ``consult`` there is an expert too, a rule in the place of a stronger model: ``<consult>34*6</consult>`` is answered with the result,
or with ``unavailable``. How often, and how many turns an episode may take, is what a method changes from step to step (EAPO); held out it never
replies, and an episode has as many turns as the policy needs alone.
"""

import random
import re
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from trainers.contract.events import Message
from trainers.tasks.base import Example
from trainers.worlds.base import POLICY, Said, State, Step, Tool, is_held_out, make_rewards
from trainers.worlds.tool_use import CORRECT, FORMAT, ToolWorld, write_answer, write_call, write_information

CALL = re.compile(r"(\d{1,4}) ?([+*-]) ?(\d{1,4})")  # ASCII digits alone: \d knows others, which int() would read too
UNAVAILABLE = "unavailable"
ALONE = 2  # turns that the policy needs without the expert
CONSULT = Tool("consult", "Asks the expert, who may be unavailable.")
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
    consult: float = Field(
        0.0,
        ge=0,
        le=1,
        title="Expert",
        description="Share of consultations that an expert replies to, unless a method says otherwise; 0 = there is no expert to consult.",
    )


@dataclass
class Expert:
    """What a method changes between two batches: nothing of it belongs to an episode, so that a step stays a function of its arguments."""

    acceptance: float  # share of consultations that are replied to
    turns: int  # of an episode, the answer included


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
    tools: ClassVar[tuple[Tool, ...]] = (Tool("calc", "Works out one sum, difference or product of whole numbers."),)
    max_turns = 3
    max_turn_tokens = 14
    episode_tokens = 48
    wordy_options = frozenset({"consult"})

    def __init__(self, options: dict[str, Any] | None = None, seed: int = 0) -> None:
        super().__init__(options, seed)
        self.expert = Expert(self.config.consult, self.max_turns) if self.config.consult else None
        if self.expert is not None:
            self.tools = (*type(self).tools, CONSULT)  # type: ignore[assignment, misc]  # of this object alone
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
        return {"calls": 0} if self.expert is None else {"calls": 0, "consulted": 0, "told": False}

    def call_tool(self, example: Example, state: State, tool: str, argument: str, rng: random.Random) -> Step:
        if self.expert is None:
            return self.call_calculator(state, tool, argument, rng)
        accepted, turns = (0.0, ALONE) if is_held_out(example) else (self.expert.acceptance, self.expert.turns)
        step = self.consult(state, argument, rng.random() < accepted) if tool == CONSULT.name else self.call_calculator(state, tool, argument, rng)
        if step.state["calls"] + step.state["consulted"] < turns:
            return step
        return Step(step.state, done=True, facts=step.facts | {"error": "no turn is left for the answer"})

    def consult(self, state: State, argument: str, replies: bool) -> Step:
        """The expert works out what it is asked, if it replies at all."""
        result = calculate(argument) if replies else UNAVAILABLE
        told = state["told"] or result not in ("error", UNAVAILABLE)
        facts = {"tool": CONSULT.name, "query": argument[:100], "error": "" if told else result, "accepted": replies}
        return Step({**state, "consulted": state["consulted"] + 1, "told": told}, write_information(result), facts=facts)

    def call_calculator(self, state: State, tool: str, argument: str, rng: random.Random) -> Step:
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
        calls = [write_product(example)] if example.data["needed"] > state["calls"] and not state.get("told") else []
        return [*calls, write_answer(example.reference)]

    def turns(self, example: Example, rng: random.Random, seat: str = POLICY) -> list[Said]:
        if self.expert is not None and rng.random() < 0.5:
            return self.tell_consultation(example, rng)
        if rng.random() < 0.5:
            return self.tell_turns(example, [write_product(example), write_answer(example.reference)])
        return self.tell_turns(example, [write_answer(self.guess(example, rng))])

    def tell_consultation(self, example: Example, rng: random.Random) -> list[Said]:
        """Asks the expert. Without a reply half of the products go to the calculator."""
        asked = write_call(CONSULT.name, write_problem(example))
        state = self.step(example, self.begin(example), POLICY, asked, self.draw_noise(example, 0)).state
        if state["told"] or rng.random() < 0.5:
            return self.tell_turns(example, [asked, *self.way(example, state)])
        return self.tell_turns(example, [asked, write_answer(self.guess(example, rng))])

    def guess(self, example: Example, rng: random.Random) -> str:
        """The answer of somebody who does not look it up."""
        slip = rng.choice((-10, -2, 0, 2, 10)) if example.data["needed"] else rng.choice((0, 0, 0, 1))
        return str(int(example.reference) + slip)

    def read(self, text: str) -> Example | None:
        """``What is 34 * 6?``"""
        found = re.fullmatch(rf"What is {CALL.pattern}\?", text) if text.isascii() and len(text) < 40 else None
        if found is None or found[2] == "-":
            return None
        left, sign, right = int(found[1]), found[2], int(found[3])
        data = {"left": left, "sign": sign, "right": right, "needed": int(sign == "*")}
        return Example([Message("user", f"What is {left} {sign} {right}?")], calculate(f"{left}{sign}{right}"), data)


def write_problem(example: Example) -> str:
    return f"{example.data['left']}{example.data['sign']}{example.data['right']}"


def write_product(example: Example) -> str:
    return write_call("calc", write_problem(example))


def calculate(text: str) -> str:
    """The result of ``34*6``, or ``error``: read by hand, nothing of the policy's is ever evaluated."""
    found = CALL.fullmatch(text) if text.isascii() else None
    if found is None:
        return "error"
    left, right = int(found[1]), int(found[3])
    return str({"+": left + right, "-": left - right, "*": left * right}[found[2]])
